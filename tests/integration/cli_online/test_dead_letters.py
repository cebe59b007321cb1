"""`vibemq-admin dlq`: list, show, export, purge, edit, replay."""

import json
import stat
from pathlib import Path

import pytest

from tests.integration.cli_online.verbs import Run, bury, info, text
from vibemq.cli.output import Output


def test_dead_letters_are_listed_shown_and_exported(
    vibemq: Run, queue: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
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
    shown = text(capfdbinary, "dlq", "preview", "--queue", queue)
    assert f"5 dead letters go to queue '{queue}', which has no consumers." in shown
    assert "A replay puts" not in shown

    _, (letter,), _ = vibemq("admin", "dlq", "show", wanted)
    assert (letter["queue"], letter["payload"]) == (queue, '{"n": 0}')
    assert vibemq("admin", "dlq", "show", 999_999)[0] == 3
    assert vibemq("admin", "dlq", "show", wanted, "--decode", "zip")[0] == 2
    assert vibemq("admin", "dlq", "show", wanted, "--decode", "gzip")[0] == 2
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


def test_purging_dead_letters(vibemq: Run, queue: str) -> None:
    bury(vibemq, queue, 4)
    assert vibemq("admin", "dlq", "purge")[0] == 2
    assert vibemq("admin", "dlq", "purge", "--queue", queue)[0] == 2
    assert vibemq("admin", "dlq", "purge", "--queue", queue, "--dry-run")[1][0]["count"] == 4
    assert vibemq("admin", "dlq", "purge", "--queue", queue, "--limit", "3", "--yes")[1][0]["count"] == 3
    assert info(vibemq, queue)["dead"] == 1


def test_what_died_behind_the_question_of_a_purge_stays(
    vibemq: Run, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(vibemq, queue, 4, "seen")
    first = vibemq("admin", "dlq", "ls", "--queue", queue, "--limit", 1)[1][0]["dead_id"]
    asked: list[str] = []

    def meanwhile(out: Output, question: str, *, yes: bool, can_dry_run: bool = True) -> None:
        if not asked:
            asked.append(question)
            # Another operator takes some, and others die.
            vibemq("admin", "dlq", "purge", "--id", f"{first}-{first + 1}", "--yes")
            bury(vibemq, queue, 2, "unseen")

    monkeypatch.setattr(Output, "confirm", meanwhile)
    code, (told,), _ = vibemq("admin", "dlq", "purge", "--queue", queue)
    assert (code, told["count"]) == (0, 2)
    assert [letter["error"] for letter in vibemq("admin", "dlq", "ls", "--queue", queue)[1]] == ["unseen"] * 2
    assert asked[0].startswith("Delete 4 dead letters with queue=")


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
    (tried,) = vibemq("admin", "dlq", "edit", str(first), *words, "--dry-run")[1]
    (done,) = vibemq("admin", "dlq", "edit", str(first), *words)[1]
    assert done["edited"] == ["payload", "headers"]
    assert tried == {**done, "dry_run": True}
    assert vibemq("admin", "dlq", "edit", str(second), "--queue", queue)[0] == 2
    assert vibemq("admin", "dlq", "edit", str(second), "--queue", queue, "--to", queue)[1][0]["edited"] == []
    assert vibemq("admin", "dlq", "edit", str(second), "--to", queue)[0] == 3
    assert vibemq("admin", "dlq", "edit", str(second), "--no-headers", "--header", "a=b")[0] == 2
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


def test_only_reasons_of_dead_letters_are_known(vibemq: Run) -> None:
    code, _, err = vibemq("admin", "dlq", "ls", "--reason", "bored")
    assert (code, json.loads(err)["error"]["code"]) == (2, "USAGE")
    assert "choose one of max_attempts, expired, deserialization, rejected, overflow" in err
    for reason in ("overflow", "purged", "retention", "queue-deleted", "moved"):
        assert vibemq("admin", "dlq", "ls", "--reason", reason)[0] == 0


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
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    other = tmp_path / "other"
    code, _, err = vibemq("admin", "dlq", "export", other, "--queue", "nosuch", "--job")
    assert (code, json.loads(err)["error"]["code"]) == (3, "QUEUE_NOT_FOUND")
    assert not other.exists()
    for wrong in ((), (file, "--rate", "5"), (file, "--note", "n"), (file, "--detach", "--yes")):
        assert vibemq("admin", "dlq", "export", *wrong, "--queue", queue)[0] == 2
    assert info(vibemq, queue)["dead"] == 4
