"""What was decided is carried out, for each application on its own."""

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.engine_driver import Driver, rows_of
from vibemq.errors import StorageDamaged, StorageError, StorageFull
from vibemq.model.commands import Command, DecideTransaction, Stage
from vibemq.model.records import MessagesAdded
from vibemq.model.staged_batch import pack_staged_batch
from vibemq.model.stored import Slice
from vibemq.operations.transactions import Transactions


class Disk:
    """Rows of the driver's records; those of some queues cannot be read."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.broken: dict[int, StorageError] = {}
        self.provider = SimpleNamespace(read=self.stored)

    def stored(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        if queue_id in self.broken:
            raise self.broken[queue_id]
        return [
            Slice(record.first_sequence, 1, record.rows)
            for record in self._driver.records
            if isinstance(record, MessagesAdded) and record.queue_id == queue_id
        ]

    async def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)

    read = read_rows = call

    aside = call


class Local:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def ask(self, make: Callable[[int, int], Command]) -> Any:
        answer = self._driver.ask(make(1, 0))
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("error", [StorageDamaged("bad checksum", path="journal"), StorageFull("the disk is full")])
def test_one_application_that_cannot_go_on_keeps_no_other_waiting(
    error: StorageError, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Driver()
    driver.create()
    for app in ("sick", "well"):
        staged = pack_staged_batch("s", "q", rows_of(3), None)
        driver.ask(Stage(1, None, "q", app, 1, "s", 0, staged))
        driver.ask(DecideTransaction(1, None, app, 1, ["s"]))
    readers = driver.engine.readers
    sick, _ = readers.unfinished_stages()
    disk = Disk(driver)
    disk.broken[readers.bundles(sick)[0]] = error
    transactions = Transactions(driver.engine, disk, Local(driver))  # type: ignore[arg-type]
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
