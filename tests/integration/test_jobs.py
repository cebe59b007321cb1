"""Jobs on a running broker: replays and purges that go on by themselves, their states, and edited letters."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import vibemq
from tests.integration.jobs import Started, guarded, job_of, reached, started, take
from tests.integration.test_operations import dead
from tests.integration.test_server_broker import settings
from tests.waiting import until
from vibemq.engine.jobs.job_table import RUNNING_MAX
from vibemq.errors import (
    IdempotencyConflict,
    InvalidOptions,
    InvalidPayload,
    JobStateConflict,
    MessageNotFound,
    PreconditionFailed,
    QueueFull,
    QueueNotFound,
)
from vibemq.model.jobs.job import KEPT_MS, JobState
from vibemq.operations.jobs import counting, edits
from vibemq.operations.jobs.counting import count_letters
from vibemq.server.broker import Broker
from vibemq.server.jobs.letters import LetterPage, LetterPages
from vibemq.server.jobs.worker import JobWorker
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio
__all__ = ["guarded", "started"]


async def test_a_job_replays_what_fits_and_what_dies_later_never_joins(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 300)
    await dead(mq, broker, "other", 5)
    job = await mq.admin("job.start", kind="replay", filter={"queue": "q"}, rate=1, note="why")
    await mq.publish_many("q", [b"later"] * 4)
    for message in await take(mq, "q", 5):
        message.reject("later")
    await until(lambda: (info := broker.queue_info("q")) is not None and info.dead == 304)
    await mq.admin("job.change", job=job["job"], rate=0)
    job = await reached(mq, job["job"], "done")
    assert (job["selected"], job["done"], job["skipped"], job["damaged"], job["dead_again"]) == (300, 300, 0, 0, 1)
    assert (job["note"], job["user"], job["next_id"] > job["last_id"]) == ("why", "anonymous", True)
    q, other = await mq.queue_info("q"), await mq.queue_info("other")
    assert q is not None
    assert other is not None
    assert (q.ready, q.dead, other.dead) == (299, 5, 5)
    assert [event["event"] for event in job["events"]] == ["created", "started", "rate", "done"]


async def test_letters_go_where_each_died_or_where_they_are_told(started: Started) -> None:
    broker, mq = started
    for queue in ("a", "b"):
        await dead(mq, broker, queue, 60)
    job = await mq.admin("job.start", kind="replay", filter={"header": {}}, limit=90)
    assert (await reached(mq, job["job"], "done"))["done"] == 90
    await mq.create_queue("c")
    job = await mq.admin("job.start", kind="replay", to="c")
    assert (await reached(mq, job["job"], "done"))["done"] == 30
    counts = [info.ready for name in "abc" if (info := broker.queue_info(name)) is not None]
    assert (sum(counts), counts[2]) == (120, 30)


@pytest.mark.parametrize("bound", [{"limit": 6}, {"canary": 6}])
async def test_the_oldest_letters_of_all_queues_go_first(started: Started, bound: dict[str, int]) -> None:
    broker, mq = started
    for _ in range(5):
        for queue in ("a", "b"):
            await dead(mq, broker, queue, 1)
    number = (await mq.admin("job.start", kind="replay", **bound))["job"]
    await reached(mq, number, "done" if "limit" in bound else "waiting", done=6)
    infos = [broker.queue_info(queue) for queue in ("a", "b")]
    assert [info.ready for info in infos if info is not None] == [3, 3]


async def test_a_job_purges_by_facts_and_by_messages(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 20)
    letters = (await mq.admin("dlq.list", limit=20))["letters"]
    wanted = {"message_id": letters[3]["id"]}
    job = await mq.admin("job.start", kind="purge_dead", filter=wanted)
    job = await reached(mq, job["job"], "done")
    assert (job["done"], job["examined"], job["selected"]) == (1, 20, None)
    job = await mq.admin("job.start", kind="purge_dead", filter={"reason": "rejected"}, at_most=19)
    assert (await reached(mq, job["job"], "done"))["done"] == 19
    assert (await mq.admin("dlq.list"))["letters"] == []


async def test_overlapping_jobs_double_nothing(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 400)
    jobs = [await mq.admin("job.start", kind="replay", filter={"queue": "q"}) for _ in range(3)]
    ended = [await reached(mq, job["job"], "done") for job in jobs]
    assert sum(job["done"] for job in ended) == 400
    assert all(job["done"] + job["skipped"] == job["selected"] for job in ended)
    info = await mq.queue_info("q")
    assert info is not None
    assert (info.ready, info.dead) == (400, 0)


async def test_letters_that_go_before_the_job_meets_them_are_counted(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 20)
    letters = (await mq.admin("dlq.list", queue="q"))["letters"]
    job = await mq.admin("job.start", kind="replay", filter={"queue": "q"}, rate=1)
    await mq.admin("job.change", job=job["job"], state="paused")
    gone = await mq.admin("dlq.purge", ids=[letter["dead_id"] for letter in letters[5:15]])
    await mq.admin("job.change", job=job["job"], state="running", rate=0)
    ended = await reached(mq, job["job"], "done")
    assert gone["count"] == 10
    assert (ended["selected"], ended["done"], ended["skipped"]) == (20, 10, 10)


async def test_a_rate_follows_the_clock_and_changes_at_once(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 300)
    number = (await mq.admin("job.start", kind="replay", rate=100))["job"]
    for _ in range(20):
        await until(lambda: _sleeps(broker))
        broker.advance(0.05)
    await until(lambda: _sleeps(broker))
    done = (await job_of(mq, number))["done"]
    assert 95 <= done <= 110
    await mq.admin("job.change", job=number, rate=10)
    for _ in range(20):
        await until(lambda: _sleeps(broker))
        broker.advance(0.1)
    await until(lambda: _sleeps(broker))
    assert done + 18 <= (await job_of(mq, number))["done"] <= done + 23
    await mq.admin("job.change", job=number, rate=0)
    assert (await reached(mq, number, "done"))["done"] == 300


def _sleeps(broker: TimedBroker) -> bool:
    """Every job waits for its time."""
    workers = broker._running().job_runner._workers.values()
    return bool(workers) and all(worker.due is not None and not worker._nudge.is_set() for worker in workers)


async def test_pause_resume_and_cancel(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 200)
    number = (await mq.admin("job.start", kind="replay", rate=20))["job"]
    await reached(mq, number, "running", done=1)
    paused = await mq.admin("job.change", job=number, state="paused")
    broker.advance(60)
    assert (await job_of(mq, number))["done"] == paused["done"]
    await mq.admin("job.change", job=number, state="running", rate=0)
    await reached(mq, number, "done", done=200)
    with pytest.raises(JobStateConflict):
        await mq.admin("job.change", job=number, state="paused")
    await dead(mq, broker, "q", 5)
    await mq.admin("job.start", kind="replay", rate=1)
    jobs = (await mq.admin("job.list", limit=1))["jobs"]
    cancelled = await mq.admin("job.change", job=jobs[0]["job"], state="cancelled")
    assert cancelled["state"] == "cancelled"
    assert [job["job"] for job in (await mq.admin("job.list", state="cancelled"))["jobs"]] == ["2"]
    assert [job["job"] for job in (await mq.admin("job.list", after="2"))["jobs"]] == ["1"]


async def test_a_job_goes_on_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    async with TimedBroker(tmp_path / "data") as broker, vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "q", 100)
        number = (await mq.admin("job.start", kind="replay", rate=10, limit=80))["job"]
        await reached(mq, number, "running", done=1)
    async with Broker(tmp_path / "data") as again, vibemq.connect(again.url) as mq:
        assert (await job_of(mq, number))["state"] == "running"
        await mq.admin("job.change", job=number, rate=0)
        job = await reached(mq, number, "done")
        assert (job["done"], job["examined"]) == (80, 80)
        info = await mq.queue_info("q")
        assert info is not None
        assert (info.ready, info.dead) == (80, 20)


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
async def test_a_job_takes_no_letter_that_died_after_it_was_made_when_its_own_were_not_kept(
    tmp_path: Path, provider: str
) -> None:
    def made() -> Broker:
        return Broker(tmp_path / "data") if provider == "lmdb" else Broker(settings=settings(tmp_path / "data"))

    async with made() as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("t", durability="transient")
        await dead(mq, broker, "t", 20)
        number = (await mq.admin("job.start", kind="purge_dead", rate=0.1, filter={"from_id": 3}))["job"]
        job = await mq.admin("job.change", job=number, state="paused")
        await dead(mq, broker, "t", 5)
        told = (await mq.admin("dlq.list"))["letters"][-1]["dead_id"]
    async with made() as again, vibemq.connect(again.url) as mq:
        await dead(mq, again, "s", 10)
        ids = [letter["dead_id"] for letter in (await mq.admin("dlq.list"))["letters"]]
        assert len(ids) == 10
        assert min(ids) > told > job["last_id"]
        await mq.admin("job.change", job=number, state="running", rate=0)
        await reached(mq, number, "done")
        assert len((await mq.admin("dlq.list"))["letters"]) == 10


REFUSED: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"kind": "replay", "to": "missing"}, QueueNotFound),
    ({"kind": "replay", "filter": {"reason": "none"}}, InvalidOptions),
    ({"kind": "purge_dead", "to": "q"}, InvalidOptions),
    ({"kind": "purge_dead", "canary": 3}, InvalidOptions),
    ({"kind": "replay", "filter": {"ids": list(range(10_001))}}, InvalidOptions),
    ({"kind": "replay", "filter": {"unknown": 1}}, InvalidPayload),
    ({"kind": "replay", "rate": -1}, InvalidPayload),
    ({"kind": "replay", "limit": 0}, InvalidPayload),
    ({"kind": "resend"}, InvalidPayload),
    ({"kind": "replay", "at_most": 9}, PreconditionFailed),
    ({"kind": "replay", "filter": {"queue": "q", "error": "bad"}, "at_most": 9}, PreconditionFailed),
]


async def test_what_cannot_be_done_starts_nothing(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 10)
    for given, error in REFUSED:
        with pytest.raises(error):
            await mq.admin("job.start", **given)
    assert (await mq.admin("job.list"))["jobs"] == []


async def test_one_key_is_one_job(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 10)
    asked: list[Awaitable[Any]] = [mq.admin("job.start", kind="replay", limit=3, key="k") for _ in range(4)]
    assert {job["job"] for job in await asyncio.gather(*asked)} == {"1"}
    with pytest.raises(IdempotencyConflict):
        await mq.admin("job.start", kind="replay", limit=4, key="k")
    assert (await reached(mq, "1", "done"))["done"] == 3
    again = await mq.admin("job.start", kind="purge_dead", key="p", at_most=7)
    await reached(mq, again["job"], "done")
    await dead(mq, broker, "q", 9)
    # The answer to a request that was lost is given again, whatever has died since.
    assert (await mq.admin("job.start", kind="purge_dead", key="p", at_most=7))["job"] == again["job"]


async def test_jobs_that_ended_long_ago_are_forgotten_in_a_quiet_broker(started: Started) -> None:
    broker, mq = started
    for _ in range(3):
        number = (await mq.admin("job.start", kind="purge_dead"))["job"]
        await reached(mq, number, "done")
    broker.advance(KEPT_MS / 1000 + 1)
    await until(lambda: list(broker._running().engine.jobs.by_id) == [3])


async def test_an_edited_letter_goes_and_its_message_comes(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 2)
    (letter, _) = (await mq.admin("dlq.list"))["letters"]
    told = await mq.admin("dlq.edit", dead_id=letter["dead_id"], text='{"n": 7}', headers={"tenant": "x"})
    assert told["edited"] == ["payload", "headers"]
    assert told["changes"]["headers_changed"] == ["tenant"]
    assert told["changes"]["sha256_before"] != told["changes"]["sha256_after"]
    (message,) = await take(mq, "q", 1)
    assert (message.id, message.json(), message.headers["tenant"]) == (letter["id"], {"n": 7}, "x")
    assert message.headers["vibemq-edited"] == "payload,headers"
    assert message.headers["vibemq-replay-of"] == str(letter["dead_id"])
    with pytest.raises(MessageNotFound):
        await mq.admin("dlq.edit", dead_id=letter["dead_id"], text="again")
    assert [each["dead_id"] for each in (await mq.admin("dlq.list"))["letters"]] == [letter["dead_id"] + 1]


async def test_an_edit_that_cannot_be_done_changes_nothing(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 1)
    await mq.create_queue("full", overflow="drop-oldest", max_messages=1)
    await mq.publish("full", b"x")
    for given, error in (
        ({"payload": "no base64!"}, InvalidPayload),
        ({"payload": "AA==", "text": "x"}, InvalidPayload),
        ({"text": "x", "to": "missing"}, QueueNotFound),
        ({"text": "x", "to": "full"}, QueueFull),
        ({"text": "x", "queue": "full"}, MessageNotFound),
    ):
        with pytest.raises(error):
            await mq.admin("dlq.edit", dead_id=1, **given)
    info = await mq.queue_info("q")
    assert info is not None
    assert (info.dead, info.ready) == (1, 0)


async def test_a_fault_of_the_broker_ends_the_job_and_not_the_broker(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 10)
    monkeypatch.setattr("vibemq.server.jobs.letters.LetterPages.read", lambda pages, cursor: 1 / 0)
    number = (await mq.admin("job.start", kind="replay"))["job"]
    await reached(mq, number, "failed", "its log has the reason")


async def test_large_jobs_are_listed_in_pages_that_fit(started: Started) -> None:
    _, mq = started
    header = {f"header-{number}": "x" * 1_000 for number in range(200)}
    ids = list(range(10**12, 10**12 + 10_000))
    for _ in range(6):
        await mq.admin("job.start", kind="purge_dead", filter={"ids": ids, "header": header})
    found: list[dict[str, Any]] = []
    place: dict[str, Any] = {}
    pages = 0
    while pages == 0 or place["after"] is not None:
        page = await mq.admin("job.list", **place)
        found, place, pages = found + page["jobs"], {"after": page["next"]}, pages + 1
    assert pages == 2
    assert [job["job"] for job in found] == ["6", "5", "4", "3", "2", "1"]
    assert found[0]["filter"] == {"header": header, "id_count": 10_000}
    assert (await job_of(mq, "1"))["filter"]["ids"] == ids


async def test_a_large_letter_is_edited_beside_the_loop(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, mq = started
    on_loop: list[str] = []

    def told(name: str) -> Callable[..., Any]:
        work = getattr(edits, name)

        def tell(*arguments: Any, **named: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                on_loop.append(name)
            return work(*arguments, **named)

        return tell

    await mq.create_queue("q")
    large = bytes(2 << 20)
    for _ in range(2):
        await mq.publish("q", large)
    for message in await take(mq, "q", 2):
        await message.reject("bad")
    await until(lambda: (now := broker.queue_info("q")) is not None and now.dead == 2)
    for name in ("RowView", "pack_row", "sha256", "_payload_of"):
        monkeypatch.setattr(edits, name, told(name))
    await mq.admin("dlq.edit", dead_id=1, headers={"a": "b"})
    await mq.admin("dlq.edit", dead_id=2, text="short")
    assert on_loop == []
    assert [message.payload for message in await take(mq, "q", 2)] == [large, b"short"]


async def test_what_dies_during_the_count_is_not_counted(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 5)
    count = count_letters

    async def slowly(*arguments: Any, **named: Any) -> int:
        await dead(mq, broker, "q", 3)
        return await count(*arguments, **named)

    monkeypatch.setattr("vibemq.operations.jobs.requests.count_letters", slowly)
    for filters in ({"queue": "q"}, {"error": "bad"}):
        started_job = await mq.admin("job.start", kind="purge_dead", filter=filters, at_most=5, rate=0.1)
        assert started_job["selected"] == 5
        await mq.admin("job.change", job=started_job["job"], state="cancelled")
        await mq.admin("dlq.purge")
        await dead(mq, broker, "q", 5)


async def test_letters_that_die_behind_the_look_at_groups_are_not_subtracted(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 3)
    by_groups = counting._by_groups

    async def slowly(*arguments: Any) -> tuple[int, int] | None:
        found = await by_groups(*arguments)
        await dead(mq, broker, "q", 5)
        return found

    monkeypatch.setattr(counting, "_by_groups", slowly)
    started_job = await mq.admin("job.start", kind="replay")
    assert started_job["selected"] == 3
    assert (await reached(mq, started_job["job"], "done"))["done"] == 3


async def test_letters_up_to_an_id_are_counted_with_their_groups(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 5)
    last = max(letter["dead_id"] for letter in (await mq.admin("dlq.list"))["letters"])
    for to_id, count in ((last, 5), (last - 2, 3), (last + 9, 5), (0, 0)):
        for at_most in ({}, {"at_most": 5}):
            filters = {"queue": "q", "to_id": to_id}
            begun = await mq.admin("job.start", kind="export_dead", filter=filters, **at_most)
            assert begun["selected"] == count


async def test_a_queue_that_never_was_is_refused_and_one_without_letters_is_done(started: Started) -> None:
    _, mq = started
    for more in ({}, {"header": {"k": "v"}}, {"replayed": True}):
        with pytest.raises(QueueNotFound):
            await mq.admin("job.start", kind="purge_dead", filter={"queue": "misspelt", **more})
    await mq.create_queue("empty")
    number = (await mq.admin("job.start", kind="purge_dead", filter={"queue": "empty"}))["job"]
    await reached(mq, number, "done", done=0)


async def test_jobs_that_wait_keep_no_other_from_its_work(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "gone", 5)
    await dead(mq, broker, "q", 5)
    await mq.delete_queue("gone")
    for _ in range(RUNNING_MAX + 1):
        await mq.admin("job.start", kind="replay", filter={"queue": "gone"})
    number = (await mq.admin("job.start", kind="replay", filter={"queue": "q"}))["job"]
    assert (await reached(mq, number, "done"))["done"] == 5
    assert all(job["state"] == "waiting" for job in (await mq.admin("job.list", limit=9, after=number))["jobs"])
    await mq.create_queue("gone")
    done = 0
    while done < 5:
        broker.advance(1_000)
        jobs = (await mq.admin("job.list", after=number))["jobs"]
        done = sum(job["done"] for job in jobs)
    assert done == 5


async def test_slow_jobs_keep_no_other_from_its_work_and_keep_their_rates(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "slow", 100)
    await dead(mq, broker, "q", 5)
    slow = RUNNING_MAX + 2
    for _ in range(slow):
        number = (await mq.admin("job.start", kind="replay", filter={"queue": "slow"}, rate=0.5))["job"]
    other = (await mq.admin("job.start", kind="replay", filter={"queue": "q"}))["job"]
    assert (await reached(mq, other, "done"))["done"] == 5
    for _ in range(20):
        await until(lambda: _sleeps(broker))
        broker.advance(0.5)
        # All are woken before their time.
        await mq.admin("job.change", job=number, rate=0.5)
    await until(lambda: _sleeps(broker))
    done = [job["done"] for job in (await mq.admin("job.list", after=other))["jobs"]]
    # One at once, and five in ten seconds; a job that has to wait for its turn looks again each second.
    assert all(4 <= each <= 6 for each in done), done


async def test_a_fault_between_two_steps_ends_the_job_too(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, mq = started
    await dead(mq, broker, "gone", 5)
    await mq.delete_queue("gone")

    def broken(_: object) -> None:
        raise AssertionError("for this test")

    monkeypatch.setattr("vibemq.server.jobs.pace.Pace.paused", broken)
    number = (await mq.admin("job.start", kind="replay", filter={"queue": "gone"}))["job"]
    assert "a fault of the broker" in (await reached(mq, number, "failed"))["why"]


async def test_jobs_that_cannot_even_be_ended_leave_others_their_turns(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 5)
    read, end, broken = LetterPages.read, JobWorker._end, True

    async def reading(pages: LetterPages, *arguments: Any) -> LetterPage:
        assert pages._wanted.queue is None, "for this test"
        return await read(pages, *arguments)

    async def ending(worker: JobWorker, state: JobState, why: str = "") -> None:
        assert not (broken and state is JobState.FAILED), "for this test"
        await end(worker, state, why)

    monkeypatch.setattr(LetterPages, "read", reading)
    monkeypatch.setattr(JobWorker, "_end", ending)
    failing = [(await mq.admin("job.start", kind="replay", filter={"queue": "q"}))["job"] for _ in range(RUNNING_MAX)]
    whole = (await mq.admin("job.start", kind="replay"))["job"]
    for number in failing:
        await reached(mq, number, "waiting", "a fault of the broker")
    broker.advance(1)
    assert (await reached(mq, whole, "done"))["done"] == 5
    broken = False
    broker.advance(1)
    for number in failing:
        await reached(mq, number, "failed", "its log has the reason")
