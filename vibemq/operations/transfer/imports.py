"""Messages of an exported file, put into a queue: each once, however often a part of the file is sent."""

import asyncio
import base64
import binascii
from collections.abc import Callable
from typing import Annotated, Any

import orjson
from pydantic import Field

from vibemq.errors import InvalidPayload, MessageTooLarge
from vibemq.model.commands import ImportMessages
from vibemq.model.effects import Imported
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.message_lines import read_message_line, read_message_row
from vibemq.model.rows import LARGE_ROW_BYTES, Rows
from vibemq.operations.arguments import Whole
from vibemq.operations.contracts import CommandSession, InstantSource, StoreAccess
from vibemq.operations.queues import QueueArguments
from vibemq.operations.registry import Caller, Operation
from vibemq.operations.transfer.uploads import Uploads

MESSAGES_MAX = 250
"""Of one call: the engine's part of it takes a few milliseconds."""
MESSAGES_PER_TURN = 50
"""Lines read before the loop has its turn."""
PART_TEXT_MAX = 1 << 20
NAME_MAX = 256
LINE_HEAD_BYTES_MAX = 512 << 10
"""Of the JSON text of a message beside twice its row: a byte of a header may take six."""


class ImportArguments(QueueArguments):
    import_id: Annotated[str, Field(min_length=1, max_length=NAME_MAX)] = Field(
        description="Stands for the file: whoever goes on with it names the same one."
    )
    position: Whole = Field(description="How many messages of the file come before these.")
    messages: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None = Field(
        None,
        description=f"Messages as `queue.export` answers them, at most {MESSAGES_MAX}; none: ask for the position.",
    )
    part_base64: Annotated[str, Field(max_length=PART_TEXT_MAX)] | None = Field(
        None, description="In place of messages: a part of the JSON text of one that is too large for a request."
    )
    about: dict[str, Any] | None = Field(
        None,
        description="With parts: they are of the message as `message.part` answers it, not of its JSON text, and this "
        "has its `priority`, `expires_at` and `deliver_at`.",
    )
    offset: Whole = Field(0, description="Where in that text or message the part begins.")
    size: Whole = Field(0, description="Bytes of the whole text or message.")


class QueueImports:
    def __init__(
        self, local: CommandSession, store: StoreAccess, clock: InstantSource, *, row_bytes_max: Callable[[], int]
    ) -> None:
        """`row_bytes_max`: what the limit is now; a larger message could not be handed to anybody."""
        self._local = local
        self._store = store
        self._row_bytes_max = row_bytes_max
        self._uploads = Uploads(largest=self._line_bytes_max, now=clock.now)

    def _line_bytes_max(self) -> int:
        """Of the JSON text of a message, whose body takes at most twice its bytes."""
        return 2 * self._row_bytes_max() + LINE_HEAD_BYTES_MAX

    async def take(self, caller: Caller, wanted: ImportArguments) -> dict[str, Any]:
        """The messages that are new, as far as the queue has room. The answer says how far the file has come.

        Raises:
            InvalidPayload: what is wrong with which message; none was taken.
            InvalidOptions: the position lies behind the one that the broker knows.
            Blocked: too many large messages come in parts at once.
        """
        lines = wanted.messages or []
        if wanted.part_base64 is not None:
            data = self._upload(caller, wanted)
            if data is None:
                return {"position": wanted.position, "imported": 0, "expired": 0, "left": 1}
            if wanted.about is not None:
                return await self._enter(caller, wanted, *await self._of_row(data, wanted.about))
            lines = [_object_of(data)]
        if len(lines) > MESSAGES_MAX:
            raise InvalidPayload(f"queue.import takes {MESSAGES_MAX} messages in one call, not {len(lines):,}")
        rows, extras = await self._read(lines)
        return await self._enter(caller, wanted, Rows.of(rows), extras)

    async def _enter(
        self, caller: Caller, wanted: ImportArguments, rows: Rows, extras: dict[int, MessageExtra]
    ) -> dict[str, Any]:
        done: Imported = await caller.step(
            self._local,
            lambda session, token: ImportMessages(
                session,
                token,
                wanted.queue,
                wanted.import_id,
                wanted.position,
                rows,
                extras or None,
                caller.actor.user,
            ),
        )
        return {"position": done.position, "imported": done.imported, "expired": done.expired, "left": done.left}

    async def _read(self, lines: list[dict[str, Any]]) -> tuple[list[bytes], dict[int, MessageExtra]]:
        rows: list[bytes] = []
        extras: dict[int, MessageExtra] = {}
        for index, line in enumerate(lines):
            try:
                row, extra = read_message_line(line)
            except InvalidPayload as error:
                raise InvalidPayload(f"message {index} of queue.import: {error}") from None
            self._check_size(index, row)
            rows.append(row)
            if extra != MessageExtra():
                extras[index] = extra
            if not len(rows) % MESSAGES_PER_TURN:
                await asyncio.sleep(0)
        return rows, extras

    async def _of_row(self, row: bytes, about: dict[str, Any]) -> tuple[Rows, dict[int, MessageExtra]]:
        """A large one is written ahead of its record, so that nobody waits for it."""
        extra = read_message_row(row, about)
        self._check_size(0, row)
        rows = await self._store.prepared(lambda: row) if len(row) > LARGE_ROW_BYTES else Rows.of([row])
        return rows, {} if extra == MessageExtra() else {0: extra}

    def _check_size(self, index: int, row: bytes) -> None:
        """Raises MessageTooLarge."""
        most = self._row_bytes_max()
        if len(row) > most:
            raise MessageTooLarge(
                f"message {index} of queue.import has {len(row):,} bytes; this broker takes {most:,} with id and "
                "headers (limits.message_bytes_max)"
            )

    def _upload(self, caller: Caller, wanted: ImportArguments) -> bytes | None:
        """The whole text or message, once its last part is there."""
        if wanted.size > self._line_bytes_max():
            raise MessageTooLarge(
                f"a message of {wanted.size:,} bytes of JSON is too large for this broker (limits.message_bytes_max)"
            )
        try:
            part = base64.b64decode(wanted.part_base64 or "", validate=True)
        except (ValueError, binascii.Error) as error:
            raise InvalidPayload(f"part_base64 of queue.import cannot be read: {error}") from None
        key = (wanted.queue, wanted.import_id, wanted.position)
        return self._uploads.add(caller.session, key, part, offset=wanted.offset, size=wanted.size)

    def forget_session(self, session: int) -> None:
        """Parts of messages that it has not sent whole."""
        self._uploads.forget_session(session)


def _object_of(text: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidPayload(f"the parts of the message are no JSON text together: {error}") from None
    if not isinstance(value, dict):
        raise InvalidPayload("the parts of the message are no JSON object together")
    return value


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "queue.import",
        "Put messages of an exported file into a queue, each once however often it is sent.",
        ImportArguments,
        QueueImports,
        task=QueueImports.take,
    ),
]
