"""What stops a job for a while: a canary, letters that die again, a full queue, memory or disk."""

from typing import Any

import pytest

from tests.integration.full_disk import FullDisk
from tests.integration.jobs import Started, guarded, job_of, reached, started, take
from tests.integration.test_operations import dead
from tests.waiting import until
from vibemq.errors import StorageFull
from vibemq.model.commands import Pressure, SetPressure
from vibemq.model.jobs import job_records
from vibemq.model.jobs.job_records import JobAdvanced, JobChanged
from vibemq.model.records import DeadLettered, DeadRemoved
from vibemq.server.jobs import letters, worker

pytestmark = pytest.mark.anyio
__all__ = ["guarded", "started"]


async def done_after_retries(started: Started, number: str) -> dict[str, Any]:
    """The job, which goes on by itself when it looks again."""
    broker, mq = started

    async def is_done() -> bool:
        broker.advance(worker.RETRY_MS / 1000)
        return bool((await job_of(mq, number))["state"] == "done")

    await until(is_done)
    return await job_of(mq, number)


async def test_a_job_waits_for_its_target_for_room_and_for_memory(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 30)
    await mq.create_queue("to")
    number = (await mq.admin("job.start", kind="replay", to="to", rate=1))["job"]
    await reached(mq, number, "running", done=1)
    await mq.delete_queue("to")
    broker.advance(1)
    await reached(mq, number, "waiting", "does not exist")
    await mq.create_queue("to", overflow="drop-oldest", max_messages=10)
    await mq.admin("job.change", job=number, rate=0)
    broker.advance(1)
    await reached(mq, number, "waiting", "no room", done=11)
    for message in await take(mq, "to", 10):
        message.ack()
    decide = broker._running().decider.decide
    decide([SetPressure(Pressure.OVERFLOWING, "memory")])
    await until(lambda: (info := broker.queue_info("to")) is not None and not info.in_flight)
    broker.advance(1)
    blocked = await reached(mq, number, "waiting", done=11)
    decide([SetPressure(Pressure.NONE)])
    broker.advance(1)
    await reached(mq, number, "waiting", done=21)
    assert blocked["dead_again"] == 0


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four letters are a page of a job."""
    for module in (letters, worker):
        monkeypatch.setattr(module, "PAGE_LETTERS", 4)


@pytest.mark.usefixtures("small_pages")
async def test_a_queue_that_takes_no_letters_keeps_those_of_others_from_nothing(
    started: Started,
) -> None:
    broker, mq = started
    for queue in ("a", "b", "a", "b"):
        await dead(mq, broker, queue, 6)
    await mq.delete_queue("a")
    number = (await mq.admin("job.start", kind="replay"))["job"]
    await reached(mq, number, "waiting", "'a' does not exist", done=12)
    broker.advance(1)
    await mq.create_queue("a")
    broker.advance(1)
    job = await reached(mq, number, "done")
    assert (job["done"], job["examined"], job["skipped"]) == (24, 24, 0)
    infos = [broker.queue_info(queue) for queue in ("a", "b")]
    assert [info.ready for info in infos if info is not None] == [12, 12]


@pytest.mark.usefixtures("small_pages")
async def test_a_queue_that_takes_letters_again_gets_them_before_those_behind(
    started: Started,
) -> None:
    broker, mq = started
    await dead(mq, broker, "a", 6)
    await dead(mq, broker, "b", 40)
    await mq.delete_queue("a")
    number = (await mq.admin("job.start", kind="replay", rate=4))["job"]
    await reached(mq, number, "running", done=1)
    await mq.create_queue("a")
    info = broker.queue_info("a")
    while info is not None and info.ready < 6:
        broker.advance(0.25)
        done = (await job_of(mq, number))["done"]
        assert done <= 24, "those of b go first"
        await reached(mq, number, "running")
        info = broker.queue_info("a")
    await mq.admin("job.change", job=number, rate=0)
    broker.advance(1)
    job = await reached(mq, number, "done")
    assert (job["done"], job["examined"], job["skipped"]) == (46, 46, 0)


@pytest.mark.usefixtures("small_pages")
async def test_a_look_behind_queues_that_take_no_letters_goes_on_where_it_was(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it takes much longer than the letters at the cursor wait until they are tried again."""
    broker, mq = started
    gone = [f"gone-{number}" for number in range(8)]
    for queue in (*gone, "b"):
        await dead(mq, broker, queue, 4)
    for queue in gone:
        await mq.delete_queue(queue)
    read = letters.LetterPages.read

    async def read_slowly(*arguments: Any) -> letters.LetterPage:
        broker.advance(0.6)
        return await read(*arguments)

    monkeypatch.setattr(letters.LetterPages, "read", read_slowly)
    number = (await mq.admin("job.start", kind="replay"))["job"]
    await reached(mq, number, "waiting", "'gone-0' does not exist", done=4)


async def test_a_letter_that_fits_into_no_room_holds_the_job(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 3)
    await mq.create_queue("small", overflow="drop-oldest", max_bytes=10)
    number = (await mq.admin("job.start", kind="replay", to="small"))["job"]
    await reached(mq, number, "held", "dead letter 1 has more bytes than queue 'small' takes")
    await mq.admin("dlq.purge", ids=[1, 2, 3])
    await mq.admin("job.change", job=number, state="running")
    assert (await reached(mq, number, "done"))["skipped"] == 3


async def test_a_job_waits_while_the_target_has_much_ready(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 100)
    number = (await mq.admin("job.start", kind="replay", max_ready=20))["job"]
    job = await reached(mq, number, "waiting")
    assert job["done"] == 21
    assert "has 21 messages ready, more than 20" in job["why"]
    left = 100
    while left:
        for message in await mq.fetch("q", max=10, timeout=30):
            message.ack()
            left -= 1
        broker.advance(1)
    assert (await reached(mq, number, "done"))["done"] == 100


async def test_a_canary_that_dies_again_holds_the_job(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 50)
    number = (await mq.admin("job.start", kind="replay", canary=5))["job"]
    await reached(mq, number, "waiting", done=5)
    messages = await take(mq, "q", 5)
    messages[0].reject("still bad")
    job = await reached(mq, number, "held")
    assert (job["done"], job["dead_again"]) == (5, 1)
    assert "died again" in job["why"]
    for message in messages[1:]:
        message.ack()
    await mq.admin("job.change", job=number, state="running")
    assert (await reached(mq, number, "done"))["done"] == 50


async def test_a_canary_that_works_lets_the_others_go(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 50)
    number = (await mq.admin("job.start", kind="replay", canary=5))["job"]
    await reached(mq, number, "waiting", done=5)
    for message in await take(mq, "q", 5):
        message.ack()
    await until(lambda: (info := broker.queue_info("q")) is not None and not info.in_flight)
    broker.advance(1)
    job = await reached(mq, number, "done")
    assert (job["done"], job["canary_passed"], job["dead_again"]) == (50, True, 0)


@pytest.mark.parametrize("bound", [{"limit": 3, "canary": 3}, {"canary": 5}])
async def test_a_canary_that_is_all_there_is_keeps_no_job_from_its_end(started: Started, bound: dict[str, int]) -> None:
    """There are no others that it could speak for."""
    broker, mq = started
    await dead(mq, broker, "q", 3)
    number = (await mq.admin("job.start", kind="replay", **bound))["job"]
    await reached(mq, number, "done", done=3)


async def test_what_is_purged_of_a_canary_has_not_passed(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 50)
    number = (await mq.admin("job.start", kind="replay", canary=5, limit=20))["job"]
    await reached(mq, number, "waiting", done=5)
    await mq.purge_queue("q")
    broker.advance(1)
    job = await reached(mq, number, "held", done=5)
    assert (job["canary_gone"], job["canary_passed"], job["dead_again"]) == (5, False, 0)
    assert "nobody acknowledged any of the first 5 letters" in job["why"]
    await mq.admin("job.change", job=number, state="running")
    job = await reached(mq, number, "done", done=20)
    # Somebody has let it go on; that tells nothing of the letters.
    assert (job["canary_passed"], job["canary_waived"]) == (False, True)
    await mq.purge_queue("q")
    number = (await mq.admin("job.start", kind="replay", canary=5, limit=20))["job"]
    await reached(mq, number, "waiting", done=5)
    for message in await take(mq, "q", 2):
        message.ack()
    await until(lambda: (info := broker.queue_info("q")) is not None and not info.in_flight)
    await mq.purge_queue("q")
    broker.advance(1)
    job = await reached(mq, number, "done")
    assert (job["canary_passed"], job["canary_waived"]) == (True, False)
    assert job["canary_gone"] == 3
    [passed] = [event for event in job["events"] if event["event"] == "canary passed"]
    assert "3 of them are gone without a verdict" in passed["detail"]


async def test_a_job_is_held_when_many_have_died_again(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 50)
    number = (await mq.admin("job.start", kind="replay", stop_after_dead_again=3, rate=1, limit=40))["job"]
    for dies in range(3):
        await reached(mq, number, "running", dead_again=dies)
        (message,) = await take(mq, "q", 1)
        message.reject("bad")
        broker.advance(1)
    assert (await reached(mq, number, "held"))["dead_again"] == 3


async def test_a_job_that_counts_deaths_waits_for_what_became_of_its_messages(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others publish between its steps, so that it has many stretches to remember."""
    broker, mq = started
    for module in (job_records, worker):
        monkeypatch.setattr(module, "MADE_RUNS_MAX", 4)
    await dead(mq, broker, "q", 20)
    number = (await mq.admin("job.start", kind="replay", rate=1, stop_after_dead_again=2))["job"]
    for done in range(1, 5):
        await reached(mq, number, "running", done=done)
        await mq.publish("q", b"of others")
        broker.advance(1)
    await reached(mq, number, "waiting", "settled yet", done=4)
    messages = await take(mq, "q", 8)
    await messages[0].reject("bad")
    for message in messages[1:6]:
        await message.ack()
    await until(lambda: (info := broker.queue_info("q")) is not None and info.in_flight == 2)
    broker.advance(1)
    await reached(mq, number, "running", done=5, dead_again=1)
    assert (await job_of(mq, number))["dead_again_exact"]
    await messages[6].reject("bad")
    await reached(mq, number, "held", "2 of its letters died again")


async def test_a_full_disk_when_its_canary_has_passed_lets_a_job_wait(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 10)
    disk = FullDisk(broker, monkeypatch, lambda record: isinstance(record, JobChanged), is_full=False)
    number = (await mq.admin("job.start", kind="replay", canary=3))["job"]
    await reached(mq, number, "waiting", done=3)
    for message in await take(mq, "q", 3):
        message.ack()
    await until(lambda: (info := broker.queue_info("q")) is not None and not info.in_flight)
    disk.is_full = True

    async def is_full_for_it() -> bool:
        broker.advance(1)
        job = await job_of(mq, number)
        assert job["state"] == "waiting"
        return "the disk is full" in job["why"]

    await until(is_full_for_it)
    disk.is_full = False

    job = await done_after_retries(started, number)
    assert job["done"] == 10


async def test_a_full_disk_stops_a_replay_until_there_is_room_and_doubles_nothing(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 500)
    disk = FullDisk(broker, monkeypatch, lambda record: isinstance(record, JobAdvanced), is_full=False)
    number = (await mq.admin("job.start", kind="replay", rate=100))["job"]

    async def has_begun() -> bool:
        return bool((await job_of(mq, number))["done"])

    await until(has_begun)
    disk.is_full = True

    async def waits() -> bool:
        broker.advance(1)
        return bool((await job_of(mq, number))["state"] == "waiting")

    await until(waits)
    waiting = await job_of(mq, number)
    assert "the disk is full" in waiting["why"]
    assert 0 < waiting["done"] < 500
    disk.is_full = False
    await mq.admin("job.change", job=number, rate=0)

    job = await done_after_retries(started, number)
    assert job["done"] == 500
    messages = await take(mq, "q", 500)
    assert len({message.id for message in messages}) == 500
    info = await mq.queue_info("q")
    assert info is not None
    assert (info.ready, info.dead) == (0, 0)


async def test_a_job_that_is_resumed_on_a_full_disk_goes_on_when_there_is_room(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 10)
    number = (await mq.admin("job.start", kind="replay", rate=1))["job"]
    await mq.admin("job.change", job=number, state="paused", rate=0)
    disk = FullDisk(broker, monkeypatch, lambda record: isinstance(record, JobChanged))
    with pytest.raises(StorageFull):
        await mq.admin("job.change", job=number, state="running")
    disk.is_full = False

    await done_after_retries(started, number)


async def test_letters_whose_death_is_not_stored_yet_are_none_of_a_job(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can read and count them, so nobody has expected that they are deleted."""
    broker, mq = started
    await dead(mq, broker, "q", 3)
    disk = FullDisk(broker, monkeypatch, lambda record: isinstance(record, DeadLettered))
    await dead(mq, broker, "q", 2)
    disk.is_full = False
    number = (await mq.admin("job.start", kind="purge_dead", at_most=3))["job"]
    assert (await reached(mq, number, "done"))["done"] == 3
    info = broker.queue_info("q")
    assert info is not None
    assert info.dead == 2


async def test_a_full_disk_lets_a_purge_wait_and_counts_no_letter_twice(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of its letters is owed: until it is stored they are still to be read."""
    broker, mq = started
    await dead(mq, broker, "q", 120)
    disk = FullDisk(broker, monkeypatch, lambda record: isinstance(record, DeadRemoved))
    number = (await mq.admin("job.start", kind="purge_dead"))["job"]
    await reached(mq, number, "waiting", "the disk is full")
    refused = disk.refused

    async def has_tried_again() -> bool:
        broker.advance(worker.RETRY_MS / 1000)
        await job_of(mq, number)
        return disk.refused >= refused + 5

    await until(has_tried_again)
    disk.is_full = False

    job = await done_after_retries(started, number)
    assert (job["done"], job["skipped"], job["examined"]) == (120, 0, 120)
