"""What the tests of cursors ask for."""

from typing import Any

from tests.simulation.engine_driver import Driver
from vibemq.model.commands import CommitCursor, JoinCursor, RejectAt
from vibemq.model.effects import CursorInfo
from vibemq.model.runs import Run
from vibemq.storage.state.liveness import is_alive


def join(driver: Driver, group: str = "etl", **options: Any) -> Any:
    return driver.ask(JoinCursor(1, None, "q", group, **options))


def commit(driver: Driver, sequence: int, epoch: int = 1, group: str = "etl", **more: Any) -> Any:
    return driver.ask(CommitCursor(1, None, "q", group, epoch, sequence, **more))


def reject(driver: Driver, *sequences: int, group: str = "etl", **more: Any) -> Any:
    return driver.ask(RejectAt(1, None, "q", group, [(sequence, "bad row") for sequence in sequences], **more))


def cursor(driver: Driver, group: str = "etl") -> CursorInfo:
    return driver.engine.readers.cursor("q", group)


def wanted(driver: Driver, start: int = 1, end: int = 1 << 40, group: str | None = "etl") -> list[Run]:
    return driver.engine.readers.span("q", group, start, end, None).wanted


def alive(driver: Driver, sequence: int) -> bool:
    """Whether the store has to keep the message."""
    return is_alive(driver.disk.queues[driver.info().queue_id], sequence)
