"""The command line against a real broker in a process of its own."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.crash import ledger
from tests.integration.conditions import broker_on, running
from tests.names import queue_named_after
from tests.waiting import wait_until
from vibemq import sync as blocking
from vibemq.auth.passwords import hash_password
from vibemq.cli import main
from vibemq.cli.admin import main as admin_main
from vibemq.cli.admin.dlq.replay_plan import PlanFile, ReplayPlan
from vibemq.cli.child import BrokerProcess
from vibemq.cli.entry import run_app
from vibemq.client.address import parse

Run = Callable[..., tuple[int, list[Any], str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data")
    anyio.run(process.start)
    yield process
    anyio.run(process.stop)


@pytest.fixture(autouse=True)
def _surroundings(broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIBEMQ_URL", broker.url)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return queue_named_after(request)


@pytest.fixture
def vibemq(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run `vibemq … --json`, or `vibemq-admin` when the first word is "admin": (code, objects on stdout, stderr)."""

    def run(*words: object) -> tuple[int, list[Any], str]:
        texts = [*map(str, words), "--json"]
        if texts[0] == "admin":
            code = run_app(admin_main.app, "vibemq-admin", texts[1:])
        else:
            code = run_app(main.app, "vibemq", texts)
        captured = capfdbinary.readouterr()
        return code, [json.loads(line) for line in captured.out.splitlines()], captured.err.decode()

    return run


def text(capture: pytest.CaptureFixture[bytes], *words: str) -> str:
    assert run_app(admin_main.app, "vibemq-admin", list(words)) == 0
    return capture.readouterr().out.decode()


def publish(vibemq: Run, queue: str, count: int, *more: str) -> None:
    code, _, err = vibemq("pub", queue, *[f'{{"n": {n}}}' for n in range(count)], *more)
    assert (code, err) == (0, "")


def bury(vibemq: Run, queue: str, count: int, reason: str = "broken") -> None:
    publish(vibemq, queue, count)
    code, found, _ = vibemq("sub", queue, "--count", count, "--reject", reason)
    assert (code, len(found)) == (0, count)


def info(vibemq: Run, queue: str) -> dict[str, Any]:
    _, (found,), _ = vibemq("admin", "queue", "info", queue)
    assert isinstance(found, dict)
    return found


def test_the_life_of_a_queue(vibemq: Run, queue: str) -> None:
    create = ("admin", "queue", "create", queue, "--max-attempts", "5", "--ack-timeout", "1m", "--durability", "weak")
    assert vibemq(*create, "--dry-run")[1][0]["created"] is True
    assert vibemq("admin", "queue", "info", queue)[0] == 3
    assert vibemq(*create)[1][0]["created"] is True
    assert vibemq(*create)[1][0]["created"] is False
    options = info(vibemq, queue)["options"]
    assert (options["max_attempts"], options["ack_timeout_ms"]) == (5, 60_000)
    code, _, err = vibemq("admin", "queue", "create", queue, "--max-attempts", "6", "--must-match")
    assert code == 1
    assert json.loads(err)["error"]["code"] == "QUEUE_EXISTS"

    assert vibemq("admin", "queue", "change", queue, "--max-attempts", "9")[0] == 0
    assert info(vibemq, queue)["options"]["max_attempts"] == 9
    assert vibemq("admin", "queue", "change", queue)[0] == 2
    assert queue in [found["name"] for found in vibemq("admin", "queue", "ls")[1]]

    publish(vibemq, queue, 3)
    assert vibemq("admin", "queue", "purge", queue)[0] == 2
    assert vibemq("admin", "queue", "purge", queue, "--dry-run")[1][0]["count"] == 3
    assert vibemq("admin", "queue", "purge", queue, "--yes")[1][0]["count"] == 3
    assert vibemq("admin", "queue", "rm", queue)[0] == 2
    assert vibemq("admin", "queue", "rm", queue, "--yes")[1][0]["deleted"] is True
    assert vibemq("admin", "queue", "rm", queue, "--yes")[0] == 3
    assert vibemq("admin", "queue", "rm", queue, "--yes", "--missing-ok")[0] == 0


def test_tables_for_people(vibemq: Run, queue: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    publish(vibemq, queue, 2)
    assert queue in text(capfdbinary, "queue", "ls")
    shown = text(capfdbinary, "queue", "info", queue)
    assert "durability" in shown
    assert "strong" in shown
    assert '{"n": 1}' in text(capfdbinary, "queue", "peek", queue)
    # Its picture of all queues may be a little older than the queue.
    wait_until(lambda: queue in text(capfdbinary, "top", "--once", "--interval", "100ms"))


def test_one_message_is_shown(vibemq: Run, queue: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    vibemq("pub", queue, "a text", "--header", "kind=test")
    _, (message,), _ = vibemq("admin", "message", "show", queue, 1)
    assert (message["payload"], message["state"], message["headers"]["kind"]) == ("a text", "ready", "test")
    assert run_app(admin_main.app, "vibemq-admin", ["message", "show", queue, "1", "--offset", "2"]) == 0
    told = capfdbinary.readouterr().out.decode()
    assert f"message 1 of queue {queue}" in told
    assert re.search(r"payload, bytes 2 to 6 +text *\n", told)
    assert run_app(admin_main.app, "vibemq-admin", ["message", "show", queue, "1", "--raw"]) == 0
    assert capfdbinary.readouterr().out == b"a text"
    assert vibemq("admin", "message", "show", queue, 2)[0] == 3
    assert vibemq("admin", "message", "show", queue, 1, "--decode", "zip")[0] == 2


def test_a_queue_with_more_than_at_most_keeps_its_messages(vibemq: Run, queue: str) -> None:
    vibemq("pub", queue, "a", "b")
    for verb in ("purge", "rm"):
        code, _, err = vibemq("admin", "queue", verb, queue, "--yes", "--at-most", 1)
        assert (code, json.loads(err)["error"]["code"]) == (1, "PRECONDITION_FAILED")
    assert info(vibemq, queue)["ready"] == 2
    assert vibemq("admin", "queue", "rm", queue, "--yes", "--at-most", 2)[0] == 0


def test_peek_takes_nothing(vibemq: Run, queue: str) -> None:
    publish(vibemq, queue, 5, "--header", "k=v")
    _, found, _ = vibemq("admin", "queue", "peek", queue, "--limit", "2", "--from", "3")
    assert [(m["sequence"], m["payload"], m["headers"]["k"]) for m in found] == [
        (3, '{"n": 2}', "v"),
        (4, '{"n": 3}', "v"),
    ]
    assert info(vibemq, queue)["ready"] == 5


def test_publishing_and_consuming(vibemq: Run, queue: str) -> None:
    code, (told,), _ = vibemq("pub", queue, "hello", "--header", "a=1", "--priority", "high")
    assert (code, told["published"], told["last_sequence"]) == (0, 1, 1)
    code, (message,), _ = vibemq("sub", queue, "--no-ack", "--count", "1")
    assert code == 0
    assert (message["payload"], message["headers"]["a"]) == ("hello", "1")
    assert message["headers"]["content-type"] == "text/plain"
    code, (message,), _ = vibemq("sub", queue, "--idle", "300ms")
    assert (code, message["attempt"], message["payload"]) == (0, 2, "hello")
    assert vibemq("sub", queue, "--idle", "200ms")[1] == []
    assert info(vibemq, queue)["dead"] == 0


def test_a_request_prints_the_reply(vibemq: Run, queue: str, broker: BrokerProcess) -> None:
    assert vibemq("request", queue, "anybody?", "--timeout", "200ms")[0] == 5

    def answer() -> None:
        with blocking.connect(broker.url) as mq, mq.subscribe(queue) as messages:
            message = next(iter(messages))
            message.reply({"said": message.body}, headers={"by": "worker"})
            message.ack()

    worker = threading.Thread(target=answer)
    worker.start()
    code, (told,), _ = vibemq("request", queue, "hello", "--timeout", "60s")
    worker.join(60)
    assert (code, told) == (0, {"queue": queue, "headers": {"by": "worker"}, "payload": '{"said":"hello"}'})


def test_publishing_a_file(vibemq: Run, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.ndjson"
    file.write_text("".join(f'{{"n": {n}}}\n' for n in range(2_500)))
    code, (told,), _ = vibemq("pub", queue, "--file", file, "--ndjson")
    assert (code, told["published"], told["last_sequence"]) == (0, 2_500, 2_500)
    code, found, _ = vibemq("sub", queue, "--count", "2500")
    assert [json.loads(message["payload"])["n"] for message in found] == list(range(2_500))


def test_publishing_what_is_piped_in_as_it_comes(vibemq: Run, queue: str) -> None:
    command = [sys.executable, "-m", "vibemq", "pub", queue]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("first\nsec")
        process.stdin.flush()
        # A line is published before the input ends.
        wait_until(lambda: vibemq("admin", "queue", "info", queue)[0] == 0 and info(vibemq, queue)["ready"] == 1)
        process.stdin.write("ond\n\nthird")
        process.stdin.close()
        assert process.stdout.read().startswith("3 messages published")
        assert process.wait(60) == 0
    assert [m["payload"] for m in vibemq("sub", queue, "--count", "3")[1]] == ["first", "second", "third"]


def test_a_group_reads_a_log_from_the_beginning(vibemq: Run, queue: str) -> None:
    vibemq("admin", "queue", "create", queue, "--mode", "fan-out-with-ack", "--retention", "log")
    publish(vibemq, queue, 3)
    reading = ("sub", queue, "--from-beginning", "--idle", "300ms", "--group")
    assert [m["sequence"] for m in vibemq(*reading, "one")[1]] == [1, 2, 3]
    assert vibemq(*reading, "one")[1] == []
    assert [m["sequence"] for m in vibemq(*reading, "two")[1]] == [1, 2, 3]


def test_the_life_of_a_cursor(vibemq: Run, queue: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    vibemq("admin", "queue", "create", queue, "--mode", "fan-out-with-ack")
    vibemq("pub", queue, *map(str, range(10)))
    code, [made], _ = vibemq("admin", "group", "create", queue, "etl", "--start", "sequence:4", "--hold", "15m")
    assert (code, made["committed"], made["hold_ms"], made["owner"]) == (0, 4, 900_000, "vibemq-admin")
    assert vibemq("admin", "group", "create", queue, "etl")[0] == 2
    assert vibemq("admin", "group", "set", queue, "etl")[0] == 2
    code, [changed], _ = vibemq("admin", "group", "set", queue, "etl", "--hold", "0s", "--max-lag-size", "1GiB")
    assert (code, changed["hold_ms"], changed["max_lag_bytes"], changed["epoch"]) == (0, 0, 1 << 30, made["epoch"])
    assert vibemq("admin", "group", "quarantine", queue, "etl", "6", "9-99", "--dry-run")[1][0]["dry_run"]
    code, [done], _ = vibemq("admin", "group", "quarantine", queue, "etl", "6", "9-99", "--yes")
    assert (code, done) == (0, {"quarantined": 3})
    assert vibemq("admin", "group", "quarantine", queue, "etl", "9-6", "--yes")[0] == 2
    code, [shown], _ = vibemq("admin", "group", "show", queue, "etl")
    assert (shown["backlog_messages"], shown["quarantined"]) == (4, [[6, 6], [9, 10]])
    code, groups, _ = vibemq("admin", "group", "ls", queue)
    assert [(group["group"], group["cursor"], group["backlog_messages"]) for group in groups] == [("etl", True, 4)]
    assert vibemq("admin", "group", "seek", queue, "etl", "yesterday", "--yes")[0] == 2
    assert vibemq("admin", "group", "seek", queue, "nobody", "latest", "--yes")[0] == 3
    code, [moved], _ = vibemq("admin", "group", "seek", queue, "etl", "latest", "--yes")
    assert (code, moved["committed"], moved["epoch"]) == (0, 11, made["epoch"] + 1)
    assert vibemq("admin", "group", "seek", queue, "etl", "sequence:11", "--yes")[0] == 0
    assert vibemq("admin", "group", "seek", queue, "etl", "sequence:011", "--yes")[0] == 0
    vibemq("admin", "queue", "purge", queue, "--yes")
    code, [moved], _ = vibemq("admin", "group", "seek", queue, "etl", "sequence:4", "--yes")
    assert (code, moved["committed"]) == (6, 11)
    assert run_app(admin_main.app, "vibemq-admin", ["group", "ls", queue]) == 0
    assert run_app(admin_main.app, "vibemq-admin", ["group", "show", queue, "etl"]) == 0
    text = capfdbinary.readouterr().out.decode()
    assert re.search(r"hold after ack\W+none", text)
    assert "cursor" in text
    assert "quarantined" in text
    code, [gone], _ = vibemq("admin", "group", "rm", queue, "etl", "--yes")
    assert (code, gone["deleted"]) == (0, True)
    assert vibemq("admin", "group", "show", queue, "etl")[0] == 3
    assert vibemq("admin", "group", "ls", "no-such-queue")[0] == 3


def test_an_ordinary_group_is_listed_sought_and_removed(vibemq: Run, queue: str) -> None:
    vibemq("admin", "queue", "create", queue, "--mode", "fan-out-with-ack", "--retention", "log")
    vibemq("pub", queue, "1", "2")
    vibemq("sub", queue, "--group", "people", "--from-beginning", "--count", "2")
    [group] = [group for group in vibemq("admin", "group", "ls", queue)[1] if group["group"] == "people"]
    assert (group["cursor"], group["backlog_messages"]) == (False, 0)
    assert vibemq("admin", "group", "seek", queue, "people", "earliest", "--yes")[0] == 0
    [group] = [group for group in vibemq("admin", "group", "ls", queue)[1] if group["group"] == "people"]
    assert group["backlog_messages"] == 2
    assert vibemq("admin", "group", "rm", queue, "people", "--yes")[0] == 0


def test_a_dedup_id_stores_once(vibemq: Run, queue: str) -> None:
    for _ in range(2):
        assert vibemq("pub", queue, "x", "--dedup-id", "one")[0] == 0
    assert info(vibemq, queue)["ready"] == 1


def test_a_delay_is_kept(vibemq: Run, queue: str) -> None:
    publish(vibemq, queue, 1, "--delay", "1h")
    assert vibemq("sub", queue, "--idle", "200ms")[1] == []
    assert info(vibemq, queue)["delayed"] == 1


def test_a_full_queue_takes_part_of_a_batch(vibemq: Run, queue: str) -> None:
    vibemq("admin", "queue", "create", queue, "--max-messages", "3")
    code, _, err = vibemq("pub", queue, *"abcde")
    assert code == 6
    assert json.loads(err)["error"]["code"] == "PARTLY_DONE"
    assert info(vibemq, queue)["ready"] == 3
    code, _, err = vibemq("pub", queue, "f")
    assert (code, json.loads(err)["error"]["code"]) == (1, "QUEUE_FULL")


def test_a_reader_that_leaves_loses_nothing(vibemq: Run, queue: str, broker: BrokerProcess) -> None:
    publish(vibemq, queue, 300)
    command = f"{sys.executable} -m vibemq sub {queue} --prefetch 10 | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, timeout=60, check=True)
    assert done.stdout == b'{"n": 0}\n'
    assert b"Traceback" not in done.stderr
    left = info(vibemq, queue)
    # What the pipe took before the reader was found gone is settled; the rest must still be there.
    assert left["ready"] + left["in_flight"] >= 150
    assert left["dead"] == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("pub", "q", "hi", "--delay", "99999999999999999999w"), 2),
        (("admin", "queue", "peek", "q", "--from", "99999999999999999999"), 2),
        (("admin", "dlq", "show", "99999999999999999999"), 2),
        (("admin", "dlq", "show", "9223372036854775807"), 3),
        (("admin", "dlq", "show", "0"), 3),
        (("admin", "dlq", "ls", "--id", "5-2"), 2),
        (("admin", "dlq", "ls", "--after", "99999999999999999999"), 2),
    ],
)
def test_numbers_that_are_too_large_are_refused_in_a_sentence(
    vibemq: Run, words: tuple[str, ...], expected: int
) -> None:
    code, found, err = vibemq(*words)
    assert (code, found) == (expected, []), err
    assert "Traceback" not in err
    assert json.loads(err)["exit_code"] == expected


def test_ping_and_top(vibemq: Run) -> None:
    code, (told,), _ = vibemq("ping", "--count", "2", "--interval", "1ms")
    assert code == 0
    assert 0 < told["min_ms"] <= told["median_ms"] <= told["max_ms"]
    code, (seen,), _ = vibemq("admin", "top", "--interval", "100ms")
    assert code == 0
    assert seen["broker"]["version"]
    assert seen["connections"]


def test_figures_of_the_broker_and_of_its_queues(
    vibemq: Run, queue: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    publish(vibemq, queue, 3)

    def row() -> list[dict[str, Any]]:
        return vibemq("admin", "queue", "ls", "--name", queue, "--state", "no-consumer", "--sort", "-ready")[1]

    wait_until(lambda: row() and row()[0]["ready"] == 3)
    assert vibemq("admin", "queue", "ls", "--sort", "color")[0] != 0
    assert queue in text(capfdbinary, "queue", "ls", "--name", queue)
    (overview,) = vibemq("admin", "broker", "overview")[1]
    assert overview["totals"]["ready"] >= 3
    assert "rates" in text(capfdbinary, "broker", "overview")
    assert "native" in text(capfdbinary, "broker", "listeners")
    changed = vibemq("admin", "broker", "settings", "--changed")[1]
    assert "data_dir" in [setting["name"] for setting in changed]
    (history,) = vibemq("admin", "broker", "history", queue, "--range", "6h", "--series", "ready")[1]
    assert list(history["series"]) == ["ready"]
    assert "time" in text(capfdbinary, "broker", "history")
    assert vibemq("admin", "consumer", "ls", queue)[1] == []
    assert vibemq("admin", "consumer", "ls", f"{queue}-missing")[0] == 3
    vibemq("admin", "group", "create", queue, "readers")
    wait_until(lambda: [c["group"] for c in vibemq("admin", "cursor", "ls", "--queue", queue)[1]] == ["readers"])
    assert "readers" in text(capfdbinary, "cursor", "ls")
    assert vibemq("admin", "transaction", "ls")[0] == 0
    assert vibemq("admin", "connections", "ls", "--sort", "-unsettled", "--protocol", "native")[1]
    assert "queue.delete" in [r["operation"] for r in removed_and_recorded(vibemq, queue)]
    assert queue in text(capfdbinary, "audit", "ls", "--queue", queue)


def removed_and_recorded(vibemq: Run, queue: str) -> list[dict[str, Any]]:
    vibemq("admin", "queue", "rm", queue, "--yes")
    return wait_until(lambda: vibemq("admin", "audit", "ls", "--queue", queue, "--operation", "queue.delete")[1])


def test_records_are_followed_as_they_come(queue: str, vibemq: Run) -> None:
    program = "from vibemq.cli.admin.main import run; run()"
    words = ["audit", "follow", "--interval", "100ms", "--queue", queue, "--json"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        seen: list[str] = []

        def followed() -> bool:
            # Whatever was recorded before it looked first is not shown.
            vibemq("admin", "queue", "create", queue)
            vibemq("admin", "queue", "rm", queue, "--yes")
            seen.extend(process.stdout or [])
            return any('"queue.delete"' in line for line in seen)

        try:
            wait_until(followed)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_dead_letters_are_listed_shown_and_exported(vibemq: Run, queue: str, tmp_path: Path) -> None:
    bury(vibemq, queue, 3, "no use")
    bury(vibemq, queue, 2, "no use at all")
    _, letters, _ = vibemq("admin", "dlq", "ls", "--queue", queue)
    assert [letter["error"] for letter in letters] == ["no use"] * 3 + ["no use at all"] * 2
    assert {letter["reason"] for letter in letters} == {"rejected"}
    wanted = letters[3]["dead_id"]
    assert len(vibemq("admin", "dlq", "ls", "--queue", queue, "--limit", "2")[1]) == 2
    assert len(vibemq("admin", "dlq", "ls", "--queue", queue, "--after", wanted)[1]) == 1
    assert vibemq("admin", "dlq", "ls", "--queue", queue, "--older-than", "1h")[1] == []
    assert vibemq("admin", "dlq", "ls", "--queue", queue, "--reason", "expired")[1] == []

    _, groups, _ = vibemq("admin", "dlq", "groups", "--queue", queue)
    assert sorted((group["sample"], group["count"]) for group in groups) == [("no use", 3), ("no use at all", 2)]
    [at_all] = [group["fingerprint"] for group in groups if group["count"] == 2]
    assert vibemq("admin", "dlq", "ls", "--queue", queue, "--fingerprint", at_all)[1] == letters[3:]
    assert vibemq("admin", "dlq", "ls", "--queue", queue, "--error", "at all", "--newest")[1] == letters[:2:-1]
    assert vibemq("admin", "dlq", "ls", "--queue", queue, "--replayed")[1] == []
    bounds = ("--from-id", letters[1]["dead_id"], "--to-id", wanted)
    assert vibemq("admin", "dlq", "ls", "--queue", queue, *bounds)[1] == letters[1:4]
    _, (preview,), _ = vibemq("admin", "dlq", "preview", "--queue", queue, *bounds)
    assert (preview["count"], preview["exact"], preview["examples"]) == (3, True, letters[1:4])
    assert vibemq("admin", "dlq", "preview", "--queue", queue, "--rate", "0.5")[1][0]["duration_ms"] == 10_000
    assert vibemq("admin", "dlq", "ls", "--fingerprint", "xyz")[0] == 2

    _, (letter,), _ = vibemq("admin", "dlq", "show", wanted)
    assert (letter["queue"], letter["payload"]) == (queue, '{"n": 0}')
    assert vibemq("admin", "dlq", "show", 999_999)[0] == 3
    assert vibemq("admin", "dlq", "show", wanted, "--queue", queue)[1] == [letter]
    assert vibemq("admin", "dlq", "show", wanted, "--queue", f"{queue}-other")[0] == 3

    file = tmp_path / "dead.ndjson"
    assert vibemq("admin", "dlq", "export", file, "--queue", queue)[1] == [{"count": 5, "file": str(file)}]
    exported = [json.loads(line) for line in file.read_text().splitlines()]
    assert [letter["dead_id"] for letter in exported] == [letter["dead_id"] for letter in letters]
    assert exported[4]["payload"] == '{"n": 1}'
    assert vibemq("admin", "dlq", "export", file, "--queue", queue)[0] == 2
    code, lines, _ = vibemq("admin", "dlq", "export", "-", "--id", wanted)
    assert (code, [line["dead_id"] for line in lines]) == (0, [wanted])


def test_an_export_that_the_broker_writes(vibemq: Run, queue: str, tmp_path: Path) -> None:
    bury(vibemq, queue, 4)
    file = tmp_path / "dead.ndjson"
    code, (told,), _ = vibemq("admin", "dlq", "export", file, "--queue", queue, "--job", "--limit", "3", "--note", "n")
    assert (code, told["count"], told["file"]) == (0, 3, str(file))
    *letters, tail = [json.loads(line) for line in file.read_text().splitlines()]
    assert (len(letters), tail) == (3, {"count": 3, "damaged": 0})
    _, (job,), _ = vibemq("admin", "dlq", "export", "--queue", queue, "--detach")
    assert vibemq("admin", "job", "follow", job["job"])[1][0]["done"] == 4
    code, lines, _ = vibemq("admin", "job", "result", job["job"], "-")
    assert (code, lines[-1]) == (0, {"count": 4, "damaged": 0})
    assert vibemq("admin", "job", "result", job["job"], file)[0] == 2, "it would be overwritten"
    assert vibemq("admin", "job", "discard", job["job"])[0] == 0
    code, _, err = vibemq("admin", "job", "result", job["job"], tmp_path / "other")
    assert json.loads(err)["error"]["code"] == "JOB_STATE"
    assert code != 0
    assert not (tmp_path / "other").exists()
    for wrong in ((), (file, "--rate", "5"), (file, "--note", "n")):
        assert vibemq("admin", "dlq", "export", *wrong, "--queue", queue)[0] == 2
    assert info(vibemq, queue)["dead"] == 4


def test_purging_dead_letters(vibemq: Run, queue: str) -> None:
    bury(vibemq, queue, 4)
    assert vibemq("admin", "dlq", "purge")[0] == 2
    assert vibemq("admin", "dlq", "purge", "--queue", queue)[0] == 2
    assert vibemq("admin", "dlq", "purge", "--queue", queue, "--dry-run")[1][0]["count"] == 4
    assert vibemq("admin", "dlq", "purge", "--queue", queue, "--limit", "3", "--yes")[1][0]["count"] == 3
    assert info(vibemq, queue)["dead"] == 1


@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_dead_letters_of_a_misspelt_queue_are_not_found(vibemq: Run, verb: str) -> None:
    code, _, notes = vibemq("admin", "dlq", verb, "--queue", "no-such-queue", *(["--yes"] if verb == "purge" else []))
    assert code == 3
    assert "no-such-queue" in str(notes)


def test_replay_to_where_they_came_from_and_elsewhere(vibemq: Run, queue: str) -> None:
    bury(vibemq, queue, 6)
    assert vibemq("admin", "dlq", "replay", "--queue", queue, "--dry-run")[1][0]["count"] == 6
    assert vibemq("admin", "dlq", "replay", "--queue", queue, "--limit", "2")[1][0]["count"] == 2
    assert info(vibemq, queue)["ready"] == 2
    assert vibemq("admin", "dlq", "replay", "--queue", queue, "--to", f"{queue}-missing")[0] == 3
    vibemq("admin", "queue", "create", f"{queue}-other")
    assert vibemq("admin", "dlq", "replay", "--queue", queue, "--to", f"{queue}-other")[1][0]["count"] == 4
    assert info(vibemq, f"{queue}-other")["ready"] == 4
    _, found, _ = vibemq("sub", queue, "--count", "2")
    assert [message["headers"]["vibemq-replay-count"] for message in found] == ["1", "1"]


def test_nothing_changes_when_more_dead_letters_fit_than_at_most(vibemq: Run, queue: str) -> None:
    bury(vibemq, queue, 3)
    for words in (("replay",), ("purge", "--yes")):
        code, _, notes = vibemq("admin", "dlq", *words, "--queue", queue, "--at-most", "2")
        assert (code != 0, "PRECONDITION_FAILED" in str(notes)) == (True, True), words
    assert info(vibemq, queue)["dead"] == 3
    assert vibemq("admin", "dlq", "purge", "--yes", "--queue", queue, "--at-most", "3")[1][0]["count"] == 3


def test_one_dead_letter_is_edited_and_replayed(vibemq: Run, queue: str) -> None:
    bury(vibemq, queue, 2)
    first, second = (letter["dead_id"] for letter in vibemq("admin", "dlq", "ls", "--queue", queue)[1])
    words = ("--text", "it's\nnew", "--header", "repaired=by=hand")
    assert vibemq("admin", "dlq", "edit", str(first), *words)[1][0]["edited"] == ["payload", "headers"]
    assert vibemq("admin", "dlq", "edit", str(second), "--queue", queue)[0] == 2
    assert vibemq("admin", "dlq", "edit", str(second), "--queue", queue, "--to", queue)[1][0]["edited"] == []
    assert vibemq("admin", "dlq", "edit", str(second), "--to", queue)[0] == 3
    assert vibemq("admin", "dlq", "edit", str(second), "--text", "a", "--file", "-")[0] == 2
    _, found, _ = vibemq("sub", queue, "--count", "2")
    edited = next(message for message in found if "vibemq-edited" in message["headers"])
    assert (edited["payload"], edited["headers"]["repaired"]) == ("it's\nnew", "by=hand")


def test_the_error_names_what_is_missing_by_the_code_that_a_broker_has_for_it(vibemq: Run, queue: str) -> None:
    assert vibemq("admin", "queue", "create", queue)[0] == 0
    for words, code in (
        (("group", "seek", queue, "nobody", "earliest", "--yes"), "GROUP_NOT_FOUND"),
        (("group", "show", queue, "nobody"), "GROUP_NOT_FOUND"),
        (("dlq", "show", "999999"), "MESSAGE_NOT_FOUND"),
    ):
        status, _, err = vibemq("admin", *words)
        assert (status, json.loads(err)["error"]["code"]) == (3, code), words


def test_options_have_the_same_form_in_every_answer(vibemq: Run, queue: str) -> None:
    """Names as names and numbers as numbers, whatever the command and however they were given."""
    wanted = {"mode": "priority-based", "durability": "weak", "max_attempts": 1, "max_bytes": 5_000_000}
    words = ("--mode", "priority_based", "--durability", "WEAK", "--max-bytes", "5MB", "--option", "max_attempts=0")
    assert vibemq("admin", "queue", "create", queue, *words)[1][0]["options"] == wanted
    listed = next(q for q in vibemq("admin", "queue", "ls")[1] if q["name"] == queue)
    for options in (info(vibemq, queue)["options"], listed["options"]):
        assert {name: options[name] for name in wanted} == wanted
    changed = vibemq("admin", "queue", "change", queue, "--overflow", "redirect_to_dlq", "--ttl", "0")[1][0]
    assert changed["changes"] == {"overflow": "redirect-to-dlq", "message_ttl_ms": None}


def test_ctrl_c_is_the_normal_end_of_top() -> None:
    terminal, other_end = os.openpty()
    program = "from vibemq.cli.admin.main import run; run()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "top", "--interval", "100ms"],
        stdin=other_end,
        stdout=other_end,
        stderr=subprocess.PIPE,
        env=os.environ | {"TERM": "xterm"},
    ) as process:
        os.close(other_end)
        shown = b""
        while b"VibeMQ" not in shown:
            shown += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        # The terminal holds a few pages; a program that cannot write on does not end.
        with contextlib.suppress(OSError):
            while os.read(terminal, 4096):
                pass
        assert process.stderr is not None
        assert (process.wait(60), process.stderr.read()) == (0, b"")
    os.close(terminal)


def test_an_interrupted_replay_doubles_nothing(vibemq: Run, queue: str) -> None:
    bury(vibemq, queue, 100)
    words = ["dlq", "replay", "--queue", queue, "--rate", "2", "--limit", "50"]
    program = "from vibemq.cli.admin.main import run; run()"
    with subprocess.Popen([sys.executable, "-c", program, *words], stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: info(vibemq, queue)["ready"] >= 2)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(60) == 130, said
    assert "goes on without this command" in said
    halfway = info(vibemq, queue)["ready"]
    assert 2 <= halfway < 50

    code, (told,), _ = vibemq("admin", *words, "--rate", "1000")
    assert (code, told["resumed"]) == (0, True)
    assert 0 < told["count"] <= 50 - halfway
    after = info(vibemq, queue)
    assert (after["ready"], after["dead"]) == (50, 50)
    _, found, _ = vibemq("sub", queue, "--count", "50")
    assert sorted(json.loads(message["payload"])["n"] for message in found) == list(range(50))

    code, (told,), _ = vibemq("admin", *words, "--rate", "1000")
    assert (code, told["resumed"], told["count"]) == (0, False, 50)


def test_what_an_earlier_version_has_left_of_a_replay_becomes_a_job(
    vibemq: Run, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(vibemq, queue, 30)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    ids = [letter["dead_id"] for letter in vibemq("admin", "dlq", "ls", "--queue", queue)[1]]
    target = parse(os.environ["VIBEMQ_URL"])
    arguments = {"queue": queue, "older_than_ms": 1, "to": None, "limit": 20}
    file = PlanFile.of(f"{target.host}:{target.port}", arguments)
    file.save(ReplayPlan([(ids[0], ids[19])], 1 << 50))
    vibemq("admin", "dlq", "replay", "--queue", queue, "--limit", "5")
    words = ("dlq", "replay", "--queue", queue, "--older-than", "1ms", "--limit", "20")
    code, (told,), _ = vibemq("admin", *words)
    assert (code, told["resumed"], told["count"]) == (0, True, 15)
    assert file.load() is None
    left = [letter["dead_id"] for letter in vibemq("admin", "dlq", "ls", "--queue", queue)[1]]
    assert left == ids[20:]
    code, (told,), _ = vibemq("admin", *words)
    assert (code, told["resumed"], told["count"]) == (0, False, 10)


def test_jobs_are_listed_changed_and_followed(vibemq: Run, queue: str) -> None:
    bury(vibemq, queue, 20)
    words = ("dlq", "replay", "--queue", queue, "--rate", "0.1", "--note", "slowly", "--detach")
    number = vibemq("admin", *words)[1][0]["job"]
    assert vibemq("admin", "job", "ls", "--state", "running")[1][0]["note"] == "slowly"
    assert vibemq("admin", "job", "pause", number)[1][0]["state"] == "paused"
    code, (told,), err = vibemq("admin", "job", "follow", number)
    assert (code, told["state"]) == (6, "paused")
    assert f"vibemq-admin job resume {number}" in str(err)
    assert vibemq("admin", "job", "resume", number, "--rate", "0")[1][0]["rate"] is None
    code, (told,), _ = vibemq("admin", "job", "follow", number)
    assert (code, told["state"], told["done"]) == (0, "done", 20)
    assert vibemq("admin", "job", "show", number)[1][0]["events"][-1]["event"] == "done"
    assert vibemq("admin", "job", "cancel", number)[0] == 1
    assert vibemq("admin", "job", "show", "99999")[0] == 3
    assert vibemq("admin", "job", "show", "x")[0] == 2


def test_the_same_replay_again_leaves_a_held_job_held_and_its_rate_as_it_is(vibemq: Run, queue: str) -> None:
    bury(vibemq, queue, 20)
    words = ("dlq", "replay", "--queue", queue, "--canary", "2", "--rate", "100")
    number = vibemq("admin", *words, "--detach")[1][0]["job"]
    wait_until(lambda: info(vibemq, queue)["ready"] == 2)
    vibemq("sub", queue, "--count", "2", "--reject", "again")
    wait_until(lambda: vibemq("admin", "job", "show", number)[1][0]["state"] == "held")
    code, _, err = vibemq("admin", "dlq", "replay", "--queue", queue)
    assert code == 6
    assert "2 of the first 2 letters died again" in str(err)
    assert f"vibemq-admin job resume {number}" in str(err)
    job = vibemq("admin", "job", "show", number)[1][0]
    assert (job["state"], job["canary_passed"], job["done"], job["rate"]) == ("held", False, 2, 100)
    vibemq("admin", "job", "cancel", number)


def test_a_replay_that_goes_on_keeps_its_rate(vibemq: Run, queue: str) -> None:
    bury(vibemq, queue, 20)
    words = ("dlq", "replay", "--queue", queue, "--detach")
    number = vibemq("admin", *words, "--rate", "0.1")[1][0]["job"]
    vibemq("admin", "job", "pause", number)
    again = vibemq("admin", *words)[1][0]
    assert (again["job"], again["state"], again["rate"]) == (number, "running", 0.1)
    vibemq("admin", "job", "cancel", number)


def test_a_fresh_replay_cancels_the_one_before(vibemq: Run, queue: str) -> None:
    bury(vibemq, queue, 20)
    words = ("dlq", "replay", "--queue", queue)
    first = vibemq("admin", *words, "--rate", "0.1", "--detach")[1][0]["job"]
    code, (told,), _ = vibemq("admin", *words, "--fresh")
    assert (code, told["resumed"], told["job"] != first) == (0, False, True)
    assert vibemq("admin", "job", "show", first)[1][0]["state"] == "cancelled"


def test_a_backup_of_the_running_broker(vibemq: Run, queue: str, tmp_path: Path) -> None:
    publish(vibemq, queue, 10)
    assert vibemq("admin", "backup", tmp_path / "copy", "--dry-run")[0] == 0
    assert not (tmp_path / "copy").exists()
    assert vibemq("admin", "backup", tmp_path / "copy")[0] == 0
    assert vibemq("admin", "check", "--data-dir", tmp_path / "copy")[0] == 0


def test_the_doctor_finds_the_broker_and_the_owner(vibemq: Run, broker: BrokerProcess) -> None:
    code, (found,), _ = vibemq("admin", "doctor", "--data-dir", broker.data_dir)
    told = {check["check"]: check for check in found["checks"]}
    assert code == 0
    assert told["broker"]["level"] == told["versions"]["level"] == "ok"
    assert f"process {broker.pid}" in told["owner"]["text"]


def test_credentials_that_are_missing_or_wrong(vibemq: Run, tmp_path: Path) -> None:
    guarded = BrokerProcess(tmp_path / "guarded", storage="sqlite")
    (tmp_path / "guarded.toml").write_text('[auth]\ntoken = "open sesame"\n')
    anyio.run(guarded.start)
    try:
        codes = [vibemq("ping", "-n", "1", "--url", f"{guarded.url}{query}")[0] for query in ("", "?token=no")]
        assert codes == [4, 4]
        assert vibemq("ping", "-n", "1", "--url", f"{guarded.url}?token=open%20sesame")[0] == 0
    finally:
        anyio.run(guarded.stop)


def test_a_second_broker_is_refused_in_one_sentence(broker: BrokerProcess) -> None:
    command = [sys.executable, "-m", "vibemq", "serve", "--port", "0", "--no-http", "--data-dir", str(broker.data_dir)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VIBEMQ_")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error STORAGE_LOCKED: ")
    assert str(broker.pid) in last
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_one_sentence(broker: BrokerProcess, tmp_path: Path) -> None:
    port = str(broker.port)
    command = [sys.executable, "-m", "vibemq", "serve", "--port", port, "--no-http", "--data-dir", str(tmp_path / "d")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error ")
    assert port in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_demo_balances() -> None:
    command = [sys.executable, "-m", "vibemq", "demo", "--rows", "20000", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["ok"], told["lost"], told["published"], told["delays_equal"]) == (True, 0, 20_000, True)
    assert told["recovery"]["ready_seconds"] > 0


@pytest.mark.slow
def test_the_bench_tells_rates(vibemq: Run) -> None:
    code, (told,), _ = vibemq("bench", "--messages", "2000", "--size", "100", "--url", os.environ["VIBEMQ_URL"])
    assert code == 0
    assert told["publish_per_second"] > 0
    assert told["consume_and_ack_per_second"] > 0
    assert not [name for name in vibemq("admin", "queue", "ls")[1] if name["name"].startswith("vibemq-bench")]


def test_a_misspelt_queue_is_not_found_and_not_created(vibemq: Run, queue: str, tmp_path: Path) -> None:
    for words in (
        ("sub", queue),
        ("sub", queue, "--follow"),
        ("admin", "dlq", "ls", "--queue", queue),
        ("admin", "dlq", "replay", "--queue", queue),
        ("admin", "dlq", "replay", "--queue", queue, "--dry-run"),
        ("admin", "dlq", "purge", "--queue", queue, "--yes"),
        ("admin", "dlq", "export", tmp_path / "letters", "--queue", queue),
        ("admin", "queue", "info", queue),
        ("admin", "queue", "change", queue, "--max-attempts", "5"),
        ("admin", "queue", "rm", queue, "--yes"),
        ("admin", "group", "ls", queue),
    ):
        code, out, err = vibemq(*words)
        assert (code, out) == (3, []), words
        assert json.loads(err)["error"]["code"] == "QUEUE_NOT_FOUND", words
        assert vibemq("admin", "queue", "info", queue)[0] == 3, words
    assert not (tmp_path / "letters").exists()
    assert "--create" in vibemq("sub", queue)[2]
    assert vibemq("sub", queue, "--create", "--idle", "1ms")[0] == 0
    assert vibemq("admin", "queue", "info", queue)[0] == 0


def test_connections_are_shown_by_name(
    vibemq: Run, broker: BrokerProcess, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    url = f"{broker.url}?name=the%1B%5B31mchecker"
    _, (seen,), _ = vibemq("admin", "top", "--interval", "100ms", "--url", url)
    assert "the\x1b[31mchecker" in [one["name"] for one in seen["connections"]]
    shown = text(capfdbinary, "top", "--once", "--interval", "100ms", "--url", url)
    assert r"the\x1b[31mchecker" in shown
    assert "\x1b[31m" not in shown


def names(vibemq: Run) -> list[str]:
    _, (seen,), _ = vibemq("admin", "top", "--interval", "100ms")
    return [one["name"] for one in seen["connections"]]


@pytest.mark.parametrize(
    "words",
    [
        ("vibemq", "sub", "interrupted", "--create", "--follow"),
        ("vibemq", "sub", "interrupted", "--create", "--idle", "1h"),
        ("vibemq", "pub", "interrupted"),
        ("vibemq", "ping", "--count", "100000", "--interval", "1h"),
        ("vibemq-admin", "top", "--once", "--interval", "1h"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_ctrl_c_ends_a_verb_without_a_traceback(words: tuple[str, ...], vibemq: Run, broker: BrokerProcess) -> None:
    name = f"interrupted-{'-'.join(words[:2])}-{len(words)}"
    program = {"vibemq": "run", "vibemq-admin": "run_admin"}[words[0]]
    code = f"import sys; from vibemq.cli import {program}; sys.argv = {list(words)!r}; {program}()"
    # Standard input stays open: a program that waits for it must end all the same.
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"VIBEMQ_URL": f"{broker.url}?name={name}"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            while name not in [
                one["name"] for one in vibemq("admin", "top", "--interval", "100ms")[1][0]["connections"]
            ]:
                assert process.poll() is None, process.stderr.read()
            process.send_signal(signal.SIGINT)
            status = process.wait(60)
        finally:
            process.kill()
        errors = process.stderr.read().decode()
    assert status == 130
    assert "Traceback" not in errors
    assert "Error" not in errors


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("audit", "ls"), "audit.list requires a superuser, and user 'ann' is not one; connect as a superuser"),
        (
            ("queue", "info", "hidden"),
            "user 'ann' does not have the permission 'inspect' on queue 'hidden', which queue.info requires; ask",
        ),
        (
            ("dlq", "replay"),
            "user 'ann' does not have the permission 'purge' on every queue, which job.start requires; ask",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_refusal_names_the_operation_and_the_missing_permission(
    words: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "vibemq.toml"
    config.write_text(
        f'[auth.users.ann]\npassword_hash = "{hash_password("pass word")}"\n'
        '[[auth.users.ann.permissions]]\nqueues = "seen"\nactions = ["inspect"]\n'
    )
    with running(ledger.BrokerProcess(tmp_path / "data", arguments=("--config", str(config)))) as broker:
        url = f"vibemq://ann:pass%20word@127.0.0.1:{broker.port}"
        code = run_app(admin_main.app, "vibemq-admin", [*words, "--url", url])
    assert code == 4
    assert sentence in capsys.readouterr().err


def test_ctrl_c_during_the_import_is_quiet_too() -> None:
    code = (
        "import builtins, os, signal, sys\n"
        "from vibemq.cli import run\n"
        "real = builtins.__import__\n"
        "def interrupted(name, *rest, **more):\n"
        "    if name == 'typer':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(name, *rest, **more)\n"
        "builtins.__import__ = interrupted\n"
        "sys.argv = ['vibemq', 'ping']\n"
        "run()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_timeout_comes_from_the_environment_too(vibemq: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIBEMQ_TIMEOUT", "soon")
    code, _, err = vibemq("ping", "--count", 1)
    assert code == 2
    where = "option --timeout (from environment variable VIBEMQ_TIMEOUT) is not valid"
    assert f"{where}: 'soon' is not a duration; write 250ms" in err
    code, _, err = vibemq("ping", "--timeout", "later")
    assert code == 2
    assert "option --timeout is not valid: 'later' is not a duration" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ttl", "0"), "option --ttl is not valid: '0' is too short; give more than 0"),
        (("--priority", "99"), "priority"),
        (("--delay", "5"), "option --delay is not valid: '5' is not a duration"),
        (("--tls-ca", "none.pem"), "option --tls-ca is not valid: the file none.pem cannot be read"),
    ],
)
def test_a_message_that_cannot_be_published_is_a_mistake_in_usage(
    vibemq: Run, words: tuple[str, ...], said: str
) -> None:
    code, _, err = vibemq("pub", "q", "text", *words)
    assert code == 2
    assert said in err


@pytest.mark.parametrize("variable", ["VIBEMQ_TLS_CA", "VIBEMQ_TLS_CERT", "VIBEMQ_TLS_KEY"])
def test_a_missing_file_of_tls_is_named_with_its_variable(
    vibemq: Run, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "none.pem")
    code, _, err = vibemq("ping", "--count", 1)
    assert code == 2
    option = variable.removeprefix("VIBEMQ_").lower().replace("_", "-")
    assert f"option --{option} (from environment variable {variable}) is not valid: the file none.pem cannot be" in err


def test_without_a_terminal_only_flags_that_exist_are_named(vibemq: Run, tmp_path: Path) -> None:
    file = tmp_path / "letters.ndjson"
    file.touch()
    code, _, err = vibemq("admin", "dlq", "export", file)
    assert code == 2
    assert "--yes" in err
    assert "--dry-run" not in err


def test_the_doctor_tells_wrong_credentials_from_a_missing_broker(vibemq: Run, tmp_path: Path) -> None:
    toml = '[auth]\nsuperuser = "root"\nsuperuser_password = "pw"'
    with running(broker_on(tmp_path / "data", tmp_path, toml=toml)) as guarded:
        code, (found,), _ = vibemq("admin", "doctor", "--url", f"vibemq://127.0.0.1:{guarded.port}")
        assert code == 1
        [finding] = [finding for finding in found["checks"] if finding["check"] == "broker"]
        assert "correct the credentials" in finding["remedy"]


def test_only_reasons_of_dead_letters_are_known(vibemq: Run) -> None:
    code, _, err = vibemq("admin", "dlq", "ls", "--reason", "bored")
    assert (code, json.loads(err)["error"]["code"]) == (2, "USAGE")
    assert "choose one of max_attempts, expired, deserialization, rejected, overflow" in err
    for reason in ("overflow", "purged", "retention", "queue-deleted", "moved"):
        assert vibemq("admin", "dlq", "ls", "--reason", reason)[0] == 0


def test_sub_shows_as_many_as_were_asked_for_without_acknowledging(vibemq: Run, queue: str) -> None:
    with blocking.connect(os.environ["VIBEMQ_URL"]) as mq:
        mq.publish_many(queue, range(700))
        code, shown, _ = vibemq("sub", queue, "--no-ack", "--count", "600")
        assert (code, len(shown)) == (0, 600)
        info = mq.queue_info(queue)
        assert info is not None
        assert info.ready == 700


def test_sub_shows_only_what_matches(vibemq: Run, queue: str) -> None:
    for region in ("eu", "us"):
        vibemq("pub", queue, f"from {region}", "--header", f"region={region}")
    code, shown, _ = vibemq("sub", queue, "--where", 'region == "us"', "--idle", "200ms")
    assert (code, [message["headers"]["region"] for message in shown]) == (0, ["us"])
    code, _, error = vibemq("sub", queue, "--where", 'region = "us"')
    assert (code, "at character 8" in error) == (2, True)
