"""A queue that is deleted and made anew while its messages are read: nothing is done to those of the new one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.engine_driver import Driver, DriverSession
from tests.unit.operations.transfer.test_exports import Disk
from vibemq.auth.policy import Actor
from vibemq.errors import WrongIncarnation
from vibemq.model.commands import DeleteQueue, Publish
from vibemq.model.rows import Rows, pack_row
from vibemq.operations.arguments import read
from vibemq.operations.registry import Caller
from vibemq.operations.transfer.exports import ExportArguments, QueueExports
from vibemq.operations.transfer.kept_messages import KeptMessages
from vibemq.operations.transfer.moves import MoveArguments, QueueMoves
from vibemq.operations.transfer.removal import MessageRemoval, MessageRemoveArguments

CALLER = Caller(None, Actor("", may_manage=True), session=1)


class Desk:
    """The operations on a queue `a` with three messages, and a queue `b`. `after_reading` is called once, when the rows
    of `a` have come and nothing was done with them."""

    def __init__(self) -> None:
        self.driver = Driver()
        for queue in ("a", "b"):
            self.driver.create(queue)
        self.publish("old")
        self.disk = Disk(self.driver)
        self.after_reading: Callable[[], None] = lambda: None
        self._read = self.disk.read_rows
        self.disk.read_rows = self._read_rows  # type: ignore[method-assign]
        engine, local = self.driver.engine, DriverSession(self.driver)
        kept = KeptMessages(engine, self.disk)  # type: ignore[arg-type]
        self.moves = QueueMoves(engine, self.disk, local)  # type: ignore[arg-type]
        self.removal = MessageRemoval(engine, kept, local)
        self.exports = QueueExports(engine, kept)

    async def _read_rows(self, work: Callable[..., Any], *arguments: Any) -> Any:
        rows = await self._read(work, *arguments)
        self.after_reading()
        self.after_reading = lambda: None
        return rows

    def publish(self, name: str) -> None:
        rows = Rows.of([pack_row(f"{name} {number}", b"", []) for number in range(3)])
        self.driver.ask(Publish(9, None, "a", rows))

    def make_anew(self) -> None:
        self.driver.ask(DeleteQueue(9, None, "a"))
        self.driver.create("a")
        self.publish("new")

    def ready(self) -> tuple[int, int]:
        return self.driver.info("a").ready, self.driver.info("b").ready

    def move(self, **arguments: Any) -> dict[str, Any]:
        wanted = read(MoveArguments, "queue.move", {"queue": "a", "to": "b", **arguments})
        return asyncio.run(self.moves.move(CALLER, wanted))

    def remove(self, **arguments: Any) -> dict[str, Any]:
        wanted = read(MessageRemoveArguments, "message.remove", {"queue": "a", **arguments})
        return asyncio.run(self.removal.remove(CALLER, wanted))

    def export(self) -> dict[str, Any]:
        return asyncio.run(self.exports.page(CALLER, read(ExportArguments, "queue.export", {"queue": "a"})))


WORK: dict[str, Callable[[Desk], Any]] = {
    "move": lambda desk: desk.move(),
    "remove by id": lambda desk: desk.remove(ids=["old 1"]),
    "remove by sequence and id": lambda desk: desk.remove(sequences=[3], ids=["old 1"]),
    "export": lambda desk: desk.export(),
}


@pytest.mark.parametrize("work", WORK)
def test_what_was_read_of_the_old_queue_is_not_done_to_the_new_one(work: str) -> None:
    desk = Desk()
    desk.after_reading = desk.make_anew
    with pytest.raises(WrongIncarnation):
        WORK[work](desk)
    assert desk.ready() == (3, 0)
    desk.driver.check()


def test_the_next_page_is_of_the_same_queue() -> None:
    desk = Desk()
    moved = desk.move(limit=1)
    removed = desk.remove(sequences=[2])
    assert (moved["count"], removed["count"], desk.ready()) == (1, 1, (1, 1))
    assert moved["incarnation"] == removed["incarnation"] == desk.driver.info("a").incarnation
    desk.make_anew()
    place = {"from": 0, "incarnation": moved["incarnation"]}
    for call in (lambda: desk.move(**place), lambda: desk.remove(**place, ids=["new 1"], sequences=[1])):
        with pytest.raises(WrongIncarnation):
            call()
    assert desk.ready() == (3, 1)
    assert desk.move()["count"] == 3
