"""What was decided is carried out, for each application on its own."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.engine_driver import Driver, DriverSession, rows_of
from vibemq.auth.policy import Actor
from vibemq.auth.users import ANONYMOUS
from vibemq.engine.stage_names import version_and_app
from vibemq.errors import StorageDamaged, StorageError, StorageFull
from vibemq.model.commands import Command, DecideTransaction, ForgetApplication, MoveStaged, Stage
from vibemq.model.effects import Reply
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.records import MessagesAdded, StageMoved
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import Slice
from vibemq.operations.registry import Caller
from vibemq.operations.transactions import (
    PARTS_AT_ONCE,
    READS_TOGETHER_MAX,
    TransactionCommitArguments,
    Transactions,
)
from vibemq.storage.kvstore.blocks import limit

CALLER = Caller(ANONYMOUS, Actor(""))
pytestmark = pytest.mark.anyio


class Disk:
    """Rows of the driver's records; those of some queues cannot be read."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.broken: dict[int, StorageError] = {}
        self.provider = SimpleNamespace(read=self.stored)

    def stored(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        if queue_id in self.broken:
            raise self.broken[queue_id]
        added = [
            Slice(record.first_sequence, 1, record.rows)
            for record in self._driver.records
            if isinstance(record, MessagesAdded) and record.queue_id == queue_id
        ]
        return list(limit((part for part in added if first <= part.first_sequence <= last), max_bytes))

    async def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)

    read = read_rows = call

    aside = call


class Slow(DriverSession):
    """Answers after some turns of the loop, as a flush does."""

    waiting = most_waiting = 0

    async def ask(self, make: Callable[[int, int], Command]) -> Any:
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        answer = await super().ask(make)
        for _ in range(10):
            await asyncio.sleep(0)
        self.waiting -= 1
        return answer


def test_staged_batches_that_are_large_wait_for_one_flush_together_and_keep_their_order() -> None:
    driver = Driver()
    driver.create()
    batches = [Rows.of([pack_row(f"{batch}.{row}", bytes(400_000)) for row in range(2)]) for batch in range(7)]
    for chunk, rows in enumerate(batches):
        driver.ask(Stage(1, None, "q", "app", 1, "s", chunk, rows, {0: MessageExtra(2)}))
    driver.ask(DecideTransaction(1, None, "app", 1, ["s"]))
    local = Slow(driver)
    transactions = Transactions(driver.engine, Disk(driver), local)  # type: ignore[arg-type]
    asyncio.run(transactions.tidy())
    assert driver.info().ready == 14
    assert 1 < local.most_waiting < 7, "several share a flush, and memory is bounded"
    moved = [record.rows for record in driver.records if isinstance(record, MessagesAdded)][-7:]
    assert [message_id for rows in moved for message_id in rows.ids()] == [i for rows in batches for i in rows.ids()]
    driver.check()


@pytest.mark.parametrize("error", [StorageDamaged("bad checksum", path="journal"), StorageFull("the disk is full")])
def test_one_application_that_cannot_go_on_keeps_no_other_waiting(
    error: StorageError, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Driver()
    driver.create()
    for app in ("sick", "well"):
        driver.ask(Stage(1, None, "q", app, 1, "s", 0, rows_of(3), {0: MessageExtra(2)}))
        driver.ask(DecideTransaction(1, None, app, 1, ["s"]))
    readers = driver.engine.readers
    sick, _ = readers.unfinished_stages()
    disk = Disk(driver)
    disk.broken[readers.staged_batches(sick)[0]] = error
    transactions = Transactions(driver.engine, disk, DriverSession(driver))  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        asyncio.run(transactions.tidy())
    assert readers.unfinished_stages() == [sick]
    assert driver.info().ready == 3
    assert "'sick'" in caplog.text
    assert "'well'" not in caplog.text

    disk.broken.clear()
    asyncio.run(transactions.tidy())
    assert readers.unfinished_stages() == []
    assert driver.info().ready == 6
    driver.check()


class Held(DriverSession):
    """Moves of staged batches of some applications wait."""

    def __init__(self, driver: Driver, *apps: str) -> None:
        super().__init__(driver)
        self.apps = apps
        self.moving: Counter[str] = Counter()
        self.go_on = asyncio.Event()

    async def ask(self, make: Callable[[int, int], Command]) -> Any:
        command = make(1, 0)
        if isinstance(command, MoveStaged):
            _, app = version_and_app(command.stage)
            self.moving[app] += 1
            if app in self.apps:
                await self.go_on.wait()
        return await super().ask(make)


class Committing:
    """Commits of many applications, and moves that wait."""

    def __init__(self, *held: str) -> None:
        self.driver = Driver()
        self.driver.create()
        self.local = Held(self.driver, *held)
        self.transactions = Transactions(self.driver.engine, Disk(self.driver), self.local)  # type: ignore[arg-type]

    def stage(self, app: str, version: int = 0, count: int = 1) -> None:
        """In a staged batch: a part of it has a priority."""
        self.driver.ask(Stage(1, None, "q", app, version, "s", 0, rows_of(count), {0: MessageExtra(2)}))

    def commit(self, app: str, version: int = 0, *, stages: tuple[str, ...] = ("s",)) -> "asyncio.Task[dict[str, Any]]":
        wanted = TransactionCommitArguments(app=app, version=version, stages=list(stages))
        return asyncio.ensure_future(self.transactions.commit(CALLER, wanted))

    @property
    def ready(self) -> int:
        return self.driver.info().ready


async def many_turns() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_a_long_commit_of_one_application_keeps_no_other_waiting() -> None:
    at = Committing("long")
    at.stage("long", count=5)
    at.stage("short")
    long = at.commit("long")
    await many_turns()
    others = [at.commit("short"), at.commit("register", stages=()), at.commit("short"), at.commit("register")]
    await many_turns()
    assert [task.done() for task in (long, *others)] == [False, True, True, True, True]
    assert [task.result()["duplicate"] for task in others] == [False, False, True, True]
    assert at.ready == 1
    at.local.go_on.set()
    assert not (await long)["duplicate"]
    assert at.ready == 6


async def test_commits_of_one_application_are_carried_out_one_after_the_other() -> None:
    at = Committing("app")
    at.stage("app", 0, count=5)
    at.stage("app", 1)
    first = at.commit("app", 0)
    await many_turns()
    behind = [at.commit("app", 1), at.commit("app", 0), at.commit("app", 2, stages=())]
    tidied = asyncio.ensure_future(at.transactions.tidy())
    await many_turns()
    assert not any(task.done() for task in (first, *behind))
    assert tidied.done(), "what a request moves is left to it"
    assert at.local.moving == {"app": 1}
    at.local.go_on.set()
    done = await asyncio.gather(first, *behind)
    assert [answer["duplicate"] for answer in done] == [False, False, True, False]
    moved = [record.rows.count for record in at.driver.records_of(MessagesAdded)][-2:]
    assert moved == [5, 1]
    assert at.local.moving == {"app": 2}, "each is moved once"
    assert not at.transactions._moving, "a lock goes with the last who needs it"
    at.driver.check()


async def test_what_one_request_moves_keeps_nothing_else_from_being_gone_on_with() -> None:
    at = Committing("long")
    for app in ("long", "left"):
        at.stage(app)
    long = at.commit("long")
    at.driver.ask(DecideTransaction(1, None, "left", 0, ["s"]))
    await many_turns()
    await at.transactions.tidy()
    assert at.ready == 1
    at.local.go_on.set()
    await long
    assert at.ready == 2


async def test_stages_with_the_names_of_committed_ones_are_not_moved() -> None:
    at = Committing("first")
    for app in ("first", "second"):
        at.stage(app)
        at.driver.ask(DecideTransaction(1, None, app, 0, ["s"]))
    tidied = asyncio.ensure_future(at.transactions.tidy())
    await many_turns()
    second = at.commit("second")
    await many_turns()
    assert second.done()
    at.driver.ask(ForgetApplication(1, None, "second"))
    at.stage("second")
    at.local.go_on.set()
    await tidied
    assert at.ready == 2, "nobody has committed it"


async def test_staged_batches_of_few_applications_are_in_memory_at_a_time() -> None:
    apps = [f"app{number}" for number in range(2 * READS_TOGETHER_MAX)]
    at = Committing(*apps)
    for app in apps:
        at.stage(app)
    commits = [at.commit(app) for app in apps]
    await many_turns()
    assert len(at.local.moving) == READS_TOGETHER_MAX
    at.local.go_on.set()
    await asyncio.gather(*commits)
    assert at.ready == len(apps)


class Flushed(DriverSession):
    """Answers when the disk has kept what was asked."""

    asked = 0

    async def ask(self, make: Callable[[int, int], Command]) -> Any:
        self.asked -= 1
        token = self.asked
        self._driver.handle(make(1, token))
        while not (found := [e for e in self._driver.effects if isinstance(e, Reply) and e.token == token]):
            await asyncio.sleep(0)
        if isinstance(found[0].result, Exception):
            raise found[0].result
        return found[0].result


class Parts:
    """A commit of plain parts, and a disk that keeps nothing by itself."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.driver.create()
        self.transactions = Transactions(self.driver.engine, Disk(self.driver), Flushed(self.driver))  # type: ignore[arg-type]

    def stage(self, stage: str, *, chunk: int = 0, extras: dict[int, MessageExtra] | None = None) -> None:
        self.driver.ask(Stage(1, None, "q", "app", 0, stage, chunk, rows_of(2), extras))

    def commit(self, *stages: str) -> "asyncio.Task[dict[str, Any]]":
        self.driver.hold = True
        wanted = TransactionCommitArguments(app="app", version=0, stages=list(stages))
        return asyncio.ensure_future(self.transactions.commit(CALLER, wanted))

    @property
    def moved(self) -> list[int]:
        """Queue ids of the stages whose rows have entered the queue, in its order."""
        return [record.stage_id for record in self.driver.records_of(StageMoved)]


async def test_plain_parts_wait_for_one_flush_together() -> None:
    at, names = Parts(), [f"s{number}" for number in range(PARTS_AT_ONCE + 4)]
    for name in names:
        at.stage(name)
    committed, flushes = at.commit(*names), 0
    while not committed.done():
        await many_turns()
        flushes += 1
        at.driver.keep()
        await many_turns()
    assert flushes == 4, "of the decision, of two times some of the parts, of their end"
    assert at.moved == sorted(at.moved)
    assert len(at.moved) == len(names)
    assert at.driver.info().ready == 2 * len(names)
    at.driver.check()


async def test_a_plain_part_that_cannot_be_stored_takes_those_behind_it_along() -> None:
    at, names = Parts(), ["s0", "s1", "s2"]
    for name in names:
        at.stage(name)
    committed = at.commit(*names)
    await many_turns()
    at.driver.keep()
    await many_turns()
    at.driver.keep(1)
    at.driver.refuse()
    with pytest.raises(StorageFull):
        await committed
    assert at.driver.info().ready == 2
    at.driver.hold = False
    await at.transactions.tidy()
    assert at.moved == sorted(at.moved)
    assert len(at.moved) == 3
    assert at.driver.info().ready == 6
    at.driver.check()


async def test_plain_parts_do_not_overtake_staged_batches() -> None:
    at = Parts()
    at.stage("s0")
    at.stage("s0", chunk=1, extras={0: MessageExtra(2)})
    at.stage("s1")
    before = len(at.driver.records)
    committed = at.commit("s0", "s1")
    while not committed.done():
        await many_turns()
        at.driver.keep()
        await many_turns()
    kinds = [type(record) for record in at.driver.records[before:] if isinstance(record, MessagesAdded | StageMoved)]
    assert kinds == [StageMoved, MessagesAdded, StageMoved]
    at.driver.check()
