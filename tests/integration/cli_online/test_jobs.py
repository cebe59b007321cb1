"""Replays that go on, and `vibemq-admin job`."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import vibemq.sync as vibemq_sync
from tests.integration.cli_online.verbs import Run, bury, info
from tests.waiting import wait_until
from vibemq.cli.admin.dlq.replay_plan import PlanFile, ReplayPlan
from vibemq.client.address import parse
from vibemq.errors import JobStateConflict


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


def test_a_command_and_jobs_of_others_over_the_same_letters_double_nothing(vibemq: Run, queue: str) -> None:
    bury(vibemq, queue, 300)
    with vibemq_sync.connect(os.environ["VIBEMQ_URL"]) as mq:
        wish = {"kind": "replay", "filter": {"queue": queue}}
        others = [mq.admin("job.start", **wish, rate=rate)["job"] for rate in (5, 10)]
        code, (told,), _ = vibemq("admin", "dlq", "replay", "--queue", queue, "--rate", "200")
        assert (code, told["resumed"]) == (0, False)
        for job in others:
            # One that finds nothing more to do has ended.
            with contextlib.suppress(JobStateConflict):
                mq.admin("job.change", job=job, rate=0)
        wait_until(lambda: all(mq.admin("job.show", job=job)["state"] == "done" for job in others))
        ended = [mq.admin("job.show", job=job) for job in (*others, told["job"])]
    assert [job["selected"] for job in ended] == [job["done"] + job["skipped"] for job in ended]
    assert sum(job["done"] for job in ended) == 300
    assert told["count"] == ended[-1]["done"] > 0
    after = info(vibemq, queue)
    assert (after["ready"], after["dead"]) == (300, 0)
    _, found, _ = vibemq("sub", queue, "--count", "300")
    assert sorted(json.loads(message["payload"])["n"] for message in found) == list(range(300))


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
    (tried,) = vibemq("admin", "job", "cancel", number, "--dry-run")[1]
    assert (tried["state"], tried["dry_run"]) == ("cancelled", True)
    assert vibemq("admin", "job", "show", number)[1][0]["state"] == "running"
    assert vibemq("admin", "job", "resume", number, "--rate", "7", "--dry-run")[1][0]["rate"] == 7
    assert vibemq("admin", "job", "discard", number, "--dry-run")[0] == 1
    assert vibemq("admin", "job", "pause", number)[1][0]["state"] == "paused"
    code, (told,), err = vibemq("admin", "job", "follow", number)
    assert (code, told["state"]) == (6, "paused")
    assert f"vibemq-admin job resume {number}" in str(err)
    assert vibemq("admin", "job", "resume", number, "--rate", "0")[1][0]["rate"] is None
    code, (told,), _ = vibemq("admin", "job", "follow", number)
    assert (code, told["state"], told["done"]) == (0, "done", 20)
    (shown,) = vibemq("admin", "job", "show", number)[1]
    assert [event["event"] for event in shown["events"][-3:]] == ["resumed", "rate", "done"]
    assert vibemq("admin", "job", "cancel", number)[0] == 1
    assert vibemq("admin", "job", "show", "99999")[0] == 3
    code, _, err = vibemq("admin", "job", "show", "x")
    assert (code, json.loads(err)["error"]["message"]) == (2, "JOB must be the number of a job, such as '17', not 'x'")


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


@pytest.mark.parametrize(
    ("guard", "value"), [("--canary", "5"), ("--max-ready", "0"), ("--stop-after-dead-again", "1")]
)
def test_a_replay_does_not_go_on_without_a_guard_that_is_asked_for(
    vibemq: Run, queue: str, guard: str, value: str
) -> None:
    bury(vibemq, queue, 20)
    words = ("dlq", "replay", "--queue", queue, "--detach")
    number = vibemq("admin", *words, "--rate", "0.1", "--canary", "2")[1][0]["job"]
    vibemq("admin", "job", "pause", number)
    code, _, err = vibemq("admin", *words, guard, value)
    assert code == 2
    assert f"without {guard} {value}" in str(err)
    assert f"vibemq-admin job resume {number}" in str(err)
    assert vibemq("admin", "job", "show", number)[1][0]["state"] == "paused"
    again = vibemq("admin", *words, "--canary", "2")[1][0]
    assert (again["job"], again["state"], again["canary"]) == (number, "running", 2)
    vibemq("admin", "job", "cancel", number)


def test_a_replay_goes_on_with_no_more_than_at_most(vibemq: Run, queue: str) -> None:
    bury(vibemq, queue, 20)
    words = ("dlq", "replay", "--queue", queue, "--detach")
    number = vibemq("admin", *words, "--rate", "0.1")[1][0]["job"]
    vibemq("admin", "job", "pause", number)
    for more in ((), ("--dry-run",)):
        code, _, err = vibemq("admin", *words, "--at-most", "5", *more)
        assert (code, json.loads(err)["error"]["code"]) == (1, "PRECONDITION_FAILED")
        assert f"job {number} of the same selection" in err
    assert vibemq("admin", "job", "show", number)[1][0]["state"] == "paused"
    assert vibemq("admin", *words, "--at-most", "20")[1][0]["job"] == number
    vibemq("admin", "job", "cancel", number)


def test_a_fresh_replay_cancels_the_one_before(vibemq: Run, queue: str) -> None:
    bury(vibemq, queue, 20)
    words = ("dlq", "replay", "--queue", queue)
    first = vibemq("admin", *words, "--rate", "0.1", "--detach")[1][0]["job"]
    code, (told,), _ = vibemq("admin", *words, "--fresh")
    assert (code, told["resumed"], told["job"] != first) == (0, False, True)
    assert vibemq("admin", "job", "show", first)[1][0]["state"] == "cancelled"


def test_a_fresh_replay_that_is_refused_leaves_the_one_before_as_it_is(vibemq: Run, queue: str) -> None:
    bury(vibemq, queue, 20)
    words = ("dlq", "replay", "--queue", queue, "--detach")
    number = vibemq("admin", *words, "--rate", "0.1")[1][0]["job"]
    vibemq("admin", "job", "pause", number)
    code, _, err = vibemq("admin", *words, "--fresh", "--at-most", "0")
    assert (code, json.loads(err)["error"]["code"]) == (1, "PRECONDITION_FAILED")
    assert vibemq("admin", *words, "--fresh", "--dry-run")[0] == 0
    assert vibemq("admin", "job", "show", number)[1][0]["state"] == "paused"
    assert vibemq("admin", *words, "--at-most", "20")[1][0]["job"] == number
    vibemq("admin", "job", "cancel", number)
