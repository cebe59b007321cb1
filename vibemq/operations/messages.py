"""Messages and dead letters as an operator sees them: JSON-ready values, and rows made ready for a replay."""

import base64
import codecs
from collections.abc import Mapping, Sequence
from typing import Any

from vibemq.errors import InvalidOptions
from vibemq.model.commands import ReplayDead
from vibemq.model.dead.fingerprint import fingerprint, fingerprint_text
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.jobs.job import JobStep
from vibemq.model.options import PRIORITY_MAX, Priority, enum_of
from vibemq.model.rows import LARGE_ROW_BYTES, Rows, RowView, with_headers
from vibemq.model.stored import DeadLetter

REPLAY_OF = "vibemq-replay-of"
REPLAY_COUNT = "vibemq-replay-count"
DEDUP_ID = "vibemq-dedup-id"
CONSUMED_HEADERS = frozenset({REPLAY_OF, REPLAY_COUNT, DEDUP_ID})
"""Not copied to a replayed message: two are set anew, and with its old dedup id it would be taken for a duplicate."""


def letter_json(letter: DeadLetter, *, with_payload: bool) -> dict[str, Any]:
    facts, view = letter.facts, RowView(letter.row)
    headers = view.headers
    shown: dict[str, Any] = {
        "dead_id": facts.dead_id,
        "queue": letter.queue,
        "group": letter.group,
        "sequence": facts.sequence,
        "id": view.message_id,
        "reason": facts.reason.name.lower(),
        "error": facts.error,
        "fingerprint": fingerprint_text(fingerprint(facts.error)),
        "attempts": facts.acquired,
        "failed": facts.failed,
        "first_failed_at": facts.first_failed_at,
        "dead_at": facts.dead_at,
        "published_at": letter.published_at,
        "replay_count": replay_count(headers),
        "size_bytes": len(letter.row),
        "headers": headers,
    }
    return shown | payload_of(view) if with_payload else shown


def message_json(row: bytes, *, sequence: int, published_at: int, priority: int = 1) -> dict[str, Any]:
    """`priority`: as the engine knows it; if that is the ordinary one, the header says what was asked for."""
    view = RowView(row)
    shown: dict[str, Any] = {
        "sequence": sequence,
        "id": view.message_id,
        "published_at": published_at,
        "priority": priority if priority != 1 else priority_of(view.headers),
        "headers": view.headers,
    }
    return shown | payload_of(view)


def priority_of(headers: Mapping[str, str]) -> int:
    """As its header says; the engine's own ordering does not come with the row."""
    try:
        return int(enum_of(Priority, headers.get("priority", "normal"), "priority"))
    except InvalidOptions:
        text = headers["priority"]
        if not (text.isascii() and text.isdecimal()):
            return int(Priority.LOW)
        # Of very many digits a few say enough, and Python reads no more than some thousands.
        return min(int(text.lstrip("0")[:20] or "0"), PRIORITY_MAX)


def payload_of(view: RowView) -> dict[str, str | int]:
    """As `payload_json`, and one that fits into no answer is not copied."""
    size = view.payload_size
    return {"payload_size": size} if size > LARGE_ROW_BYTES else payload_json(view.payload)


def payload_json(payload: bytes) -> dict[str, str | int]:
    """As text when it is UTF-8, else as base64; of one that fits into no answer the size."""
    if len(payload) > LARGE_ROW_BYTES:
        return {"payload_size": len(payload)}
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def part_of(view: RowView, offset: int, size: int) -> dict[str, Any]:
    """A part of the body: see `part_json`."""
    return part_json(view.payload_part(offset, size), offset, whole=offset + size >= view.payload_size)


def part_json(part: bytes, offset: int, *, whole: bool) -> dict[str, Any]:
    """As text when it is UTF-8, else as base64. The text ends before a character that the part has not whole, and
    `size` says how many bytes there are.

    Args:
        whole: there is nothing behind it.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(part, final=whole)
    except UnicodeDecodeError:
        shown: dict[str, Any] = {"payload_base64": base64.b64encode(part).decode()}
        size = len(part)
    else:
        shown, size = {"payload": text}, len(part) - len(decoder.getstate()[0])
    return shown | {"offset": offset, "size": size, "truncated": not whole}


def replay_count(headers: Mapping[str, str]) -> int:
    """How often this message has been replayed before; the header came from outside and may be anything."""
    text = headers.get(REPLAY_COUNT, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def replay_rows(letters: Sequence[DeadLetter]) -> Rows:
    return Rows.of([replay_row(letter) for letter in letters])


def replay(
    session: int,
    token: Any,
    queue: str,
    letters: Sequence[DeadLetter],
    rows: Rows,
    asked_by: int,
    step: JobStep | None = None,
    *,
    dry_run: bool = False,
) -> ReplayDead:
    """The letters, as they enter the queue again: `rows`. `asked_by`: the session that wants it. `step`: of the job
    that does it."""
    extras = {index: extra for index, letter in enumerate(letters) if (extra := replay_extra(letter)) is not None}
    ids = [letter.facts.dead_id for letter in letters]
    return ReplayDead(session, token, queue, ids, rows, extras or None, origins(letters), asked_by, step, dry_run)


def origins(letters: Sequence[DeadLetter]) -> dict[int, int]:
    """dead_id -> queue_id, for the queues' counts."""
    return {letter.facts.dead_id: letter.queue_id for letter in letters}


def replay_row(letter: DeadLetter) -> bytes:
    """The message as it enters a queue again: same id, payload and headers, and where it comes from."""
    view = RowView(letter.row)
    headers = view.headers
    kept = [(key, value) for key, value in headers.items() if key not in CONSUMED_HEADERS]
    kept += [(REPLAY_OF, str(letter.facts.dead_id)), (REPLAY_COUNT, str(replay_count(headers) + 1))]
    return with_headers(letter.row, kept)


def replay_extra(letter: DeadLetter) -> MessageExtra | None:
    """Its priority stays; TTL, delay and dedup begin anew with the queue's options."""
    return MessageExtra(priority=letter.priority) if letter.priority != 1 else None
