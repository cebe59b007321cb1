"""What was decided is carried out, for each application on its own."""

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.engine_driver import Driver, DriverSession, rows_of
from vibemq.errors import StorageDamaged, StorageError, StorageFull
from vibemq.model.commands import Command, DecideTransaction, Stage
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.records import MessagesAdded
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import Slice
from vibemq.operations.transactions import Transactions
from vibemq.storage.kvstore.blocks import limit


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
