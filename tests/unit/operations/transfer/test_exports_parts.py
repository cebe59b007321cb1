"""A large message is read from storage once, however many parts are asked for."""

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.engine_driver import Driver
from tests.unit.operations.transfer.test_exports import Disk
from vibemq.auth.policy import Actor
from vibemq.errors import MessageNotFound, WrongIncarnation
from vibemq.model.commands import DeleteQueue, Publish, PurgeQueue
from vibemq.model.rows import Rows, pack_row
from vibemq.operations.arguments import read
from vibemq.operations.registry import Caller
from vibemq.operations.transfer import exports
from vibemq.operations.transfer.exports import PartArguments, QueueExports
from vibemq.operations.transfer.kept_messages import KeptMessages


class Desk:
    """A queue of two large messages, and how often storage was read."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.driver.create()
        self.rows = [pack_row(f"m{number}", bytes([number]) * 95, []) for number in range(2)]
        self.driver.ask(Publish(9, None, "q", Rows.of(self.rows)))
        self.disk = Disk(self.driver)
        self._read = self.disk.read_rows
        self.disk.read_rows = self._read_rows  # type: ignore[method-assign]
        self.reads = 0
        self.exports = QueueExports(self.driver.engine, KeptMessages(self.driver.engine, self.disk))  # type: ignore[arg-type]

    async def _read_rows(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self.reads += 1
        return await self._read(work, *arguments)

    def part(self, sequence: int, offset: int, *, session: int = 1, **arguments: Any) -> bytes:
        wanted = read(PartArguments, "x", {"queue": "q", "sequence": sequence, "offset": offset, **arguments})
        answer = asyncio.run(self.exports.part(Caller(None, Actor("", may_manage=True), session=session), wanted))
        assert answer["row_size"] == len(self.rows[0])
        return base64.b64decode(answer["row_base64"])

    def kept_bytes(self) -> int:
        return self.exports._begun._bytes


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(exports, "PART_BYTES", 10)
    return Desk()


def test_all_parts_of_a_message_take_one_read(desk: Desk) -> None:
    for number, row in enumerate(desk.rows):
        assert b"".join(desk.part(number + 1, offset) for offset in range(0, len(row), 10)) == row
    assert (desk.reads, desk.kept_bytes()) == (2, 0)


def test_another_place_is_read_anew(desk: Desk) -> None:
    desk.part(1, 0)
    assert desk.part(1, 30) == desk.rows[0][30:40]
    assert desk.part(2, 40) == desk.rows[1][40:50]
    assert desk.part(2, 50, session=2) == desk.rows[1][50:60]
    assert desk.reads == 4


def test_sessions_read_at_the_same_time_up_to_a_limit(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "KEPT_BYTES", 2 * len(desk.rows[0]))
    for offset in (0, 10):
        for session in (1, 2):
            desk.part(1, offset, session=session)
    assert desk.reads == 2
    desk.part(1, 0, session=3)
    assert desk.kept_bytes() == 2 * len(desk.rows[0])
    assert desk.part(1, 20, session=1) == desk.rows[0][20:30]
    assert desk.reads == 4


def test_a_session_that_is_gone_keeps_nothing(desk: Desk) -> None:
    desk.part(1, 0)
    desk.exports.forget_session(1)
    desk.exports.forget_session(1)
    assert desk.kept_bytes() == 0


def test_a_message_that_is_gone_is_not_begun_and_one_of_a_new_queue_is_another(desk: Desk) -> None:
    desk.part(1, 0)
    desk.driver.ask(PurgeQueue(1, None, "q"))
    assert desk.part(1, 10) == desk.rows[0][10:20]
    with pytest.raises(MessageNotFound):
        desk.part(1, 0)
    old = desk.driver.info().incarnation
    desk.driver.ask(DeleteQueue(1, None, "q"))
    desk.driver.create()
    with pytest.raises(MessageNotFound):
        desk.part(1, 20)
    with pytest.raises(WrongIncarnation):
        desk.part(1, 20, incarnation=old)
