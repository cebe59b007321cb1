"""Queues and their messages: made, described, changed, looked at, removed."""

import json
import re
from pathlib import Path

import pytest

from tests.integration.cli_online.verbs import Run, info, publish, text
from tests.waiting import wait_until
from vibemq import sync
from vibemq.cli.admin import main as admin_main
from vibemq.cli.child import BrokerProcess
from vibemq.cli.entry import run_app


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


def test_queues_that_go_away(vibemq: Run, queue: str) -> None:
    create = ("admin", "queue", "create", queue)
    assert vibemq(*create, "--expires", "2h", "--auto-delete")[1][0]["created"] is True
    options = info(vibemq, queue)["options"]
    assert (options["expires_ms"], options["auto_delete"], options["exclusive"]) == (7_200_000, True, False)
    assert vibemq("admin", "queue", "change", queue, "--no-auto-delete", "--expires", "100ms")[0] == 0
    wait_until(lambda: vibemq("admin", "queue", "info", queue)[0] == 3)
    code, _, err = vibemq(*create, "--option", "exclusive=true")
    assert (code, "with the connection that creates it" in err) == (2, True)


def test_tables_for_people(vibemq: Run, queue: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    publish(vibemq, queue, 2)
    assert queue in text(capfdbinary, "queue", "ls")
    shown = text(capfdbinary, "queue", "info", queue)
    assert "durability" in shown
    assert "strong" in shown
    assert re.search(r"sequences +1 up to 2 *\n", shown)
    assert '{"n": 1}' in text(capfdbinary, "queue", "peek", queue)
    vibemq("sub", queue, "--count", "2")
    assert re.search(r"sequences +none; the next one is 3 *\n", text(capfdbinary, "queue", "info", queue))
    publish(vibemq, queue, 1)
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


def test_a_deletion_counts_what_consumers_hold(vibemq: Run, queue: str, broker: BrokerProcess) -> None:
    publish(vibemq, queue, 3)
    with sync.connect(broker.url) as mq, mq.subscribe(queue, prefetch=2) as messages:
        next(iter(messages))
        wait_until(lambda: info(vibemq, queue)["in_flight"] == 2)
        code, _, err = vibemq("admin", "queue", "rm", queue, "--yes", "--at-most", 2)
        assert (code, json.loads(err)["error"]["code"]) == (1, "PRECONDITION_FAILED")
        assert vibemq("admin", "queue", "rm", queue, "--yes", "--at-most", 3)[0] == 0


def test_peek_takes_nothing(vibemq: Run, queue: str) -> None:
    publish(vibemq, queue, 5, "--header", "k=v")
    assert vibemq("admin", "queue", "peek", queue, "--newer-than", "1h") == vibemq("admin", "queue", "peek", queue)
    assert vibemq("admin", "queue", "peek", queue, "--newer-than", "0", "--state", "ready")[1] == []
    _, found, _ = vibemq("admin", "queue", "peek", queue, "--limit", "2", "--from", "3")
    assert [(m["sequence"], m["payload"], m["headers"]["k"]) for m in found] == [
        (3, '{"n": 2}', "v"),
        (4, '{"n": 3}', "v"),
    ]
    wanted = found[1]["id"]
    for search in (("--id", wanted), ("--header", "k=v", "--id", wanted, "--state", "ready")):
        _, found, _ = vibemq("admin", "queue", "peek", queue, *search)
        assert [(m["sequence"], m["id"]) for m in found] == [(4, wanted)], search
    assert vibemq("admin", "queue", "peek", queue, "--header", "k=w")[1] == []
    assert len(vibemq("admin", "queue", "peek", queue, "--header", "k=v", "--limit", "3")[1]) == 3
    assert info(vibemq, queue)["ready"] == 5


def test_options_have_the_same_form_in_every_answer(
    vibemq: Run, queue: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Names as names and numbers as numbers, whatever the command and however they were given."""
    wanted = {"mode": "priority_based", "durability": "weak", "max_attempts": 1, "max_bytes": 5_000_000}
    words = ("--mode", "priority-based", "--durability", "WEAK", "--max-bytes", "5MB", "--option", "max_attempts=0")
    assert vibemq("admin", "queue", "create", queue, *words)[1][0]["options"] == wanted
    listed = next(q for q in vibemq("admin", "queue", "ls")[1] if q["name"] == queue)
    for options in (info(vibemq, queue)["options"], listed["options"]):
        assert {name: options[name] for name in wanted} == wanted
    changed = vibemq("admin", "queue", "change", queue, "--overflow", "redirect_to_dlq", "--ttl", "0")[1][0]
    exported = json.loads(text(capfdbinary, "definitions", "export"))["queues"]
    [one] = [one["options"] for one in exported if one["queue"] == queue]
    assert {name: one[name] for name in wanted} == wanted
    assert changed["changes"] == {"overflow": "redirect_to_dlq", "message_ttl_ms": None}


def test_other_options_are_told_in_words(vibemq: Run, queue: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    vibemq("admin", "queue", "create", queue, "--ttl", "1h")
    words = ("--mode", "broadcast", "--no-dead-letter", "--must-match")
    code, _, err = vibemq("admin", "queue", "create", queue, *words)
    assert code == 1
    assert json.loads(err)["error"]["message"] == (
        f"queue '{queue}' already exists with other options: mode is round_robin, not fan_out_with_ack; retention is "
        "settled, not log; message_ttl_ms is 3600000, not null; dead_letter is true, not false; lost_connection is "
        "fail, not release; delete the queue and create it again, or use another name"
    )
    code, [made], _ = vibemq("admin", "queue", "create", queue, *words[:2], "--ttl", "60m")
    assert (code, made["created"]) == (0, False)
    assert made["different"] == {"mode": "round_robin", "retention": "settled", "lost_connection": "fail"}
    assert run_app(admin_main.app, "vibemq-admin", ["queue", "create", queue, "--ttl", "0"]) == 0
    captured = capfdbinary.readouterr()
    assert captured.out.decode() == f"queue {queue}: exists\n"
    assert captured.err.decode() == "! it has other options, and keeps them: message_ttl_ms is 3600000, not null\n"
    told = text(capfdbinary, "queue", "change", queue, "--ttl", "0", "--overflow", "drop-oldest")
    assert "overflow: drop_newest → drop_oldest" in told
    assert "message_ttl_ms: 3600000 → null" in told


def test_a_mode_that_there_is_not_is_refused_with_all_that_there_are(vibemq: Run, queue: str) -> None:
    code, _, err = vibemq("admin", "queue", "create", queue, "--mode", "ring")
    assert code == 2
    assert "choose one of round_robin, fan_out_with_ack, fan_out_without_ack, priority_based, or broadcast" in err


def test_a_search_shows_payloads_as_a_peek_does(
    vibemq: Run, queue: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    vibemq("pub", queue, "a text", "b" * 2_000, "--header", "k=v")
    peeked = text(capfdbinary, "queue", "peek", queue)
    assert "a text" in peeked
    for search in (("--state", "ready"), ("--header", "k=v")):
        assert text(capfdbinary, "queue", "peek", queue, *search) == peeked


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


@pytest.mark.parametrize("name", [".", "..", "...", "-x", "--yes", "a.b", "ก" * 256])
def test_odd_names_behind_two_hyphens_are_names(name: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert "created" in text(capfdbinary, "queue", "create", "--", name)
    text(capfdbinary, "queue", "change", "--max-attempts", "7", "--", name)
    assert re.search(r"max_attempts\s+7", text(capfdbinary, "queue", "info", "--", name))
    text(capfdbinary, "queue", "purge", "--yes", "--at-most", "0", "--", name)
    text(capfdbinary, "queue", "rm", "--yes", "--", name)
    assert run_app(admin_main.app, "vibemq-admin", ["queue", "info", "--", name]) == 3


def test_a_dry_run_is_refused_as_the_change_is(vibemq: Run, queue: str) -> None:
    assert vibemq("admin", "queue", "create", queue, "--dry-run")[1][0]["created"] is True
    assert vibemq("admin", "queue", "info", queue)[0] == 3
    vibemq("admin", "queue", "create", queue)
    vibemq("pub", queue, "1", "2")
    other = ("--max-attempts", "77", "--must-match", "--dry-run")
    assert "QUEUE_EXISTS" in vibemq("admin", "queue", "create", queue, *other)[2]
    for verb in ("rm", "purge"):
        assert "PRECONDITION_FAILED" in vibemq("admin", "queue", verb, queue, "--at-most", "1", "--dry-run")[2]
        assert vibemq("admin", "queue", verb, queue, "--at-most", "2", "--dry-run")[0] == 0
    assert vibemq("admin", "queue", "change", queue, "--max-attempts", "7", "--dry-run")[0] == 0
    (shown,) = vibemq("admin", "queue", "info", queue)[1]
    assert (shown["ready"], shown["options"]["max_attempts"] == 7) == (2, False)
