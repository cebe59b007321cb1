"""One dead letter goes and an edited message enters a queue: one step of the engine, so it is never both or neither."""

import base64
import binascii
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from vibemq.errors import InvalidPayload, MessageNotFound, MessageTooLarge, QueueNotFound, StorageDamaged
from vibemq.model.rows import LARGE_ROW_BYTES, Rows, RowView, pack_row
from vibemq.model.stored import DeadLetter
from vibemq.operations.arguments import CanBeTried, Headers, QueueName, Whole
from vibemq.operations.contracts import CommandSession, EngineQuestions, StoreAccess
from vibemq.operations.dead_letters import DeadLetterReader, no_room
from vibemq.operations.messages import CONSUMED_HEADERS, REPLAY_COUNT, REPLAY_OF, replay, replay_count
from vibemq.operations.registry import Caller, Operation

EDITED = "vibemq-edited"
"""Of a message that is not what died: what was changed, `payload`, `headers` or both."""
_NOTE_MAX = 1_000


class EditArguments(CanBeTried):
    dead_id: Whole = Field(description="Id of the dead letter.")
    queue: QueueName | None = Field(None, description="The queue it died in; one of another queue is not found.")
    payload: str | None = Field(None, repr=False, description="The new payload, as base64.")
    text: str | None = Field(None, repr=False, description="In place of `payload`: the new payload, as text.")
    headers: Headers | None = Field(
        None, repr=False, description="All headers of the message from now on; left out: those that it had."
    )
    to: QueueName | None = Field(None, description="Queue that it goes to; left out: where it died.")
    note: Annotated[str, Field(max_length=_NOTE_MAX)] = Field("", description="Why; for the audit log.")


class _Edit(NamedTuple):
    row: bytes
    edited: list[str]
    changes: dict[str, Any]


class LetterEdits:
    def __init__(
        self,
        engine: EngineQuestions,
        store: StoreAccess,
        reader: DeadLetterReader,
        local: CommandSession,
        *,
        row_bytes_max: Callable[[], int],
    ) -> None:
        """`row_bytes_max`: what the limit is now; a larger message could not be handed to anybody."""
        self._engine = engine
        self._store = store
        self._reader = reader
        self._local = local
        self._row_bytes_max = row_bytes_max

    async def edit(self, caller: Caller, wanted: EditArguments) -> dict[str, Any]:
        """Raises MessageNotFound, also when somebody else takes the letter meanwhile; QueueNotFound, QueueFull,
        MessageTooLarge, InvalidPayload, StorageDamaged. Then the letter is where it was, or with whoever took it."""
        _check_payload(wanted)
        letter = await self._letter(wanted)
        queue = wanted.to or letter.queue
        if self._engine.readers.tail(queue) is None:
            raise QueueNotFound(queue)
        given = wanted.payload if wanted.payload is not None else wanted.text or ""
        if max(len(letter.row), len(given)) > LARGE_ROW_BYTES:
            edit = await self._store.aside(self._edited, letter, wanted)
        else:
            edit = self._edited(letter, wanted)
        # Such a row is prepared in a thread, and its record is short to write.
        is_prepared = len(edit.row) > LARGE_ROW_BYTES and not wanted.dry_run
        rows = await self._store.prepared(lambda: edit.row) if is_prepared else Rows.of([edit.row])
        counted = await caller.step(
            self._local,
            partial(replay, queue=queue, letters=[letter], rows=rows, asked_by=caller.session, dry_run=wanted.dry_run),
        )
        if counted.left:
            raise no_room(queue)
        if not counted.count:
            raise _gone(wanted.dead_id)
        return {
            "queue": queue,
            "dead_id": wanted.dead_id,
            "edited": edit.edited,
            "changes": edit.changes,
        }

    def _edited(self, letter: DeadLetter, wanted: EditArguments) -> _Edit:
        """What is long work for a large message. Raises InvalidPayload, MessageTooLarge."""
        new_payload = _payload_of(wanted)
        view = RowView(letter.row)
        before = view.payload
        payload = before if new_payload is None else new_payload
        headers = {k: v for k, v in view.headers.items() if k not in CONSUMED_HEADERS and k != EDITED}
        given = headers if wanted.headers is None else _own_headers(wanted.headers)
        edited = [*(["payload"] if payload != before else []), *(["headers"] if given != headers else [])]
        changes = {
            "size_before": len(before),
            "sha256_before": sha256(before).hexdigest(),
            "size_after": len(payload),
            "sha256_after": sha256(payload).hexdigest(),
            "headers_changed": _changed(headers, given),
        }
        return _Edit(self._row(letter, payload, given, ",".join(edited)), edited, changes)

    async def _letter(self, wanted: EditArguments) -> DeadLetter:
        found = await self._reader.one(wanted.dead_id)
        if found.letters and wanted.queue in (None, found.letters[0].queue):
            return found.letters[0]
        if found.damaged and wanted.queue in (None, found.damaged[0].queue):
            raise StorageDamaged(found.damaged[0].why, path="the store")
        raise _gone(wanted.dead_id)

    def _row(self, letter: DeadLetter, payload: bytes, headers: Mapping[str, str], edited: str) -> bytes:
        view = RowView(letter.row)
        own = [(REPLAY_OF, str(letter.facts.dead_id)), (REPLAY_COUNT, str(replay_count(view.headers) + 1))]
        try:
            row = pack_row(view.message_id, payload, [*headers.items(), *own, *([(EDITED, edited)] if edited else [])])
        except (ValueError, UnicodeEncodeError) as error:
            raise InvalidPayload(f"the edited message cannot be stored: {error}") from None
        if len(row) > (most := self._row_bytes_max()):
            raise MessageTooLarge(
                f"the edited message has {len(row)} bytes, the most is {most} with id and headers "
                "(settings: limits.message_bytes_max)"
            )
        return row


def _check_payload(wanted: EditArguments) -> None:
    if wanted.payload is not None and wanted.text is not None:
        raise InvalidPayload("dlq.edit takes either payload or text; give one of them")


def _payload_of(wanted: EditArguments) -> bytes | None:
    """None = it stays. Raises InvalidPayload."""
    if wanted.text is not None:
        try:
            return wanted.text.encode()
        except UnicodeEncodeError:
            raise InvalidPayload("argument text of dlq.edit is no valid Unicode; send bytes as payload") from None
    if wanted.payload is None:
        return None
    try:
        return base64.b64decode(wanted.payload, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidPayload("argument payload of dlq.edit must be base64; for text use the argument text") from None


def _own_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Without those that the broker sets itself."""
    return {name: value for name, value in headers.items() if name not in CONSUMED_HEADERS and name != EDITED}


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Names only: values may be secret."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _gone(dead_id: int) -> MessageNotFound:
    return MessageNotFound(f"there is no dead letter {dead_id}; it was replayed or purged, or it never existed")


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "dlq.edit",
        "Put one dead letter back with another payload or other headers, in one step; without a change as it is.",
        EditArguments,
        LetterEdits,
        task=LetterEdits.edit,
        scans=True,
        logged=True,
        audited=True,
    ),
]
