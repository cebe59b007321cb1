"""Groups and cursors."""

import json
import re

import pytest

from tests.integration.cli_online.verbs import Run, publish
from vibemq.cli.admin import main as admin_main
from vibemq.cli.entry import run_app


def test_a_group_reads_a_log_from_the_beginning(vibemq: Run, queue: str) -> None:
    vibemq("admin", "queue", "create", queue, "--mode", "fan-out-with-ack", "--retention", "log")
    publish(vibemq, queue, 3)
    reading = ("sub", queue, "--from-beginning", "--group")
    assert [m["sequence"] for m in vibemq(*reading, "one", "--count", "3")[1]] == [1, 2, 3]
    assert vibemq(*reading, "one", "--idle", "300ms")[1] == []
    assert [m["sequence"] for m in vibemq(*reading, "two", "--count", "3")[1]] == [1, 2, 3]


def test_the_life_of_a_cursor(vibemq: Run, queue: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    vibemq("admin", "queue", "create", queue, "--mode", "fan-out-with-ack")
    vibemq("pub", queue, *map(str, range(10)))
    assert vibemq("admin", "cursor", "ls")[0] == 0, "a list that leaves out what is made next"
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
    for runs in (["6"], ["17", "20-25"]):
        code, [done], err = vibemq("admin", "group", "quarantine", queue, "etl", *runs, "--yes")
        assert (code, done["quarantined"], json.loads(err)["error"]["code"]) == (3, 0, "MESSAGE_NOT_FOUND")
        assert f"not in queue '{queue}', or not waiting for group 'etl' any more" in err
    told = [cursor for cursor in vibemq("admin", "cursor", "ls")[1] if cursor["queue"] == queue]
    assert [cursor["owner"] for cursor in told] == ["vibemq-admin"]
    assert run_app(admin_main.app, "vibemq-admin", ["cursor", "ls", "--queue", queue]) == 0
    heading, line = capfdbinary.readouterr().out.decode().splitlines()
    assert heading.split()[:4] == ["queue", "group", "user", "reader"]
    assert line.split()[:4] == [queue, "etl", "–", "vibemq-admin"]
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
    capfdbinary.readouterr()
    assert run_app(admin_main.app, "vibemq-admin", ["group", "seek", queue, "etl", "sequence:99", "--yes"]) == 0
    assert "messages 11 to 98 are not for this group" in capfdbinary.readouterr().err.decode()
    vibemq("admin", "group", "seek", queue, "etl", "latest", "--yes")
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


def test_what_is_tried_is_told_and_not_done(vibemq: Run, queue: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    vibemq("admin", "queue", "create", queue, "--mode", "fan-out-with-ack")
    vibemq("pub", queue, *"abcde")

    def said(*words: str) -> str:
        assert run_app(admin_main.app, "vibemq-admin", ["group", *words, "--dry-run"]) == 0
        return capfdbinary.readouterr().out.decode().strip()

    start = ("--start", "sequence:3")
    assert said("create", queue, "etl", *start) == f"group etl of queue {queue}: would read from 3"
    assert (
        said("filter", queue, "eu", "--where", "n == 1") == f"group eu of queue {queue}: would have what matches n == 1"
    )
    code, [tried], _ = vibemq("admin", "group", "create", queue, "etl", *start, "--hold", "7s", "--dry-run")
    assert (code, tried["dry_run"], tried["committed"], tried["hold_ms"]) == (0, True, 3, 7_000)
    assert [group["group"] for group in vibemq("admin", "group", "ls", queue)[1]] == [""]
    _, [made], _ = vibemq("admin", "group", "create", queue, "etl", *start)
    assert made["committed"] == 3
    assert said("set", queue, "etl", "--hold", "7s") == f"group etl of queue {queue}: would be changed"
    assert said("seek", queue, "etl", "sequence:5") == f"group etl of queue {queue}: would be moved from 3 to 5"
    assert said("quarantine", queue, "etl", "3-4") == f"2 messages of queue {queue} would be quarantined for group etl"
    assert said("rm", queue, "etl") == f"group etl of queue {queue} would be deleted; it had 3 waiting messages"
    code, [shown], _ = vibemq("admin", "group", "show", queue, "etl")
    assert (shown["committed"], shown["hold_ms"], shown["quarantined"]) == (3, 0, [])
    assert vibemq("admin", "group", "set", queue, "none", "--hold", "7s", "--dry-run")[0] == 3
    assert vibemq("admin", "group", "quarantine", queue, "none", "3", "--dry-run")[0] == 3


def test_an_ordinary_group_is_listed_sought_and_removed(
    vibemq: Run, queue: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    vibemq("admin", "queue", "create", queue, "--mode", "fan-out-with-ack", "--retention", "log")
    vibemq("pub", queue, "1", "2")
    vibemq("sub", queue, "--group", "people", "--from-beginning", "--count", "2")
    [group] = [group for group in vibemq("admin", "group", "ls", queue)[1] if group["group"] == "people"]
    assert (group["cursor"], group["backlog_messages"]) == (False, 0)
    assert vibemq("admin", "group", "seek", queue, "people", "earliest", "--yes")[0] == 0
    [group] = [group for group in vibemq("admin", "group", "ls", queue)[1] if group["group"] == "people"]
    assert group["backlog_messages"] == 2
    capfdbinary.readouterr()
    assert run_app(admin_main.app, "vibemq-admin", ["group", "seek", queue, "people", "sequence:9", "--yes"]) == 0
    assert "messages 3 to 8 are not for this group" in capfdbinary.readouterr().err.decode()
    assert vibemq("admin", "group", "rm", queue, "people", "--yes")[0] == 0
