"""`vibemq-admin message rm`, `queue export`, `queue import` and `queue move` against a broker of its own."""

import base64
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.names import queue_named_after
from vibemq import sync
from vibemq.cli.admin import main as admin_main
from vibemq.cli.admin.transfer.export_file import ExportWriter
from vibemq.cli.child import BrokerProcess
from vibemq.cli.entry import run_app
from vibemq.client import Client
from vibemq.errors import WrongIncarnation

Run = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data")
    anyio.run(process.start)
    yield process
    anyio.run(process.stop)


@pytest.fixture
def mq(broker: BrokerProcess) -> Iterator[sync.Client]:
    with sync.connect(broker.url) as client:
        yield client


@pytest.fixture
def admin(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run `vibemq-admin … --json`: (exit code, the object on stdout or {}, the sentence on stderr)."""
    monkeypatch.setenv("VIBEMQ_URL", broker.url)

    def run(*words: object) -> tuple[int, dict[str, Any], str]:
        code = run_app(admin_main.app, "vibemq-admin", [*map(str, words), "--json"])
        captured = capfdbinary.readouterr()
        err = captured.err.decode()
        return code, json.loads(captured.out or b"{}"), json.loads(err)["error"]["message"] if err else ""

    return run


@pytest.fixture
def queue(request: pytest.FixtureRequest, mq: sync.Client) -> str:
    """Of a name that no other test uses."""
    name = queue_named_after(request)
    mq.create_queue(name)
    return name


def waiting(mq: sync.Client, queue: str) -> list[int]:
    return [message["sequence"] for message in mq.admin("queue.peek", queue=queue, limit=1_000)]


# -- message rm -------------------------------------------------------------------------------------------------------


def test_a_pipe_is_imported_as_a_file_is(admin: Run, mq: sync.Client, queue: str, tmp_path: Path) -> None:
    """`queue import orders <(zcat orders.ndjson.gz)`: a pipe can be read once."""
    mq.publish_many(queue, [b"1", b"2"])
    file = tmp_path / "orders.ndjson"
    assert admin("queue", "export", queue, "--out", file)[0] == 0
    for content, code, count in ((file.read_bytes(), 0, 2), (b"no export\n", 2, 2)):
        reading, writing = os.pipe()
        os.write(writing, content)
        os.close(writing)
        pipe = f"/dev/fd/{reading}"
        try:
            ended, _, err = admin("queue", "import", f"{queue}.copy", pipe, "--create")
        finally:
            os.close(reading)
        assert (ended, mq.admin("queue.info", queue=f"{queue}.copy")["ready"]) == (code, count), err
    assert err.startswith(f"{pipe} line 1: it is not JSON")


def test_messages_are_removed_by_sequence_and_by_id(mq: sync.Client, admin: Run, queue: str) -> None:
    for number in range(1, 11):
        mq.publish(queue, {"n": number}, id=f"id-{number}")
    words = ("message", "rm", queue, "1", "3-4", "id-7", "--id", "id-9")
    assert admin(*words)[0] == 2
    code, would, _ = admin(*words, "--dry-run")
    assert (code, would["count"], waiting(mq, queue)) == (0, 5, list(range(1, 11)))
    code, done, _ = admin(*words, "--yes")
    assert (code, sorted(done["removed"]), done["not_found"]) == (0, [1, 3, 4, 7, 9], [])
    assert waiting(mq, queue) == [2, 5, 6, 8, 10]


def test_what_is_not_removed_is_named(mq: sync.Client, admin: Run, queue: str) -> None:
    for number in range(1, 6):
        mq.publish(queue, {"n": number}, id=f"id-{number}")
    (held,) = mq.fetch(queue, max=1)
    code, done, err = admin("message", "rm", queue, "id-1", "2", "99", "nobody", "--yes")
    assert (code, done["removed"], done["in_flight"], done["not_found"]) == (6, [2], [1], [99, "nobody"])
    assert err.startswith("1 removed; 1 is with a consumer")
    assert "99, nobody are not in queue" in err
    held.ack()
    code, done, err = admin("message", "rm", queue, "2", "--yes")
    assert (code, done["count"]) == (3, 0)
    assert waiting(mq, queue) == [3, 4, 5]


@pytest.mark.parametrize("words", [(), ("0",), ("5-2",), ("1-2000",), ("99999999999999999999",)])
def test_messages_that_cannot_be_named_are_refused(admin: Run, queue: str, words: tuple[str, ...]) -> None:
    code, done, err = admin("message", "rm", queue, *words, "--yes")
    assert (code, done) == (2, {})
    assert err


def test_a_missing_queue_is_named(admin: Run) -> None:
    code, _, err = admin("message", "rm", "no-such-queue", "1", "--yes")
    assert (code, "no-such-queue" in err) == (3, True)


def test_ids_are_found_in_a_queue_of_many_pages(mq: sync.Client, admin: Run, queue: str) -> None:
    for _ in range(4):
        mq.publish_many(queue, [{"n": n} for n in range(5_000)])
    mq.publish(queue, {}, id="the last")
    code, done, _ = admin("message", "rm", queue, "the last", "--yes")
    assert (code, done["removed"]) == (0, [20_001])


# -- queue export -----------------------------------------------------------------------------------------------------

BODIES = [b'{"n": 1}', "für".encode(), b"", b"\xff\x00\xfe", b"\x01" * 300_000, b"x" * 900_000]


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_everything_that_a_queue_keeps_is_exported(mq: sync.Client, admin: Run, queue: str, tmp_path: Path) -> None:
    (mq.publish(queue, {"n": 0}, id="held"), mq.publish(queue, {"n": 1}, id="gone"))
    held, gone = mq.fetch(queue, max=2)
    gone.ack()
    for number, body in enumerate(BODIES):
        mq.publish(queue, body, id=f"id-{number}", headers={"k": "v", "number": str(number)}, ttl=3600)
    later = mq.publish(queue, {"n": 2}, id="later", delay=3600)
    mq.ping()
    before = mq.queue_info(queue)
    file = tmp_path / "q.ndjson"
    code, told, _ = admin("queue", "export", queue, "--out", file)
    assert (code, told) == (0, {"queue": queue, "count": 8, "file": str(file)})
    head, *messages, tail = lines_of(file)
    assert (head["vibemq_export"], head["queue"], head["options"]["max_attempts"]) == (1, queue, 3)
    assert tail["messages"] == 8
    assert [message["sequence"] for message in messages] == [1, *range(3, 10)]
    assert [message["state"] for message in messages] == ["in_flight", *["ready"] * 6, "delayed"]
    assert [message.get("attempts", 0) for message in messages] == [1] + [0] * 7
    assert messages[-1]["deliver_at"] > messages[-1]["published_at"] + 3_500_000
    assert abs(messages[1]["expires_at"] - messages[1]["published_at"] - 3_600_000) < 1_000
    bodies = [m["payload"].encode() if "payload" in m else base64.b64decode(m["payload_base64"]) for m in messages]
    assert bodies[1:7] == BODIES
    assert [message["id"] for message in messages[1:7]] == [f"id-{number}" for number in range(6)]
    assert messages[6]["headers"].items() >= {"k": "v", "number": "5"}.items()
    assert (later.sequence, mq.queue_info(queue)) == (9, before)
    held.release()


def test_an_export_does_not_overwrite_unless_told_so(mq: sync.Client, admin: Run, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "q.ndjson"
    file.write_text("mine")
    assert admin("queue", "export", queue, "--out", file)[0] == 2
    assert file.read_text() == "mine"
    assert admin("queue", "export", "no-such-queue", "--out", file, "--yes")[0] == 3
    assert (file.read_text(), list(tmp_path.iterdir())) == ("mine", [file])
    assert admin("queue", "export", queue, "--out", file, "--yes")[1]["count"] == 0


def test_many_messages_are_exported_in_pages(mq: sync.Client, admin: Run, queue: str, tmp_path: Path) -> None:
    for _ in range(3):
        mq.publish_many(queue, [{"n": n} for n in range(1_000)])
    admin("message", "rm", queue, *range(2, 1_500, 2), "--yes")
    file = tmp_path / "q.ndjson"
    assert admin("queue", "export", queue, "-o", file)[1]["count"] == 3_000 - 749
    sequences = [message["sequence"] for message in lines_of(file)[1:-1]]
    assert sequences == [*range(1, 1_500, 2), *range(1_500, 3_001)]


@pytest.mark.parametrize("retention", ["settled", "log"])
def test_a_fan_out_queue_exports_each_message_once(
    mq: sync.Client, admin: Run, queue: str, tmp_path: Path, retention: str
) -> None:
    mq.delete_queue(queue)
    mq.create_queue(queue, mode="fan-out-with-ack", retention=retention)
    mq.fetch(queue, max=1, timeout=0, group="a")
    mq.fetch(queue, max=1, timeout=0, group="b")
    mq.publish_many(queue, [{"n": n} for n in range(6)])
    for group, count in (("a", 4), ("b", 2)):
        for message in mq.fetch(queue, max=count, group=group):
            message.ack()
    mq.ping()
    file = tmp_path / "q.ndjson"
    admin("queue", "export", queue, "-o", file)
    kept = [3, 4, 5, 6] if retention == "settled" else [1, 2, 3, 4, 5, 6]
    assert [message["sequence"] for message in lines_of(file)[1:-1]] == kept


# -- queue import -----------------------------------------------------------------------------------------------------

KEPT = (
    "id",
    "id_base64",
    "headers",
    "headers_base64",
    "payload",
    "payload_base64",
    "priority",
    "expires_at",
    "deliver_at",
)


def contents(admin: Run, queue: str, file: Path) -> list[dict[str, Any]]:
    """What an import must bring back of every message."""
    assert admin("queue", "export", queue, "-o", file, "--yes")[0] == 0
    return [{name: line[name] for name in KEPT if name in line} for line in lines_of(file)[1:-1]]


def test_an_export_is_imported_as_it_was(mq: sync.Client, admin: Run, queue: str, tmp_path: Path) -> None:
    mq.delete_queue(queue)
    mq.create_queue(queue, mode="priority-based", message_ttl_ms=7_200_000)
    for number, body in enumerate(BODIES):
        mq.publish(
            queue, body, id=f"id-{number}", headers={"k": "ü"}, priority=number % 4, ttl=3600 * (number % 3) or None
        )
    mq.publish(queue, {}, delay=3600)
    file, again = tmp_path / "q.ndjson", tmp_path / "again.ndjson"
    before = contents(admin, queue, file)
    words = ("queue", "import", f"{queue}-2", file)
    assert admin(*words)[0] == 3
    code, would, _ = admin(*words, "--create", "--dry-run")
    assert (code, would["imported"], mq.queue_info(f"{queue}-2")) == (0, 7, None)
    code, done, _ = admin(*words, "--create")
    assert (code, done["imported"], done["earlier"]) == (0, 7, 0)
    assert contents(admin, f"{queue}-2", again) == before
    info = mq.queue_info(f"{queue}-2")
    assert info is not None
    assert (info.options.message_ttl_ms, info.ready, info.delayed) == (7_200_000, 6, 1)
    assert admin(*words)[1] | {"imported": 0, "earlier": 7} == admin(*words, "--dry-run")[1] | {"dry_run": False}
    assert admin(*words, "--name", "once more")[1]["imported"] == 7


def test_a_full_queue_stops_an_import_which_goes_on_later(
    mq: sync.Client, admin: Run, queue: str, tmp_path: Path
) -> None:
    mq.publish_many(queue, [{"n": n} for n in range(1_000)])
    file, target = tmp_path / "q.ndjson", f"{queue}-2"
    admin("queue", "export", queue, "-o", file)
    mq.create_queue(target, max_messages=450, overflow="drop-oldest")
    code, done, err = admin("queue", "import", target, file)
    assert (code, done) == (6, {})
    assert err.startswith(f"450 of 1,000 messages are done with, then: queue '{target}' is full")
    assert admin("queue", "import", target, file)[0] == 6
    mq.change_queue(target, max_messages=0)
    code, done, _ = admin("queue", "import", target, file)
    assert (code, done["imported"], done["earlier"]) == (0, 550, 450)
    assert [m["payload"] for m in contents(admin, target, file)] == [f'{{"n":{n}}}' for n in range(1_000)]


def test_expired_messages_are_reported(mq: sync.Client, admin: Run, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "q.ndjson"
    with file.open("wb") as stream:
        head = {"queue": "q", "incarnation": "i", "options": {}, "exported_at": 1, "broker": "1"}
        writer = ExportWriter(stream, head)
        for number in range(4):
            writer.add({"id": f"m{number}", "payload": "{}", "expires_at": 1_000 * (number % 2)})
        writer.finish()
    code, would, _ = admin("queue", "import", queue, file, "--dry-run")
    assert (code, would["imported"], would["expired"]) == (0, 2, 2)
    code, done, _ = admin("queue", "import", queue, file)
    assert (code, done["imported"], done["expired"]) == (0, 2, 2)
    assert waiting(mq, queue) == [1, 2]


def test_a_file_with_a_bad_line_changes_nothing(mq: sync.Client, admin: Run, queue: str, tmp_path: Path) -> None:
    mq.publish_many(queue, [{"n": n} for n in range(10)])
    file = tmp_path / "q.ndjson"
    admin("queue", "export", queue, "-o", file)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    code, _, err = admin("queue", "import", queue, file)
    assert (code, "nothing was imported" in err) == (2, True)
    file.write_bytes(whole.replace(b'"n\\":7', b'"n\\":8'))
    assert "the checksum does not fit" in admin("queue", "import", queue, file)[2]
    assert waiting(mq, queue) == list(range(1, 11))
    assert admin("queue", "import", queue, tmp_path / "gone")[0] == 3


def test_standard_streams(broker: BrokerProcess, mq: sync.Client, queue: str, commands: Path) -> None:
    mq.publish_many(queue, [{"n": n} for n in range(5)])
    admin = f"{commands / 'vibemq-admin'} queue"
    where = f"--url {broker.url}"
    line = f"{admin} export {queue} {where} | {admin} import {queue}-2 --create {where}"
    subprocess.run(line, shell=True, check=True, capture_output=True, timeout=60)
    assert waiting(mq, f"{queue}-2") == [1, 2, 3, 4, 5]


def test_parts_of_large_messages_go_with_their_connection(broker: BrokerProcess, queue: str) -> None:
    begun = {"import_id": "f", "position": 0, "part_base64": "eyJp", "size": 2 << 20}
    for _ in range(40):
        with sync.connect(broker.url) as client:
            assert client.admin("queue.import", queue=queue, **begun)["left"] == 1


def test_what_an_exclusive_queue_had_stays_when_the_import_has_ended(
    broker: BrokerProcess, mq: sync.Client, admin: Run, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """It would belong to the connection of the command, and be deleted with it."""
    replies, file = queue_named_after(request), tmp_path / "replies.ndjson"
    saved = f"{replies}.saved"
    with sync.connect(broker.url) as owner:
        owner.create_queue(replies, exclusive=True, max_attempts=7)
        owner.publish_many(replies, [b"1", b"2"])
        assert admin("queue", "export", replies, "--out", file)[0] == 0
    words = ("queue", "import", saved, file, "--create")
    assert admin(*words, "--dry-run")[:2] == (0, imported(saved, 2, dry_run=True))
    assert mq.admin("queue.info", queue=saved) is None
    assert admin(*words)[:2] == (0, imported(saved, 2))
    found = mq.admin("queue.info", queue=saved)
    assert (found["ready"], found["options"]["exclusive"], found["options"]["max_attempts"]) == (2, False, 7)


def imported(queue: str, count: int, *, dry_run: bool = False, earlier: int = 0) -> dict[str, Any]:
    told = {"queue": queue, "messages": count, "imported": count - earlier, "expired": 0, "earlier": earlier}
    return {**told, "dry_run": dry_run}


# -- queue move -------------------------------------------------------------------------------------------------------


def test_messages_are_moved(mq: sync.Client, admin: Run, queue: str, tmp_path: Path) -> None:
    target = f"{queue}-2"
    assert admin("queue", "move", queue, target)[0] == 3
    mq.create_queue(target)
    for number, body in enumerate(BODIES):
        mq.publish(queue, body, id=f"id-{number}", headers={"k": "ü"}, priority=number % 4, ttl=3600)
    mq.publish(queue, {}, delay=3600)
    (held,) = mq.fetch(queue, max=1)
    before = contents(admin, queue, tmp_path / "a.ndjson")
    assert admin("queue", "move", queue, target, "--dry-run")[1]["count"] == 6
    assert admin("queue", "move", queue, target, "--limit", "2")[1]["count"] == 2
    code, done, _ = admin("queue", "move", queue, target)
    assert (code, done["count"]) == (0, 4)
    assert contents(admin, target, tmp_path / "b.ndjson") == before[1:]
    assert [m["id"] for m in contents(admin, queue, tmp_path / "c.ndjson")] == ["id-0"]
    held.release()
    mq.ping()
    assert admin("queue", "move", queue, target)[1]["count"] == 1
    assert admin("queue", "move", queue, target)[1]["count"] == 0


def test_a_move_stops_at_a_full_queue_and_goes_on_later(mq: sync.Client, admin: Run, queue: str) -> None:
    target = f"{queue}-2"
    mq.create_queue(target, max_messages=650, overflow="drop-oldest")
    mq.publish_many(queue, [{"n": n} for n in range(2_000)])
    code, done, err = admin("queue", "move", queue, target)
    assert (code, done) == (6, {})
    assert err.startswith(f"650 messages moved, then: queue '{target}' is full; run the same command again")
    code, _, err = admin("queue", "move", queue, target)
    assert (code, "no message was moved" in err) == (1, True)
    mq.change_queue(target, max_messages=0)
    assert admin("queue", "move", queue, target)[1]["count"] == 1_350
    peeked = mq.admin("queue.peek", queue=target, limit=300, **{"from": 500})
    assert [message["payload"] for message in peeked] == [f'{{"n":{n}}}' for n in range(499, 799)]
    info = mq.queue_info(target)
    assert info is not None
    assert info.ready == 2_000


def test_a_move_that_cannot_keep_its_promise_is_refused(mq: sync.Client, admin: Run, queue: str) -> None:
    mq.create_queue(f"{queue}-transient", durability="transient")
    mq.create_queue(f"{queue}-all", mode="broadcast")
    for source, target, reason in (
        (queue, queue, "is the source and the target"),
        (queue, f"{queue}-transient", "is transient"),
        (f"{queue}-all", queue, "is a fan-out"),
    ):
        code, _, err = admin("queue", "move", source, target)
        assert (code, reason in err) == (2, True)


# -- a queue that is made anew between two requests -------------------------------------------------------------------


@pytest.fixture
def made_anew(monkeypatch: pytest.MonkeyPatch, queue: str) -> None:
    """After the first page of a command somebody deletes the queue, makes it anew and publishes."""
    ask, done = Client.admin, list[str]()

    async def admin(self: Client, operation: str, **arguments: Any) -> Any:
        answer = await ask(self, operation, **arguments)
        if operation in ("queue.move", "message.remove") and not done:
            done.append(operation)
            await ask(self, "queue.delete", queue=queue)
            await ask(self, "queue.create", queue=queue)
            await self.publish_many(queue, [{"n": n} for n in range(9_000)])
        return answer

    monkeypatch.setattr(Client, "admin", admin)


@pytest.mark.usefixtures("made_anew")
def test_a_move_takes_nothing_of_a_queue_that_was_made_anew(mq: sync.Client, admin: Run, queue: str) -> None:
    mq.create_queue(f"{queue}-2")
    mq.publish_many(queue, [{"n": n} for n in range(600)])
    code, _, err = admin("queue", "move", queue, f"{queue}-2")
    assert (code, err.startswith("500 messages moved, then: "), "run the same command" in err) == (6, True, False)
    assert "was deleted and created again" in err
    assert len(waiting(mq, f"{queue}-2")) == 500
    info = mq.queue_info(queue)
    assert info is not None
    assert info.ready == 9_000


@pytest.mark.usefixtures("made_anew")
def test_a_removal_takes_nothing_of_a_queue_that_was_made_anew(mq: sync.Client, admin: Run, queue: str) -> None:
    for _ in range(2):
        mq.publish_many(queue, [{"n": n} for n in range(4_500)])
    code, _, err = admin("message", "rm", queue, "1", "--id", "nobody", "--yes")
    assert (code, "was deleted and created again" in err) == (6, True)
    assert ("1 message removed, then: " in err, "run the same command again" in err) == (True, False)
    info = mq.queue_info(queue)
    assert info is not None
    assert info.ready == 9_000


def test_neither_is_removed_nor_shown_what_a_queue_has_that_was_made_anew(mq: sync.Client, queue: str) -> None:
    mq.publish(queue, 1)
    before = mq.admin("queue.info", queue=queue)["incarnation"]
    mq.delete_queue(queue)
    mq.publish(queue, 2)
    for verb, arguments in (("queue.remove", {"runs": [[1, 1]]}), ("queue.peek", {})):
        with pytest.raises(WrongIncarnation, match="was deleted and created again"):
            mq.admin(verb, queue=queue, incarnation=before, **arguments)
    now = mq.admin("queue.info", queue=queue)["incarnation"]
    assert len(mq.admin("queue.peek", queue=queue, incarnation=now)) == 1
    assert mq.admin("queue.remove", queue=queue, runs=[[1, 1]], incarnation=now)["count"] == 1


def test_a_look_shows_the_priority_that_counts(mq: sync.Client, queue: str) -> None:
    queue += "-levels"
    mq.create_queue(queue, mode="priority_based")
    mq.publish(queue, 1, priority="low")
    # Of these it stands in no header.
    messages = [{"id": "a", "payload": "2", "priority": 3}, {"id": "b", "payload": "3"}]
    mq.admin("queue.import", queue=queue, import_id="x", position=0, messages=messages)
    shown = mq.admin("queue.peek", queue=queue)
    assert {each["payload"]: each["priority"] for each in shown} == {"1": 0, "2": 3, "3": 1}
