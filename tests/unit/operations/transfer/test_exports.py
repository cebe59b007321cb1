"""What is exported is imported as it was: any messages, cut into pages, batches and parts of any size."""

import base64
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import anyio
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.engine_driver import Driver, DriverSession
from vibemq.auth.policy import Actor, Policy
from vibemq.config import Limits
from vibemq.errors import InvalidPayload, MessageTooLarge
from vibemq.model.commands import Publish
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.message_lines import message_line, read_message_line
from vibemq.model.options import DeliveryMode
from vibemq.model.quantities import NUMBER_MAX
from vibemq.model.records import MessagesAdded
from vibemq.model.rows import LargeRow, Rows, pack_row
from vibemq.model.stored import Slice
from vibemq.operations.arguments import read
from vibemq.operations.registry import Caller, Registry
from vibemq.operations.transfer import exports
from vibemq.operations.transfer.exports import ExportArguments, PartArguments, QueueExports
from vibemq.operations.transfer.imports import ImportArguments, QueueImports
from vibemq.operations.transfer.kept_messages import KeptMessages
from vibemq.protocols.native.codec.large import ROW_OVERHEAD_BYTES, body_bytes_for
from vibemq.storage.kvstore.blocks import limit

CALLER = Caller(None, Actor("", may_manage=True), session=1)
ROW_BYTES_MAX = 1_000


class Disk:
    """The rows of a driver's records."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.provider = SimpleNamespace(read=self._stored)
        self.prepared_rows = 0

    def rows(self, queue_id: int) -> dict[int, bytes]:
        added = [r for r in self._driver.records_of(MessagesAdded) if r.queue_id == queue_id]
        return {sequence: row for r in added for sequence, row in enumerate(r.rows, r.first_sequence)}

    def _stored(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        rows = self.rows(queue_id)
        return list(limit((Slice(s, 1, Rows.of([rows[s]])) for s in rows if first <= s <= last), max_bytes))

    async def read_rows(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)

    async def prepared(self, make: Callable[[], bytes]) -> LargeRow:
        self.prepared_rows += 1
        return LargeRow(make())


class Desk:
    """Queues `q` and `copy` of one engine, with the operations that export and import."""

    def __init__(self, *, row_bytes_max: int = ROW_BYTES_MAX, **options: Any) -> None:
        self.driver = Driver()
        for queue in ("q", "copy"):
            self.driver.create(queue, **options)
        self.disk = Disk(self.driver)
        self._exports = QueueExports(self.driver.engine, KeptMessages(self.driver.engine, self.disk))  # type: ignore[arg-type]
        self._imports = QueueImports(
            DriverSession(self.driver),
            self.disk,  # type: ignore[arg-type]
            self,
            row_bytes_max=lambda: row_bytes_max,
        )
        self.registry = Registry(Policy({}), [], [self._exports, self._imports])

    def now(self) -> int:
        return self.driver.now

    async def exported(self, queue: str) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        start, below = 0, None
        while start is not None:
            page = await self._exports.page(
                CALLER, read(ExportArguments, "x", {"queue": queue, "from": start, "below": below})
            )
            answered = orjson.loads(orjson.dumps(page))
            lines += [await self._whole(queue, line) for line in answered["messages"]]
            start, below = answered["next"], answered["below"]
        return lines

    async def _whole(self, queue: str, line: dict[str, Any]) -> dict[str, Any]:
        row, size = b"", line.pop("row_size", 0)
        while len(row) < size:
            wanted = read(PartArguments, "x", {"queue": queue, "sequence": line["sequence"], "offset": len(row)})
            row += base64.b64decode((await self._exports.part(CALLER, wanted))["row_base64"])
        return line | message_line(row) if size else line

    async def take(self, *, session: int = 1, **arguments: Any) -> dict[str, Any]:
        wanted = read(ImportArguments, "x", {"queue": "copy", "import_id": "f", **arguments})
        return await self._imports.take(replace(CALLER, session=session), wanted)

    async def take_parts(self, line: dict[str, Any], position: int, size: int) -> dict[str, Any]:
        return await self._take_parts(orjson.dumps(line), size, position=position)

    async def take_row(self, line: dict[str, Any], position: int, size: int) -> dict[str, Any]:
        """The same message as its row."""
        row, extra = read_message_line(line)
        about = {"priority": extra.priority, "expires_at": extra.expires_at, "deliver_at": extra.deliver_at}
        return await self._take_parts(row, size, position=position, about=about)

    async def _take_parts(self, data: bytes, size: int, **more: Any) -> dict[str, Any]:
        answer = dict[str, Any]()
        for offset in range(0, len(data), size):
            part = base64.b64encode(data[offset : offset + size]).decode()
            answer = await self.take(part_base64=part, offset=offset, size=len(data), **more)
        return answer


texts = st.text(max_size=8)
messages = st.lists(
    st.tuples(
        st.builds(
            pack_row,
            texts.filter(bool),
            st.binary(max_size=60) | texts.map(str.encode),
            st.dictionaries(texts, texts, max_size=3).map(lambda headers: list(headers.items())),
        ),
        st.builds(
            MessageExtra, st.integers(0, 31), st.sampled_from([0, 1 << 50]), st.sampled_from([0, 1 << 49]), st.just(b"")
        ),
    ),
    max_size=12,
)
sizes = st.integers(1, 150)


@settings(max_examples=60)
@given(messages, st.tuples(sizes, sizes, sizes), st.data())
def test_what_is_exported_is_imported_as_it_was(
    published: list[tuple[bytes, MessageExtra]], limits: tuple[int, int, int], data: st.DataObject
) -> None:
    desk = Desk(mode=DeliveryMode.PRIORITY_BASED)
    for row, extra in published:
        desk.driver.ask(Publish(9, None, "q", Rows.of([row]), {0: extra}))
    page, line, part = limits

    async def copy() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        lines = await desk.exported("q")
        position = 0
        while position < len(lines):
            again = data.draw(st.integers(0, position))
            count = data.draw(st.integers(1, 5))
            if count == 1:
                take = data.draw(st.sampled_from([desk.take_parts, desk.take_row]))
                answer = await take(lines[again], again, data.draw(sizes))
            else:
                answer = await desk.take(position=again, messages=lines[again : again + count])
            assert position <= answer["position"] <= again + count or answer["position"] == position
            position = answer["position"]
        return lines, await desk.exported("copy")

    with patch.multiple(exports, PAGE_BYTES=page, LINE_BYTES_MAX=line, PART_BYTES=part):
        lines, copied = anyio.run(copy)
    told = ("sequence", "published_at", "state")
    assert [{k: v for k, v in each.items() if k not in told} for each in copied] == [
        {k: v for k, v in each.items() if k not in told} for each in lines
    ]
    queues = desk.driver.engine._state.queues
    rows = [desk.disk.rows(queues[name].queue_id) for name in ("q", "copy")]
    assert list(rows[0].values()) == list(rows[1].values()) == [row for row, _ in published]
    assert list(queues["q"].delayed.values()) == list(queues["copy"].delayed.values())
    assert list(queues["q"].expires.values()) == list(queues["copy"].expires.values())
    desk.driver.check()


def test_what_would_expire_or_be_due_beyond_every_instant_is_imported_again() -> None:
    """Other programs give the largest number where they want no limit."""
    desk = Desk(message_ttl_ms=NUMBER_MAX)
    for extra in (MessageExtra(), MessageExtra(expires_at=NUMBER_MAX + 5), MessageExtra(deliver_at=NUMBER_MAX + 5)):
        desk.driver.ask(Publish(9, None, "q", Rows.of([pack_row("m", b"x")]), {0: extra}))

    async def copy() -> dict[str, Any]:
        return await desk.take(position=0, messages=await desk.exported("q"))

    assert anyio.run(copy)["imported"] == 3
    info = desk.driver.info("copy")
    assert (info.ready, info.delayed) == (2, 1)


def line(number: int, size: int = 1) -> dict[str, Any]:
    return {"id": f"m{number}", "payload": "x" * size}


@pytest.mark.parametrize(
    ("arguments", "error", "reason"),
    [
        ({"messages": [line(0), {"id": "a"}]}, InvalidPayload, "message 1 of queue.import: .*either payload"),
        ({"messages": [line(0, 2_000)]}, MessageTooLarge, "has 2,0.. bytes; this broker takes 1,000"),
        ({"messages": [line(n) for n in range(251)]}, InvalidPayload, "takes 250 messages in one call, not 251"),
        ({"part_base64": "§", "size": 5}, InvalidPayload, "cannot be read"),
        ({"part_base64": "YQ==", "offset": 5, "size": 9}, InvalidPayload, "from offset 0 on"),
        ({"part_base64": "YQ==", "size": 1}, InvalidPayload, "no JSON text"),
        ({"part_base64": "W10=", "size": 2}, InvalidPayload, "no JSON object"),
        ({"part_base64": "YQ==", "size": 1, "about": {}}, InvalidPayload, "came as a row cannot be decoded"),
        ({"part_base64": "AAAAAAAA", "size": 6, "about": {}}, InvalidPayload, "came as a row cannot be decoded"),
        ({"part_base64": "YQ==", "size": 1, "about": {"x": 1}}, InvalidPayload, "beside a row may be priority"),
        ({"part_base64": "YQ==", "size": 1, "about": {"priority": -1}}, InvalidPayload, "priority of a message"),
        ({"part_base64": "YQ==", "size": 600_000}, MessageTooLarge, "600,000 bytes of JSON"),
    ],
)
def test_what_cannot_be_imported_is_refused(arguments: dict[str, Any], error: type[Exception], reason: str) -> None:
    desk = Desk()
    with pytest.raises(error, match=reason):
        anyio.run(lambda: desk.take(position=0, **arguments))
    assert desk.driver.info("copy").ready == 0


def test_large_messages_of_several_sessions_come_in_parts_at_the_same_time() -> None:
    desk = Desk()
    text = orjson.dumps(line(0))
    halves = [(0, text[:9]), (9, text[9:])]

    async def upload() -> list[dict[str, Any]]:
        answers = []
        for offset, half in halves:
            part = {"part_base64": base64.b64encode(half).decode(), "offset": offset, "size": len(text)}
            answers = [await desk.take(session=n, import_id=f"f{n}", position=0, **part) for n in range(1, 31)]
        return answers

    assert [answer["imported"] for answer in anyio.run(upload)] == [1] * 30


def test_parts_for_another_queue_are_another_message() -> None:
    desk = Desk()
    begun = {"position": 0, "part_base64": "eyJp", "size": 100}
    anyio.run(lambda: desk.take(**begun))
    with pytest.raises(InvalidPayload, match="from offset 0 on"):
        anyio.run(lambda: desk.take(queue="q", offset=3, **begun))


def test_parts_of_a_session_that_is_gone_are_forgotten() -> None:
    desk = Desk()
    begun = {"position": 0, "part_base64": "eyJp", "size": 100}
    anyio.run(lambda: desk.take(**begun))
    desk.registry.forget_session(1)
    with pytest.raises(InvalidPayload, match="from offset 0 on"):
        anyio.run(lambda: desk.take(offset=3, **begun))


def test_a_message_with_the_largest_body_is_imported() -> None:
    limits = Limits(message_bytes_max=1 << 20)
    desk = Desk(row_bytes_max=limits.row_bytes_max)
    largest = {"id": "m", "payload": "\n" * limits.message_bytes_max, "headers": {"a": "b"}}
    answer = anyio.run(lambda: desk.take_parts(largest, 0, 256 << 10))
    assert (answer["imported"], desk.driver.info("copy").ready) == (1, 1)
    assert limits.row_bytes_max + ROW_OVERHEAD_BYTES == body_bytes_for(limits.message_bytes_max)


def test_a_large_message_that_comes_as_its_row_is_written_ahead_of_its_record() -> None:
    desk = Desk(row_bytes_max=Limits(message_bytes_max=1 << 20).row_bytes_max)
    for number, size in enumerate((10, 1 << 20)):
        large = {"id": "m", "payload": "x" * size, "headers": {"a": "b"}, "priority": 3}
        assert anyio.run(desk.take_row, large, number, 256 << 10)["imported"] == 1
        assert desk.disk.prepared_rows == number
