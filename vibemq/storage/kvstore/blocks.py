"""Messages on disk: blocks of consecutive rows, and their upkeep in a key-value store.

    block   row count u32 | stretch count u32
            stretches: (first_sequence u64, rows u32, published_at u64) ...
            row lengths: row count x u32
            row data, joined
    info    last_sequence u64 | row count u32 | bytes of row data u64 | checksum of the block's value u32
            of a block that came from a stage also: queue_id of the stage u32 | first_sequence there u64
            | published_at u64
    lent    queue_id u32 | first_sequence u64 | published_at u64

A stretch is a run of consecutive sequences with one publishing instant: sequences between stretches are holes. A block
holds up to BLOCK_BYTES of rows (or one bigger row) and is stored under its first sequence, whole and sealed; its info
stands under the same key in a table of its own, so that upkeep need not read the block, and vouches for it: an older
block under the same key is refused. Blocks of a queue never overlap.

A block of a stage that was committed stays where it is, under the key that it has, when its messages enter their queue:
the queue's info says where it stands, under which sequences, and when its messages were published. Under the block's
key `lent` says to which queue it belongs, so that it does not go with its stage.

A dead letter's row stays in its block: moving to the DLQ copies no body, the state's `dead` set keeps it alive.

A damaged block is never merged or rewritten: it stays as it is for `check` to report, until nothing in it is alive.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from operator import add, le
from typing import NamedTuple, TypeVar, overload

import google_crc32c

from vibemq.errors import StorageDamaged
from vibemq.model.records import StageMoved
from vibemq.model.rows import Rows, single_rows
from vibemq.model.runs import Run, RunSet, run_count
from vibemq.model.stored import Slice, StoredState
from vibemq.storage.kvstore import keys
from vibemq.storage.kvstore.encoding import GARBAGE, SEAL_BYTES, seal, seal_checksum, unseal
from vibemq.storage.kvstore.store import KV
from vibemq.storage.state.arrivals import Arrivals
from vibemq.storage.state.liveness import alive_runs

BLOCK_BYTES = 256 * 1024
PIECE_BYTES = 512 * 1024
SEQUENCE_KEY_MAX = 2**64 - 1
"""The greatest that a key can hold; sequences themselves stay below `model.runs.END`."""
REWRITE_BELOW = 4
"""A block is rewritten once fewer than one in so many of its rows is alive."""

_Decoded = TypeVar("_Decoded")
_BLOCK = struct.Struct("!II")
_STRETCH = struct.Struct("!QIQ")
_INFO = struct.Struct("!QIQI")
_HOME = struct.Struct("!IQQ")
_LENT = struct.Struct("!IQQ")


class Home(NamedTuple):
    """Where a block stands that came from a stage."""

    queue_id: int
    first: int
    published_at: int
    """When its messages entered their queue."""


class BlockInfo(NamedTuple):
    first: int
    last: int
    rows: int
    size: int
    checksum: int
    home: Home | None = None
    """None: under the queue's own key."""

    @property
    def shift(self) -> int:
        return 0 if self.home is None else self.first - self.home.first


# -- slices -------------------------------------------------------------------------------------------------------


def clip(parts: Iterable[Slice], runs: Sequence[Run]) -> list[Slice]:
    """What of the slices lies in the runs (ascending, disjoint)."""
    clipped: list[Slice] = []
    for part in parts:
        first, last = part.first_sequence, part.last_sequence
        at = max(bisect_right(runs, (first, 0)) - 1, 0)
        for start, stop in runs[at:]:
            if start > last:
                break
            start, stop = max(start, first), min(stop, last)
            if start <= stop:
                rows = part.rows.slice(start - first, stop - first + 1)
                clipped.append(Slice(start, part.published_at, rows))
    return clipped


def between(parts: "BlockParts", first: int, last: int) -> Iterator[Slice]:
    """What of the slices lies in [first, last], found without a look at those before it, nor at more of them than are
    taken."""
    for at in range(parts.first_reaching(first), len(parts)):
        part = parts[at]
        if part.first_sequence > last:
            return
        if first <= part.first_sequence and part.last_sequence <= last:
            yield part
        else:
            yield from clip([part], [(first, last)])


def limit(parts: Iterable[Slice], max_bytes: int) -> Iterator[Slice]:
    """The leading rows that fit into `max_bytes` together, at least one; see `Slice.cost` for what counts."""
    used, least = 0, 1
    for part in parts:
        if used + part.cost <= max_bytes:
            used, least = used + part.cost, 0
            yield part
            continue
        fitting = max(bisect_right(part.rows.offsets(), max_bytes - used) - 1, least)
        if fitting > 0:
            yield Slice(part.first_sequence, part.published_at, part.rows.slice(0, fitting))
        return


def pack(parts: Iterable[Slice], size_max: int = BLOCK_BYTES) -> Iterator[list[Slice]]:
    """Cut ascending slices into the contents of blocks."""
    block: list[Slice] = []
    room = size_max
    for part in parts:
        offsets, count, start = part.rows.offsets(), part.rows.count, 0
        while start < count:
            # The room is negative behind a row that is bigger than a block.
            stop = max(bisect_right(offsets, offsets[start] + room) - 1, start)
            if stop == start and not block:
                stop += 1
            if stop > start:
                block.append(Slice(part.first_sequence + start, part.published_at, part.rows.slice(start, stop)))
                room -= block[-1].rows.size
                start = stop
            if start < count:
                yield block
                block, room = [], size_max
    if block:
        yield block


# -- one block ----------------------------------------------------------------------------------------------------


def encode_block(parts: Sequence[Slice]) -> list[bytes]:
    """The body of a block, in pieces; neighbouring slices of one instant become one stretch."""
    stretches: list[list[int]] = []
    for part in parts:
        tail = stretches[-1] if stretches else None
        if tail is not None and tail[0] + tail[1] == part.first_sequence and tail[2] == part.published_at:
            tail[1] += part.rows.count
        else:
            stretches.append([part.first_sequence, part.rows.count, part.published_at])
    head = _BLOCK.pack(sum(part.rows.count for part in parts), len(stretches))
    head += b"".join(_STRETCH.pack(*stretch) for stretch in stretches)
    return [head, *(part.rows.lengths for part in parts), *(part.rows.data for part in parts)]


def decode_block(body: bytes) -> list[Slice]:
    """Raises one of `encoding.GARBAGE`."""
    return list(BlockParts(body))


class BlockParts(Sequence[Slice]):
    """The slices of a block, checked. Each is made when it is asked for: a block may have thousands of them, of which
    one read takes a few hundred."""

    __slots__ = ("_data", "_firsts", "_lengths", "_offsets", "_published_at", "_starts")

    def __init__(self, body: bytes, shift: int = 0, published_at: int | None = None) -> None:
        """`shift`, `published_at`: of a block that came from a stage. Raises one of `encoding.GARBAGE`."""
        count, stretch_count = _BLOCK.unpack_from(body)
        lengths_at = _BLOCK.size + _STRETCH.size * stretch_count
        data_at = lengths_at + 4 * count
        self._lengths, self._data = body[lengths_at:data_at], memoryview(body)[data_at:]
        self._offsets = Rows(count, self._lengths, b"").offsets()
        if self._offsets[-1] != len(self._data):
            raise ValueError("row lengths do not add up")
        stretches = list(_STRETCH.iter_unpack(body[_BLOCK.size : lengths_at]))
        self._firsts = [first + shift for first, _, _ in stretches]
        self._published_at = [at if published_at is None else published_at for _, _, at in stretches]
        sizes = [size for _, size, _ in stretches]
        self._starts = list(accumulate(sizes, initial=0))
        """Of each stretch, its first row; and behind the last one, the number of all rows."""
        if 0 in sizes or not all(map(le, map(add, self._firsts, sizes), islice(self._firsts, 1, None))):
            raise ValueError("stretches are out of order")
        if self._starts[-1] != count:
            raise ValueError("stretches do not add up")

    def __len__(self) -> int:
        return len(self._firsts)

    @overload
    def __getitem__(self, index: int) -> Slice: ...
    @overload
    def __getitem__(self, index: slice) -> list[Slice]: ...
    def __getitem__(self, index: int | slice) -> Slice | list[Slice]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        start, stop = self._starts[index], self._starts[index + 1]
        lengths = self._lengths[4 * start : 4 * stop]
        rows = Rows(stop - start, lengths, bytes(self._data[self._offsets[start] : self._offsets[stop]]))
        return Slice(self._firsts[index], self._published_at[index], rows)

    def first_reaching(self, sequence: int) -> int:
        """The index of the first slice that ends at or behind the sequence."""
        at = bisect_right(self._firsts, sequence)
        before = at - 1
        if at and self._firsts[before] + self._starts[at] - self._starts[before] > sequence:
            return before
        return at


def pick_rows(body: bytes, sequences: Sequence[int], shift: int = 0, published_at: int | None = None) -> list[Slice]:
    """Of a block the rows of these sequences, which ascend, each on its own; costs less than `decode_block` as long as
    they are few. `shift`, `published_at` as of `BlockParts`. Raises one of `encoding.GARBAGE`."""
    count, stretch_count = _BLOCK.unpack_from(body)
    lengths_at = _BLOCK.size + _STRETCH.size * stretch_count
    data_at = lengths_at + 4 * count
    stretches = [(first + shift, size, at) for first, size, at in _STRETCH.iter_unpack(body[_BLOCK.size : lengths_at])]
    indexes: list[int] = []
    found: list[tuple[int, int]] = []
    at = before = 0
    for sequence in sequences:
        while at < len(stretches) and stretches[at][0] + stretches[at][1] <= sequence:
            before += stretches[at][1]
            at += 1
        if at == len(stretches):
            break
        first, _, its_time = stretches[at]
        if sequence >= first:
            indexes.append(before + sequence - first)
            found.append((sequence, its_time if published_at is None else published_at))
    rows = single_rows(body[lengths_at:data_at], body, indexes, data_at)
    return [Slice(sequence, its_time, row) for (sequence, its_time), row in zip(found, rows, strict=True)]


# -- in a store ---------------------------------------------------------------------------------------------------


def block_infos(kv: KV, queue_id: int, first: int = 0, last: int = SEQUENCE_KEY_MAX) -> Iterator[BlockInfo]:
    """The blocks that reach into [first, last], ascending. Nothing may be written while it runs."""
    before = _floor(kv, queue_id, first)
    if before is not None and before.first < first <= before.last:
        yield before
    start = keys.sequence_key(keys.BLOCK_INFO, queue_id, first)
    for key, value in kv.scan(start, keys.sequence_key(keys.BLOCK_INFO, queue_id, last) + b"\0"):
        yield _info(kv, key, value)


def load_block(kv: KV, queue_id: int, info: BlockInfo, name: str = "") -> BlockParts:
    """The rows of one block.

    Args:
        name: the queue's, for errors.

    Raises:
        StorageDamaged: names the queue and the sequences of the block that cannot be read.
    """
    return _decoded(kv, queue_id, info, name, BlockParts)


def _decoded(
    kv: KV, queue_id: int, info: BlockInfo, name: str, decode: Callable[[bytes, int, int | None], _Decoded]
) -> _Decoded:
    key = _key_of(queue_id, info)
    value = kv.get(key)
    try:
        if value is None:
            raise ValueError("it is missing")
        if seal_checksum(value) != info.checksum:
            raise ValueError("it does not match the checksum in its info")
        body = unseal(key, value, kv.where)
        return decode(body, info.shift, None if info.home is None else info.home.published_at)
    except GARBAGE as exc:
        raise StorageDamaged(
            f"messages {info.first} to {info.last} of queue {name or queue_id} cannot be read ({exc})",
            path=kv.where,
            hint="restore a backup, or save the rest with `vibemq-admin check --repair`",
        ) from exc


def load_large_block(kv: KV, queue_id: int, info: BlockInfo, value: memoryview) -> Sequence[Slice]:
    """As `load_block`, of a block that holds one large row and whose value this is: in pieces, because a copy or a
    checksum of all of it would keep the interpreter's lock for many milliseconds."""
    pieces = [bytes(value[at : at + PIECE_BYTES]) for at in range(0, len(value), PIECE_BYTES)]
    key = keys.sequence_key(keys.BLOCK, queue_id, info.first)
    checksum = google_crc32c.extend(google_crc32c.value(key), pieces[0][SEAL_BYTES:])
    for piece in pieces[1:]:
        checksum = google_crc32c.extend(checksum, piece)
    if len(pieces) < 2 or checksum != info.checksum or info.rows != 1:
        # It says what is wrong with it.
        return load_block(kv, queue_id, info)
    _, stretch_count = _BLOCK.unpack_from(pieces[0], SEAL_BYTES)
    _, _, published_at = _STRETCH.unpack_from(pieces[0], SEAL_BYTES + _BLOCK.size)
    row_at = SEAL_BYTES + _BLOCK.size + _STRETCH.size * stretch_count + 4
    lengths = pieces[0][row_at - 4 : row_at]
    # Byte strings of together more than 1 MiB are joined without the interpreter's lock.
    row = b"".join((pieces[0][row_at:], *pieces[1:]))
    return [Slice(info.first, published_at, Rows(1, lengths, row))]


def pick(kv: KV, queue_id: int, sequences: Sequence[int], start: int, name: str) -> tuple[list[Slice], int]:
    """Rows of sequences[start:], which ascend, as far as they stand in one block with the first of them, and the index
    behind those. Raises StorageDamaged like `load_block`."""
    info = next(block_infos(kv, queue_id, sequences[start], sequences[start]), None)
    if info is None:
        return [], start + 1
    stop = bisect_right(sequences, info.last, start)
    wanted = sequences[start:stop]
    return _decoded(kv, queue_id, info, name, lambda body, *moved: pick_rows(body, wanted, *moved)), stop


def put_block(kv: KV, queue_id: int, parts: Sequence[Slice]) -> BlockInfo:
    first, last = parts[0].first_sequence, parts[-1].last_sequence
    key = keys.sequence_key(keys.BLOCK, queue_id, first)
    value = seal(key, *encode_block(parts))
    count, size = sum(part.rows.count for part in parts), sum(part.rows.size for part in parts)
    info = BlockInfo(first, last, count, size, seal_checksum(value))
    kv.put(key, value)
    key = keys.sequence_key(keys.BLOCK_INFO, queue_id, first)
    kv.put(key, seal(key, _INFO.pack(*info[1:5])))
    return info


def delete_block(kv: KV, queue_id: int, info: BlockInfo) -> None:
    _delete_body(kv, queue_id, info)
    kv.delete(keys.sequence_key(keys.BLOCK_INFO, queue_id, info.first))


def _delete_body(kv: KV, queue_id: int, info: BlockInfo) -> None:
    kv.delete(_key_of(queue_id, info))
    if info.home is not None:
        kv.delete(keys.sequence_key(keys.LENT, info.home.queue_id, info.home.first))


def _key_of(queue_id: int, info: BlockInfo) -> bytes:
    if info.home is not None:
        return keys.sequence_key(keys.BLOCK, info.home.queue_id, info.home.first)
    return keys.sequence_key(keys.BLOCK, queue_id, info.first)


def lend_block(kv: KV, stage_id: int, info: BlockInfo, queue_id: int, first: int, published_at: int) -> None:
    """A block of a stage is the queue's from here on, under other sequences; it stays where it is."""
    own = keys.sequence_key(keys.BLOCK_INFO, queue_id, first)
    body = _INFO.pack(info.last + first - info.first, info.rows, info.size, info.checksum)
    kv.put(own, seal(own, body, _HOME.pack(stage_id, info.first, published_at)))
    lent = keys.sequence_key(keys.LENT, stage_id, info.first)
    kv.put(lent, seal(lent, _LENT.pack(queue_id, first, published_at)))
    kv.delete(keys.sequence_key(keys.BLOCK_INFO, stage_id, info.first))


Lent = tuple[int, int, int]
"""(queue_id, first sequence there, published_at) of who has a block of a stage."""


def unpack_lent(body: bytes) -> Lent:
    """Raises one of `encoding.GARBAGE`."""
    queue_id, first, published_at = _LENT.unpack(body)
    return queue_id, first, published_at


def lent_by(key: bytes, body: bytes, where: str) -> tuple[tuple[int, int], Lent] | None:
    """What a block's info says of it: where the block stands, and who has it; None when that is the same queue. Raises
    one of `encoding.GARBAGE`."""
    if len(body) == _INFO.size:
        return None
    home = Home(*_HOME.unpack(body[_INFO.size :]))
    return home[:2], (*keys.split_sequence_key(key, where), home.published_at)


def _floor(kv: KV, queue_id: int, sequence: int) -> BlockInfo | None:
    """The last block that starts at or before the sequence."""
    start = keys.queue_prefix(keys.BLOCK_INFO, queue_id)
    found = kv.floor(start, keys.sequence_key(keys.BLOCK_INFO, queue_id, sequence))
    return None if found is None else _info(kv, *found)


def _info(kv: KV, key: bytes, value: bytes) -> BlockInfo:
    body = unseal(key, value, kv.where)
    try:
        home = Home(*_HOME.unpack(body[_INFO.size :])) if len(body) > _INFO.size else None
        last, rows, size, checksum = _INFO.unpack(body[: _INFO.size])
        return BlockInfo(keys.split_sequence_key(key, kv.where)[1], last, rows, size, checksum, home)
    except GARBAGE as exc:
        raise StorageDamaged(f"stored value {key.hex()} cannot be read ({exc})", path=kv.where) from exc


# -- upkeep -------------------------------------------------------------------------------------------------------


def store_blocks(
    kv: KV,
    state: StoredState,
    arrivals: Arrivals,
    left: dict[int, RunSet],
    *,
    merge_tail: bool = True,
    block_bytes: int = BLOCK_BYTES,
) -> None:
    """Bring the blocks up to date with `state`, in the transaction that also writes the state.

    Args:
        arrivals: what was added since the last call, in order; only rows that are still alive are written.
        left: `Dirty.left`: where messages may have ceased to be alive.
        merge_tail: append to each queue's last block. False writes small blocks, to be joined by `merge_blocks`.
        block_bytes: of the rows of a new block.
    """
    for moved in arrivals.moved:
        _lend(kv, moved)
    for queue_id, runs in left.items():
        if queue_id in state.queues:
            _drop_dead(kv, state, queue_id, runs)
        else:
            _wipe(kv, queue_id)
    lent = {record.queue_id for record in arrivals.moved}
    for queue_id, records in arrivals.added.items():
        if queue_id not in state.queues:
            continue
        alive = _alive(
            state, queue_id, [Slice(record.first_sequence, record.published_at, record.rows) for record in records]
        )
        for some in _between_blocks(kv, queue_id, alive) if queue_id in lent else [alive]:
            _append(kv, queue_id, some, merge_tail, block_bytes)


def _lend(kv: KV, moved: StageMoved) -> None:
    for info in list(block_infos(kv, moved.stage_id)):
        if not moved.has(info.first, info.last):
            raise StorageDamaged(
                f"a record moves messages {moved.stage_first} to {moved.stage_last} of stage {moved.stage_id}, and the "
                f"stage has a block of messages {info.first} to {info.last}",
                path=kv.where,
            )
        lend_block(kv, moved.stage_id, info, moved.queue_id, info.first + moved.shift, moved.published_at)


def _between_blocks(kv: KV, queue_id: int, parts: list[Slice]) -> Iterator[list[Slice]]:
    """The parts, cut where blocks that have just come stand between them."""
    some: list[Slice] = []
    for part in parts:
        if some and next(block_infos(kv, queue_id, some[-1].first_sequence, part.first_sequence), None) is not None:
            yield some
            some = []
        some.append(part)
    if some:
        yield some


def merge_blocks(
    kv: KV, state: StoredState, queue_id: int, start: int, *, size_max: int = 4 * BLOCK_BYTES
) -> int | None:
    """Join small neighbouring blocks from sequence `start` on, and the one before them; about `size_max` bytes of them.

    Returns:
        Where to go on next time; None when nothing is left to join before more blocks come.
    """
    pile: list[BlockInfo] = []
    piled = done = 0
    for info in list(block_infos(kv, queue_id, _with_the_one_before(kv, queue_id, start))):
        if pile and piled + info.size > BLOCK_BYTES:
            _join(kv, state, queue_id, pile)
            pile, piled = [], 0
        if done >= size_max:
            return info.first
        pile.append(info)
        piled += info.size
        done += info.size
    _join(kv, state, queue_id, pile)
    return None


def _with_the_one_before(kv: KV, queue_id: int, start: int) -> int:
    """Where the block before `start` begins, if others may be joined to it; else `start`."""
    try:
        before = _floor(kv, queue_id, max(0, start - 1))
    except StorageDamaged:
        # Reads and `check` name it, and those behind it are joined all the same.
        return start
    return start if before is None or before.size >= BLOCK_BYTES else before.first


def _join(kv: KV, state: StoredState, queue_id: int, pile: Sequence[BlockInfo]) -> None:
    if len(pile) < 2:
        return
    loaded = [_load_if_sound(kv, queue_id, info) for info in pile]
    if None in loaded:
        return
    parts = [part for block in loaded for part in block or ()]
    for info in pile:
        delete_block(kv, queue_id, info)
    for block in pack(_alive(state, queue_id, parts)):
        put_block(kv, queue_id, block)


def _alive(state: StoredState, queue_id: int, parts: list[Slice]) -> list[Slice]:
    if not parts:
        return []
    queue = state.queues.get(queue_id)
    runs = [] if queue is None else alive_runs(queue, parts[0].first_sequence, parts[-1].last_sequence)
    return clip(parts, runs)


def _append(kv: KV, queue_id: int, parts: list[Slice], merge_tail: bool, block_bytes: int) -> None:
    if not parts:
        return
    tail = _floor(kv, queue_id, parts[0].first_sequence) if merge_tail else None
    if tail is not None and tail.size <= block_bytes // 2:
        before = _load_if_sound(kv, queue_id, tail)
        if before is not None:
            parts = before + parts
            delete_block(kv, queue_id, tail)
    for block in pack(parts, block_bytes):
        put_block(kv, queue_id, block)


def _wipe(kv: KV, queue_id: int) -> None:
    own, infos = keys.queue_prefix(keys.BLOCK, queue_id), keys.queue_prefix(keys.BLOCK_INFO, queue_id)
    lent = keys.queue_prefix(keys.LENT, queue_id)
    has_lent = next(iter(kv.scan(lent, keys.after(lent))), None) is not None
    for info in list(_sound_infos(kv, infos)):
        if info.home is not None or has_lent:
            _delete_body(kv, queue_id, info)
    if not has_lent:
        kv.delete_range(own, keys.after(own))
    kv.delete_range(infos, keys.after(infos))


def _sound_infos(kv: KV, prefix: bytes) -> Iterator[BlockInfo]:
    for key, value in kv.scan(prefix, keys.after(prefix)):
        try:
            yield _info(kv, key, value)
        except StorageDamaged:
            # It goes with its queue.
            continue


def _drop_dead(kv: KV, state: StoredState, queue_id: int, left: RunSet) -> None:
    looked_at = 0
    for first, last in left.runs():
        if last <= looked_at:
            continue
        for info in list(block_infos(kv, queue_id, max(first, looked_at + 1), last)):
            looked_at = info.last
            _keep_alive(kv, state, queue_id, info)


def _keep_alive(kv: KV, state: StoredState, queue_id: int, info: BlockInfo) -> None:
    """Delete the block if nothing in it is alive; rewrite it if little is."""
    kept = alive_runs(state.queues[queue_id], info.first, info.last)
    if not kept:
        delete_block(kv, queue_id, info)
    elif run_count(kept) * REWRITE_BELOW < info.rows:
        parts = _load_if_sound(kv, queue_id, info)
        if parts is None:
            return
        delete_block(kv, queue_id, info)
        live = clip(parts, kept)
        if live:
            put_block(kv, queue_id, live)


def _load_if_sound(kv: KV, queue_id: int, info: BlockInfo) -> list[Slice] | None:
    try:
        return list(load_block(kv, queue_id, info))
    except StorageDamaged:
        return None
