"""An import waits for a broker that takes nothing for the moment."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import anyio.lowlevel
import orjson
import pytest

from vibemq.cli.admin.transfer import import_command
from vibemq.cli.admin.transfer.export_file import ExportFile, ImportLine
from vibemq.cli.admin.transfer.import_command import Import, _create_missing
from vibemq.cli.output import Output
from vibemq.client import Client
from vibemq.errors import Blocked, InvalidPayload, NotAuthorized, RateLimited, VibeMQError
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.rows import pack_row

pytestmark = pytest.mark.anyio
WAITS = (0, 0, 0)


@dataclass
class BlockedBroker:
    """Refuses so many times, then takes everything."""

    refusals: int
    taken: list[Any] = field(default_factory=list)
    error: type[VibeMQError] = Blocked

    async def admin(self, verb: str, **arguments: Any) -> dict[str, Any]:
        if arguments["messages"] and self.refusals:
            self.refusals -= 1
            raise self.error("memory is above its watermark")
        self.taken += arguments["messages"]
        return {"position": len(self.taken), "imported": len(arguments["messages"]), "expired": 0, "left": 0}


@dataclass
class TwoMessages:
    sha256: str = "digest"
    count: int = 2

    def messages(self) -> list[ImportLine]:
        return [ImportLine(n, b"{}", {"n": n}, 2, MessageExtra()) for n in (1, 2)]


@pytest.mark.parametrize("error", [Blocked, RateLimited])
@pytest.mark.parametrize("refusals", [0, 1, len(WAITS)])
async def test_an_import_goes_on_once_the_broker_takes_messages(
    monkeypatch: pytest.MonkeyPatch, refusals: int, error: type[VibeMQError]
) -> None:
    monkeypatch.setattr(import_command, "BLOCKED_WAITS_S", WAITS)
    broker, notes = BlockedBroker(refusals, error=error), list[str]()
    job = Import(cast(Client, broker), "q", cast(ExportFile, TwoMessages()), note=notes.append)
    await job.run(lambda done, total: None)
    assert (job.imported, broker.taken) == (2, [{"n": 1}, {"n": 2}])
    assert notes == ["memory is above its watermark; trying again in 0 s"] * refusals


@dataclass
class PartsBroker:
    """Takes messages in parts; one of before does not know that they may be rows."""

    knows_rows: bool
    parts: list[tuple[bytes, Any]] = field(default_factory=list)

    async def admin(self, verb: str, **arguments: Any) -> dict[str, Any]:
        if arguments.get("messages") == []:
            return {"position": 0}
        if "about" in arguments and not self.knows_rows:
            raise InvalidPayload("argument about is unknown to queue.import, whose arguments are queue; leave it out")
        self.parts.append((base64.b64decode(arguments["part_base64"]), arguments.get("about")))
        ends = arguments["offset"] + len(self.parts[-1][0]) == arguments["size"]
        return {"position": arguments["position"] + ends, "imported": int(ends), "expired": 0, "left": 0}


class LargeMessages(TwoMessages):
    def messages(self) -> list[ImportLine]:
        value = {"id": "m", "payload": "x" * 20, "priority": 3}
        return [ImportLine(n, orjson.dumps(value), value, 2, MessageExtra(3)) for n in (1, 2)]


@pytest.mark.parametrize("knows_rows", [True, False])
async def test_large_messages_go_as_rows_where_the_broker_takes_them(
    monkeypatch: pytest.MonkeyPatch, knows_rows: bool
) -> None:
    for limit in ("LARGE_BYTES", "BATCH_BYTES"):
        monkeypatch.setattr(import_command, limit, 16)
    broker = PartsBroker(knows_rows)
    job = Import(cast(Client, broker), "q", cast(ExportFile, LargeMessages()))
    await job.run(lambda done, total: None)
    assert job.imported == 2
    line = LargeMessages().messages()[0]
    whole = pack_row("m", b"x" * 20) if knows_rows else line.text
    assert b"".join(part for part, _ in broker.parts) == 2 * whole
    about = {"priority": 3, "expires_at": 0, "deliver_at": 0} if knows_rows else None
    assert all(told == about for _, told in broker.parts)


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


@dataclass
class ShyBroker:
    """Tells whether the queue exists, or refuses to."""

    exists: bool | None
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def queue_info(self, queue: str) -> dict[str, Any] | None:
        if self.exists is None:
            raise NotAuthorized("it requires inspect")
        return {} if self.exists else None

    async def admin(self, verb: str, **arguments: Any) -> None:
        self.asked.append((verb, arguments))


@pytest.mark.parametrize("exists", [True, False, None])
@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_queue_that_is_not_known_to_exist_is_created_for_more_than_this_connection(
    exists: bool | None, dry_run: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    broker, options = ShyBroker(exists), {"exclusive": True, "max_attempts": 7}
    await _create_missing(cast(Client, broker), "q", options, Output(json=False), dry_run=dry_run)
    tried = {"dry_run": True} if dry_run else {}
    asked = [("queue.create", {"queue": "q", "options": {"max_attempts": 7}, **tried})]
    assert broker.asked == ([] if exists else asked)
    told = (
        "the exported queue is exclusive to a connection; where queue q does not exist, it "
        f"{'would be' if dry_run else 'is'} created without that\n"
    )
    assert capsys.readouterr().err == ("" if exists else told)
