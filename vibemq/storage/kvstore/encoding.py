"""Batches of records as bytes, and the seal that every stored value carries. No files here.

    batch     version u8 = 1 | record count u32 | records
    record    tag u8 | body size u32 | body                     size: so that a reader skips nothing by mistake

    MessagesAdded (8; 26 when they are apart from those before)
        queue_id u32 | first_sequence u64 | published_at u64 | row count u32 | extra count u32 | data size u64
        row lengths   row count x u32                           `Rows.lengths` as it is
        row data      data size bytes                           `Rows.data` as it is
        extras, column-wise: indexes n x u32 | priorities n x u8 | expires_at n x u64 | deliver_at n x u64
                             | dedup id sizes n x u16 | dedup ids, joined
    HandedOut (9), Settled (11)
        queue_id u32 | group_id u32 | run count u32 | (first u64, last u64) x count
    Dropped (12)
        queue_id u32 | reason u32 | run count u32 | (first u64, last u64) x count
    DeadRemoved (14)
        replayed u8 | count u32 | dead_id u64 x count
    the rest  a JSON array of the record's fields in order; options as `options_to_dict` gives them

    sealed value   version u8 = 1 | crc32c u32 over key, then body | body

All integers are big-endian. A batch carries no checksum of its own: the journal frames it with one. The key is part of
a sealed value's checksum, so a value that turns up under another key counts as damaged.

Changing a layout: raise its version, keep the old reader, add a migration.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache, partial, reduce
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple, TypeVar

import google_crc32c
import orjson

from vibemq.errors import StorageDamaged, VibeMQError
from vibemq.model.access import ResourceKind, Rule, shared_actions
from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.extras.columns import ExtraColumns, columns_of, each_of
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.instants import Values
from vibemq.model.jobs.job import JobState
from vibemq.model.jobs.job_records import (
    JobAdvanced,
    JobChanged,
    JobLettersDied,
    JobMadeSettled,
    JobsForgotten,
    JobStarted,
)
from vibemq.model.options import options_from_dict, options_to_dict
from vibemq.model.records import (
    Attempts,
    CursorChanged,
    CursorFacts,
    DeadFacts,
    DeadLettered,
    DeadRemoved,
    Dropped,
    GroupCreated,
    GroupDeleted,
    GroupFiltered,
    GroupMoved,
    GroupOwned,
    GroupRenamed,
    HandedOut,
    MessagesAdded,
    Plan,
    PlanMade,
    PlansForgotten,
    QueueAttended,
    QueueChanged,
    QueueCreated,
    QueueDeleted,
    Reason,
    Record,
    Returned,
    Settled,
    StageMoved,
    TokenRemoved,
    TokenStored,
    TransactionDecided,
    TransactionsForgotten,
    UserRemoved,
    UserStored,
)
from vibemq.model.rows import Rows
from vibemq.model.runs import Run
from vibemq.storage.state.job_values import dump_job, load_event, load_job

VERSION = 1

_BATCH = struct.Struct("!BI")
_RECORD = struct.Struct("!BI")
_ADDED = struct.Struct("!IQQIIQ")
_RUNS = struct.Struct("!III")
_U64 = struct.Struct("!Q")
_REMOVED = struct.Struct("!BI")
_SEAL = struct.Struct("!BI")
SEAL_BYTES = _SEAL.size
_ADDED_TAG = 8
_APART_TAG = 26

T = TypeVar("T")

U64_MAX = 2**64 - 1
DEDUP_ID_BYTES_MAX = 0xFFFF

# What a decoder meets in garbage; anything else is a bug of ours.
GARBAGE = (struct.error, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError, VibeMQError)


# -- sealed values ------------------------------------------------------------------------------------------------


def seal(key: bytes, *body: bytes) -> bytes:
    """A value for `key`: version, checksum, body. The body may come in pieces: they are copied once, to the value."""
    crc = reduce(google_crc32c.extend, body, google_crc32c.value(key))
    return b"".join((_SEAL.pack(VERSION, crc), *body))


def seal_checksum(value: bytes) -> int:
    """The checksum that a sealed value claims. Raises one of GARBAGE."""
    return int(_SEAL.unpack_from(value)[1])


def unseal(key: bytes, value: bytes, where: str) -> bytes:
    """The body of a sealed value. Raises StorageDamaged (`where` names the file)."""
    if len(value) < _SEAL.size:
        raise StorageDamaged(f"stored value {key.hex()} is cut short", path=where)
    version, crc = _SEAL.unpack_from(value)
    body = value[_SEAL.size :]
    if crc != google_crc32c.extend(google_crc32c.value(key), body):
        raise StorageDamaged(f"stored value {key.hex()} does not match its checksum", path=where)
    if version != VERSION:
        raise StorageDamaged(f"stored value {key.hex()} has layout {version}, known is {VERSION}", path=where)
    return body


def unpacked(key: bytes, value: bytes, where: str, unpack: Callable[[bytes], T]) -> T:
    """What a sealed value says. Raises StorageDamaged, also where `unpack` raises one of GARBAGE."""
    body = unseal(key, value, where)
    try:
        return unpack(body)
    except GARBAGE as exc:
        raise StorageDamaged(f"stored value {key.hex()} cannot be read ({exc!r})", path=where) from exc


def dump_json(value: Any) -> bytes:
    """JSON bytes. Text that is no valid Unicode (a lone surrogate) is stored with U+FFFD in its place."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        return orjson.dumps(_clean(value), option=orjson.OPT_NON_STR_KEYS)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


def load_fields(body: bytes | memoryview, *kinds: type) -> list[Any]:
    """A JSON array whose items are of these kinds; integers are 0 … 2**64-1. Raises ValueError."""
    return checked(orjson.loads(body), *kinds)


def checked(values: Any, *kinds: type) -> list[Any]:
    """The list itself when its items are of these kinds. Raises ValueError."""
    if not isinstance(values, list) or len(values) != len(kinds):
        raise ValueError(f"expected {len(kinds)} fields")
    for value, kind in zip(values, kinds, strict=True):
        # `type is`, because True would pass as an int.
        if type(value) is not kind or (isinstance(value, int) and not 0 <= value <= U64_MAX):
            raise ValueError(f"expected {kind.__name__}")
    return values


# -- batches ------------------------------------------------------------------------------------------------------


def encode_batch(records: Sequence[Record]) -> list[bytes]:
    """The batch as buffers to be written one after the other; rows are passed on, not copied."""
    parts = [_BATCH.pack(VERSION, len(records))]
    for record in records:
        if type(record) is MessagesAdded:
            _encode_added(record, parts)
        else:
            tag, encode = _ENCODERS[type(record)]
            body = encode(record)
            parts.append(_RECORD.pack(tag, len(body)) + body)
    return parts


def decode_batch(data: bytes, where: str = "a batch") -> list[Record]:
    """The records of one batch. Raises StorageDamaged, and nothing else, whatever the bytes are."""
    try:
        version, count = _BATCH.unpack_from(data)
        if version != VERSION:
            raise ValueError(f"layout {version}, known is {VERSION}")
        records: list[Record] = []
        offset = _BATCH.size
        # Rows are megabytes: they are copied once, to where they stay.
        view = memoryview(data)
        for _ in range(count):
            tag, size = _RECORD.unpack_from(data, offset)
            offset += _RECORD.size
            body = view[offset : offset + size]
            if len(body) != size:
                raise ValueError("a record is cut short")
            records.append(_DECODERS[tag](body))
            offset += size
        if offset != len(data):
            raise ValueError(f"{len(data) - offset} bytes after the last record")
    except GARBAGE as exc:
        raise StorageDamaged(f"a batch of records cannot be read ({exc})", path=where) from exc
    return records


# -- messages -----------------------------------------------------------------------------------------------------


def _encode_added(record: MessagesAdded, parts: list[bytes]) -> None:
    rows = record.rows
    extras = _encode_extras(columns_of(record.extras)) if record.extras else b""
    head = _ADDED.pack(
        record.queue_id,
        record.first_sequence,
        record.published_at,
        rows.count,
        len(record.extras) if record.extras else 0,
        len(rows.data),
    )
    size = len(head) + len(rows.lengths) + len(rows.data) + len(extras)
    tag = _APART_TAG if record.apart else _ADDED_TAG
    parts += (_RECORD.pack(tag, size) + head + rows.lengths, rows.data)
    if extras:
        parts.append(extras)


LONE_ROW_PREFIX_BYTES = _BATCH.size + _RECORD.size + _ADDED.size + 4
"""What stands before the row in a batch whose first record adds one row."""


def lone_row_bytes(prefix: bytes, queue_id: int, sequence: int) -> int:
    """The size of the row behind the first `LONE_ROW_PREFIX_BYTES` of a batch; 0 when the batch does not begin with
    this one row."""
    if len(prefix) < LONE_ROW_PREFIX_BYTES:
        return 0
    tag = _RECORD.unpack_from(prefix, _BATCH.size)[0]
    added = _ADDED.unpack_from(prefix, _BATCH.size + _RECORD.size)
    is_added = prefix[0] == VERSION and tag in (_ADDED_TAG, _APART_TAG)
    found = is_added and (added[0], added[1], added[3]) == (queue_id, sequence, 1)
    return int(added[5]) if found else 0


class AddedPlace(NamedTuple):
    """Where in a batch the rows of one `MessagesAdded` stand."""

    row_count: int
    lengths_at: int
    data_at: int
    data_size: int


class AddedPlaces:
    """Finds stretches of rows in a batch that is read in parts, and reads no rows for it.

    Args:
        read: bytes [start, stop) of the batch; raises ValueError when it does not have them.
        size: bytes of the batch.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        version, count = _BATCH.unpack(read(0, _BATCH.size))
        self.count: int = count
        self._rest = count
        if version != VERSION:
            raise ValueError(f"layout {version}, known is {VERSION}")
        self._at = _BATCH.size
        self.found: dict[tuple[int, int], AddedPlace] = {}

    def find(self, queue_id: int, first: int) -> AddedPlace | None:
        """The stretch that begins with this sequence. Raises struct.error or ValueError."""
        key = queue_id, first
        while key not in self.found and self._rest:
            self._step()
        return self.found.get(key)

    def _step(self) -> None:
        at = self._at + _RECORD.size
        head = self._read(self._at, min(at + _ADDED.size, self._size))
        tag, size = _RECORD.unpack_from(head)
        if at + size > self._size:
            raise ValueError("a record is cut short")
        if tag in (_ADDED_TAG, _APART_TAG):
            queue_id, first, _, count, _, data_size = _ADDED.unpack_from(head, _RECORD.size)
            data_at = at + _ADDED.size + 4 * count
            if data_at + data_size > at + size:
                raise ValueError("row lengths do not add up")
            self.found[queue_id, first] = AddedPlace(count, at + _ADDED.size, data_at, data_size)
        self._at, self._rest = at + size, self._rest - 1


def row_sizes(lengths: bytes) -> Sequence[int]:
    """As in `Rows.lengths`. Raises struct.error."""
    return struct.unpack(f"!{len(lengths) // 4}I", lengths)


def _encode_extras(extras: ExtraColumns) -> bytes:
    count, priorities, dedup_ids = len(extras), extras.priorities, extras.dedup_ids
    return b"".join(
        (
            struct.pack(f"!{count}I", *extras.indexes),
            bytes((priorities,)) * count if isinstance(priorities, int) else bytes(priorities),
            _encode_instants(extras.expires_at, count),
            _encode_instants(extras.deliver_at, count),
            struct.pack(f"!{count}H", *map(len, dedup_ids)) if dedup_ids else bytes(2 * count),
            *dedup_ids,
        )
    )


def _encode_instants(instants: Values, count: int) -> bytes:
    return _U64.pack(instants) * count if isinstance(instants, int) else struct.pack(f"!{count}Q", *instants)


def _decode_added(body: memoryview, *, apart: bool = False) -> MessagesAdded:
    queue_id, first, published_at, count, extra_count, data_size = _ADDED.unpack_from(body)
    data_at = _ADDED.size + 4 * count
    lengths = bytes(body[_ADDED.size : data_at])
    data = bytes(body[data_at : data_at + data_size])
    rows = Rows(count, lengths, data)
    if len(data) != data_size or sum(rows.row_lengths()) != data_size:
        raise ValueError("row lengths do not add up")
    extras = _decode_extras(body, data_at + data_size, extra_count, count)
    return MessagesAdded(queue_id, first, published_at, rows, extras, apart)


def _decode_extras(body: memoryview, offset: int, count: int, row_count: int) -> ExtraColumns | None:
    if not count:
        if offset != len(body):
            raise ValueError("bytes after the rows")
        return None
    columns: list[tuple[int, ...]] = []
    for letter in "IBQQH":
        column = struct.Struct(f"!{count}{letter}")
        columns.append(column.unpack_from(body, offset))
        offset += column.size
    indexes = columns[0]
    priorities, expires, delays, sizes = map(_common, columns[1:])
    if sizes == 0:
        dedup_ids, end = list[bytes](), offset
    elif isinstance(sizes, int):
        end = offset + sizes * count
        joined = bytes(body[offset:end])
        dedup_ids = [joined[at : at + sizes] for at in range(0, sizes * count, sizes)]
    else:
        ends = list(accumulate(each_of(sizes, count), initial=offset))
        dedup_ids, end = [bytes(body[start:end]) for start, end in pairwise(ends)], ends[-1]
    if end != len(body) or max(indexes) >= row_count:
        raise ValueError("extras do not add up")
    neighbours = range(indexes[0], indexes[0] + count)
    if indexes == tuple(neighbours):
        return ExtraColumns(neighbours, priorities, expires, delays, dedup_ids)
    # Older brokers wrote them in the order in which the publisher told them.
    every = (each_of(priorities, count), each_of(expires, count), each_of(delays, count), dedup_ids or [b""] * count)
    return columns_of(dict(zip(indexes, map(MessageExtra, *every), strict=True)))


def _common(values: tuple[int, ...]) -> Values:
    return values[0] if values.count(values[0]) == len(values) else values


# -- runs ---------------------------------------------------------------------------------------------------------


def pack_runs(runs: Sequence[Run]) -> bytes:
    return struct.pack(f"!{2 * len(runs)}Q", *chain.from_iterable(runs))


def unpack_runs(body: bytes | memoryview, offset: int, count: int) -> list[Run]:
    """`count` runs that fill `body` from `offset` to its end. Raises ValueError or struct.error."""
    if len(body) - offset != 16 * count:
        raise ValueError("runs do not add up")
    numbers = struct.unpack_from(f"!{2 * count}Q", body, offset)
    runs = list(zip(numbers[::2], numbers[1::2], strict=True))
    if any(first > last for first, last in runs):
        raise ValueError("a run ends before it starts")
    return runs


def _encode_group_runs(record: HandedOut | Settled) -> bytes:
    return _RUNS.pack(record.queue_id, record.group_id, len(record.runs)) + pack_runs(record.runs)


def _decode_stage_moved(body: memoryview) -> StageMoved:
    moved = StageMoved(*load_fields(body, *[int] * (len(StageMoved.__slots__) - 1), bool))
    if not moved.count:
        raise ValueError("a move of nothing")
    return moved


def _encode_dropped(record: Dropped) -> bytes:
    return _RUNS.pack(record.queue_id, record.reason, len(record.runs)) + pack_runs(record.runs)


def _decode_runs(body: memoryview) -> tuple[int, int, list[Run]]:
    queue_id, other, count = _RUNS.unpack_from(body)
    return queue_id, other, unpack_runs(body, _RUNS.size, count)


def _decode_dropped(body: memoryview) -> Dropped:
    queue_id, reason, runs = _decode_runs(body)
    return Dropped(queue_id, runs, Reason(reason))


def _encode_dead_removed(record: DeadRemoved) -> bytes:
    count = len(record.dead_ids)
    return _REMOVED.pack(record.replayed, count) + struct.pack(f"!{count}Q", *record.dead_ids)


def _decode_dead_removed(body: memoryview) -> DeadRemoved:
    replayed, count = _REMOVED.unpack_from(body)
    if len(body) != _REMOVED.size + 8 * count:
        raise ValueError("dead ids do not add up")
    return DeadRemoved(list(struct.unpack_from(f"!{count}Q", body, _REMOVED.size)), bool(replayed))


# -- the rest -----------------------------------------------------------------------------------------------------


def _plain(*names: str) -> Callable[[Any], bytes]:
    def encode(record: Any) -> bytes:
        return dump_json([getattr(record, name) for name in names])

    return encode


def _plain_decoder(cls: Callable[..., Record], *kinds: type) -> Callable[[memoryview], Record]:
    def decode(body: memoryview) -> Record:
        return cls(*load_fields(body, *kinds))

    return decode


def _encode_queue_created(r: QueueCreated) -> bytes:
    return dump_json([r.queue_id, r.name, options_to_dict(r.options), r.created_at, r.incarnation])


def _decode_queue_created(body: memoryview) -> QueueCreated:
    queue_id, name, options, created_at, incarnation = load_fields(body, int, str, dict, int, str)
    return QueueCreated(queue_id, name, options_from_dict(options), created_at, incarnation)


def _decode_queue_changed(body: memoryview) -> QueueChanged:
    queue_id, options = load_fields(body, int, dict)
    return QueueChanged(queue_id, options_from_dict(options))


def _encode_returned(r: Returned) -> bytes:
    # orjson takes lists, not named tuples.
    return dump_json([r.queue_id, r.group_id, list(r.attempts), list(map(list, r.attempts.values()))])


def _encode_dead_lettered(r: DeadLettered) -> bytes:
    return dump_json([r.queue_id, r.group_id, list(map(list, r.letters))])


def _decode_returned(body: memoryview) -> Returned:
    queue_id, group_id, sequences, histories = load_fields(body, int, int, list, list)
    checked(sequences, *[int] * len(sequences))
    attempts = {sequence: load_attempts(history) for sequence, history in zip(sequences, histories, strict=True)}
    return Returned(queue_id, group_id, attempts)


def _decode_dead_lettered(body: memoryview) -> DeadLettered:
    queue_id, group_id, letters = load_fields(body, int, int, list)
    return DeadLettered(queue_id, group_id, [load_facts(letter) for letter in letters])


def _encode_cursor_changed(r: CursorChanged) -> bytes:
    return dump_json([r.queue_id, r.group_id, dump_cursor(r.facts)])


def _decode_cursor_changed(body: memoryview) -> CursorChanged:
    queue_id, group_id, facts = load_fields(body, int, int, list)
    return CursorChanged(queue_id, group_id, load_cursor(facts))


CURSOR_GREW = ((int, bool), (bool,))
"""Fields of a cursor that were added behind its runs, by version."""
PLAN_GREW = ((int, str, int, int, int, str, int), (int, int))
"""Fields of a plan that were added to its tag and its end, by version."""


def _encode_plan_made(r: PlanMade) -> bytes:
    return dump_json([r.queue_id, r.group_id, r.number, *r.plan])


def _decode_plan_made(body: memoryview) -> PlanMade:
    queue_id, group_id, number, *plan = load_grown(body, (int, int, int, str, str), PLAN_GREW)
    return PlanMade(queue_id, group_id, number, Plan(*plan))


def _encode_transaction_decided(r: TransactionDecided) -> bytes:
    return dump_json([r.app, r.version, r.decided_at, r.stages, r.tag, r.owner])


def _decode_transaction_decided(body: memoryview) -> TransactionDecided:
    fields = load_grown(body, (str, int, int, list, str), [(str,)])
    fields[3] = checked(fields[3], *[int] * len(fields[3]))
    return TransactionDecided(*fields)


def load_grown(body: bytes | memoryview, kinds: Sequence[type], later: Sequence[Sequence[type]]) -> list[Any]:
    """As `load_fields`, of a record to which the fields of `later` were added, those of a version all or none. Raises
    ValueError."""
    return _grown(orjson.loads(body), kinds, later)


def _grown(values: Any, kinds: Sequence[type], later: Sequence[Sequence[type]]) -> list[Any]:
    known = list(kinds)
    for added in later:
        if isinstance(values, list) and len(values) <= len(known):
            break
        known += added
    return checked(values, *known)


def _decode_transactions_forgotten(body: memoryview) -> TransactionsForgotten:
    (apps,) = load_fields(body, list)
    return TransactionsForgotten(checked(apps, *[str] * len(apps)))


def dump_rules(rules: tuple[Rule, ...] | None) -> list[list[Any]] | None:
    """A JSON array of [kind, pattern, [action ...]]."""
    return None if rules is None else [[rule.kind, rule.pattern, sorted(rule.actions)] for rule in rules]


_KINDS = {kind.value: kind for kind in ResourceKind}


def load_rules(values: list[Any]) -> tuple[Rule, ...]:
    """Raises ValueError."""
    rules = []
    for value in values:
        kind, pattern, actions = checked(value, str, str, list)
        try:
            rules.append(Rule(_KINDS[kind], pattern, _load_actions(tuple(actions))))
        except (KeyError, TypeError):
            raise ValueError(f"expected a kind of resources and names of actions, not {value}") from None
    return tuple(rules)


@lru_cache(maxsize=1024)
def _load_actions(values: tuple[Any, ...]) -> frozenset[str]:
    """Once for each set of them: a hundred thousand rules are read when a broker starts."""
    return shared_actions(checked(list(values), *[str] * len(values)))


def dump_user(user: StoredUser) -> list[Any]:
    """A JSON array of everything but the name."""
    return [user.password_hash, user.superuser, dump_rules(user.rules), user.created_at, user.changed_at]


def load_user(name: str, values: Any) -> StoredUser:
    """Raises ValueError."""
    password_hash, superuser, rules, created_at, changed_at = checked(values, str, bool, list, int, int)
    return StoredUser(name, password_hash, superuser, load_rules(rules), created_at, changed_at)


def dump_token(token: StoredToken) -> list[Any]:
    """A JSON array of everything but the token_id; the rules, when there are any, come last."""
    narrower = [] if token.rules is None else [dump_rules(token.rules)]
    instants = (token.created_at, token.expires_at, token.used_at)
    return [token.user, token.key.hex(), token.digest.hex(), token.label, *instants, *narrower]


def load_token(token_id: str, values: Any) -> StoredToken:
    """Raises ValueError."""
    narrower = (list,) if isinstance(values, list) and len(values) > 7 else ()
    user, key, digest, label, created_at, expires_at, used_at, *rules = checked(
        values, str, str, str, str, int, int, int, *narrower
    )
    return StoredToken(
        token_id,
        user,
        bytes.fromhex(key),
        bytes.fromhex(digest),
        label,
        created_at,
        expires_at,
        used_at,
        load_rules(rules[0]) if rules else None,
    )


def _decode_user_stored(body: memoryview) -> UserStored:
    name, values = load_fields(body, str, list)
    return UserStored(load_user(name, values))


def _decode_token_stored(body: memoryview) -> TokenStored:
    token_id, values = load_fields(body, str, list)
    return TokenStored(load_token(token_id, values))


def _encode_job_changed(r: JobChanged) -> bytes:
    return dump_json([r.job_id, r.at, list(r.event), r.state, r.why, r.rate, r.absolved])


def _decode_job_changed(body: memoryview) -> JobChanged:
    job_id, at, event, state, why, rate, absolved = orjson.loads(body)
    wanted = None if state is None else JobState(state)
    checked([job_id, at, why, absolved], int, int, str, bool)
    return JobChanged(job_id, at, load_event(event), wanted, why, float(rate), absolved)


def _encode_job_letters_died(r: JobLettersDied) -> bytes:
    """The flag is left out where it is not set, as it was before there was one."""
    return dump_json([r.job_id, r.queue_id, r.runs, *[True] * r.gone])


def _decode_job_letters_died(body: memoryview) -> JobLettersDied:
    job_id, queue_id, runs, *gone = orjson.loads(body)
    checked([job_id, queue_id, runs, *gone], int, int, list, *[bool] * len(gone))
    return JobLettersDied(job_id, queue_id, list(_load_runs(runs)), *gone)


def _decode_job_made_settled(body: memoryview) -> JobMadeSettled:
    job_id, stretches = load_fields(body, int, list)
    return JobMadeSettled(job_id, [(*checked(stretch, int, int, int),) for stretch in stretches])


def _decode_jobs_forgotten(body: memoryview) -> JobsForgotten:
    (job_ids,) = load_fields(body, list)
    return JobsForgotten(checked(job_ids, *[int] * len(job_ids)))


def dump_cursor(facts: CursorFacts) -> list[Any]:
    """A JSON array of the facts in order; runs are pairs."""
    lost, quarantined = ([list(run) for run in runs] for runs in (facts.lost, facts.quarantined))
    return [*facts[:8], lost, quarantined, facts.head, facts.moved, facts.begun]


def load_cursor(values: Any) -> CursorFacts:
    """From a JSON array, also of the versions that ended with the runs, or with what came next. Raises ValueError."""
    fields = _grown(values, (int, int, int, int, int, bool, int, str, list, list), CURSOR_GREW)
    fields[8], fields[9] = _load_runs(fields[8]), _load_runs(fields[9])
    return CursorFacts(*fields)


def _load_runs(values: list[Any]) -> tuple[Run, ...]:
    runs = [checked(pair, int, int) for pair in values]
    if any(first > last for first, last in runs):
        raise ValueError("a run ends before it starts")
    return tuple((first, last) for first, last in runs)


def load_attempts(values: Any) -> Attempts:
    """From a JSON array. Raises ValueError."""
    return Attempts(*checked(values, int, int, int, int, int, str))


def load_facts(values: Any) -> DeadFacts:
    """From a JSON array. Raises ValueError."""
    dead_id, sequence, reason, error, *times = checked(values, int, int, int, str, int, int, int, int)
    return DeadFacts(dead_id, sequence, Reason(reason), error, *times)


_ENCODERS: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    QueueCreated: (1, _encode_queue_created),
    QueueChanged: (2, lambda r: dump_json([r.queue_id, options_to_dict(r.options)])),
    QueueDeleted: (3, _plain("queue_id")),
    GroupCreated: (4, _plain("queue_id", "group_id", "name", "durable", "head")),
    GroupRenamed: (5, _plain("queue_id", "group_id", "name", "durable")),
    GroupDeleted: (6, _plain("queue_id", "group_id")),
    GroupMoved: (7, _plain("queue_id", "group_id", "head", "epoch")),
    HandedOut: (9, _encode_group_runs),
    Returned: (10, _encode_returned),
    Settled: (11, _encode_group_runs),
    Dropped: (12, _encode_dropped),
    DeadLettered: (13, _encode_dead_lettered),
    DeadRemoved: (14, _encode_dead_removed),
    CursorChanged: (15, _encode_cursor_changed),
    TransactionDecided: (16, _encode_transaction_decided),
    TransactionsForgotten: (17, _plain("apps")),
    GroupOwned: (18, _plain("queue_id", "group_id", "owner")),
    PlanMade: (19, _encode_plan_made),
    PlansForgotten: (20, _plain("queue_id", "group_id", "below")),
    UserStored: (21, lambda r: dump_json([r.user.name, dump_user(r.user)])),
    UserRemoved: (22, _plain("name")),
    TokenStored: (23, lambda r: dump_json([r.token.token_id, dump_token(r.token)])),
    TokenRemoved: (24, _plain("token_id")),
    QueueAttended: (25, _plain("queue_id")),
    GroupFiltered: (27, _plain("queue_id", "group_id", "where")),
    JobStarted: (28, lambda r: dump_json(dump_job(r.job))),
    JobAdvanced: (29, _plain(*JobAdvanced.__slots__)),
    JobChanged: (30, _encode_job_changed),
    JobLettersDied: (31, _encode_job_letters_died),
    JobsForgotten: (32, _plain("job_ids")),
    StageMoved: (33, _plain(*StageMoved.__slots__)),
    JobMadeSettled: (34, _plain("job_id", "stretches")),
}

_DECODERS: dict[int, Callable[[memoryview], Record]] = {
    1: _decode_queue_created,
    2: _decode_queue_changed,
    3: _plain_decoder(QueueDeleted, int),
    4: _plain_decoder(GroupCreated, int, int, str, bool, int),
    5: _plain_decoder(GroupRenamed, int, int, str, bool),
    6: _plain_decoder(GroupDeleted, int, int),
    7: _plain_decoder(GroupMoved, int, int, int, int),
    _ADDED_TAG: _decode_added,
    9: lambda body: HandedOut(*_decode_runs(body)),
    10: _decode_returned,
    11: lambda body: Settled(*_decode_runs(body)),
    12: _decode_dropped,
    13: _decode_dead_lettered,
    14: _decode_dead_removed,
    15: _decode_cursor_changed,
    16: _decode_transaction_decided,
    17: _decode_transactions_forgotten,
    18: _plain_decoder(GroupOwned, int, int, str),
    19: _decode_plan_made,
    20: _plain_decoder(PlansForgotten, int, int, int),
    21: _decode_user_stored,
    22: _plain_decoder(UserRemoved, str),
    23: _decode_token_stored,
    24: _plain_decoder(TokenRemoved, str),
    25: _plain_decoder(QueueAttended, int),
    _APART_TAG: partial(_decode_added, apart=True),
    27: _plain_decoder(GroupFiltered, int, int, str),
    28: lambda body: JobStarted(load_job(orjson.loads(body))),
    29: _plain_decoder(JobAdvanced, *[int] * len(JobAdvanced.__slots__)),
    30: _decode_job_changed,
    31: _decode_job_letters_died,
    32: _decode_jobs_forgotten,
    33: _decode_stage_moved,
    34: _decode_job_made_settled,
}
