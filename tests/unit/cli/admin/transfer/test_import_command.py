"""An import waits for a broker that takes nothing for the moment."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from vibemq.cli.admin.transfer import import_command
from vibemq.cli.admin.transfer.export_file import ExportFile, ImportLine
from vibemq.cli.admin.transfer.import_command import Import
from vibemq.client import Client
from vibemq.errors import Blocked
from vibemq.model.records import MessageExtra

pytestmark = pytest.mark.anyio
WAITS = (0, 0, 0)


@dataclass
class BlockedBroker:
    """Refuses so many times, then takes everything."""

    refusals: int
    taken: list[Any] = field(default_factory=list)

    async def admin(self, verb: str, **arguments: Any) -> dict[str, Any]:
        if arguments["messages"] and self.refusals:
            self.refusals -= 1
            raise Blocked("memory is above its watermark")
        self.taken += arguments["messages"]
        return {"position": len(self.taken), "imported": len(arguments["messages"]), "expired": 0, "left": 0}


@dataclass
class TwoMessages:
    sha256: str = "digest"
    count: int = 2

    def messages(self) -> list[ImportLine]:
        return [ImportLine(n, b"{}", {"n": n}, 2, MessageExtra()) for n in (1, 2)]


@pytest.mark.parametrize("refusals", [0, 1, len(WAITS)])
async def test_an_import_goes_on_once_the_broker_takes_messages(monkeypatch: pytest.MonkeyPatch, refusals: int) -> None:
    monkeypatch.setattr(import_command, "BLOCKED_WAITS_S", WAITS)
    broker, notes = BlockedBroker(refusals), list[str]()
    job = Import(cast(Client, broker), "q", cast(ExportFile, TwoMessages()), note=notes.append)
    await job.run(lambda done, total: None)
    assert (job.imported, broker.taken) == (2, [{"n": 1}, {"n": 2}])
    assert notes == ["memory is above its watermark; trying again in 0 s"] * refusals


async def test_the_connection_has_turns_while_what_was_imported_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_command, "LINES_PER_TURN", 1)
    events: list[str] = []

    class Read(TwoMessages):
        def messages(self) -> Iterator[ImportLine]:  # type: ignore[override]
            for line in 5 * super().messages():
                events.append("line")
                yield line

    async def turns() -> None:
        while True:
            await anyio.lowlevel.checkpoint()
            events.append("turn")

    job = Import(cast(Client, BlockedBroker(0, list(range(10)))), "q", cast(ExportFile, Read()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turns)
        await job.run(lambda done, total: None)
        tasks.cancel_scope.cancel()
    assert "turn" in events[: events.index("line", 9)]


async def test_an_import_ends_when_the_broker_takes_nothing_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_command, "BLOCKED_WAITS_S", WAITS)
    job = Import(cast(Client, BlockedBroker(len(WAITS) + 1)), "q", cast(ExportFile, TwoMessages()))
    with pytest.raises(Blocked):
        await job.run(lambda done, total: None)
    assert job.position == 0


@pytest.mark.parametrize(
    ("dry_run", "text"),
    [
        (True, "2 messages would be imported into queue q; 1 have expired and would be left out"),
        (False, "2 messages imported into queue q; 1 had expired and were left out"),
    ],
)
def test_a_dry_run_does_not_say_that_messages_were_imported(dry_run: bool, text: str) -> None:
    job = Import(cast(Client, BlockedBroker(0)), "q", cast(ExportFile, TwoMessages()))
    job.imported, job.expired = 2, 1
    assert job.text(dry_run=dry_run) == text
