"""Publish frames (20) of one read, gathered per queue. The hot path of the broker's entrance.

A frame is expected to look like the one before: same queue, same length of id. One `struct` call, two comparisons and
two or three slices then take it in; anything else goes the long way once and sets the new expectation. Rows are the
frame's own bytes without version, type and queue, so nothing is decoded or re-encoded.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from vibemq.errors import InvalidMessage, InvalidQueueName, RemoteProtocolError, VibeMQError
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import check_queue_name
from vibemq.model.rows import Rows
from vibemq.model.steps import Steps
from vibemq.protocols.native.codec.headers import NO_HEADERS, HeaderReader, Meaning
from vibemq.protocols.native.codec.json_check import VALUES_AT_ONCE, JsonCheck, values_in
from vibemq.protocols.native.codec.wire import U32, VERSION, CommandType

_ID_AT = 9
"""Offset of the id's text in a frame: size 4, flag 1, version 1, type 1, id length 2."""
_HEAD = bytes((0, VERSION, CommandType.PUBLISH))
"""flag, version, type"""
_NAMES_MAX = 1024
_LEARNING, _HEADER_BYTES_LEARNT = 3, 64
"""To look at a header block takes as long as so many frames that look as expected, and one for so many of its bytes."""
_THE_LONG_WAY = Meaning()
"""Marks a block that has to be looked at with its frame."""


@dataclass(slots=True)
class NativeBatch:
    """Publishes of one read to one queue. `queue_block` is the queue's str16, as it travels."""

    queue: str
    queue_block: bytes
    ids: list[bytes] = field(default_factory=list)
    """str16 blocks."""
    rests: list[bytes] = field(default_factory=list)
    """Rows from the payload's length on."""
    lengths: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    """Empty where absent; only gathered when they are to be checked."""
    meanings: dict[int, Meaning] = field(default_factory=dict)

    def rows(self) -> Rows:
        count = len(self.ids)
        parts = [b""] * (2 * count)
        parts[::2] = self.ids
        parts[1::2] = self.rests
        return Rows(count, struct.pack(f"!{count}I", *self.lengths), b"".join(parts))

    def extras(self, now: int) -> dict[int, MessageExtra] | None:
        return {index: meaning.at(now) for index, meaning in self.meanings.items()} or None

    def cut(self, count: int) -> None:
        """Forget everything from index `count` on."""
        for items in (self.ids, self.rests, self.lengths):
            del items[count:]
        self.meanings = {index: meaning for index, meaning in self.meanings.items() if index < count}


class NativeRefused(Exception):
    """One publish is refused; the stream goes on."""

    def __init__(self, message_id: bytes, error: VibeMQError) -> None:
        super().__init__(str(error))
        self.message_id = message_id
        self.error = error


class PublishIntake:
    """Collects Publish frames until `flush`."""

    def __init__(self, *, body_bytes_max: int, headers: HeaderReader, json: JsonCheck) -> None:
        self.any_payload = False
        """Whether payloads may be any bytes: the session speaks batch/1."""
        self._body_bytes_max = body_bytes_max
        self._headers = headers
        self._json = json
        self._values = 0
        """Of the payloads that are to be checked, about."""
        self._batches: dict[bytes, NativeBatch] = {}
        self._names: dict[bytes, str] = {}
        self.names_learnt = 0
        """Of queues: how many there were that were not known, so that the publish may have to make its queue."""
        self._expected: NativeBatch | None = None
        self._head = b""
        self._layout = struct.Struct("!I")

    @property
    def gathered(self) -> bool:
        """Whether `flush` has something to return."""
        return bool(self._batches)

    def take(self, data: bytes, at: int, most: int) -> tuple[int, int]:
        """Take in up to `most` frames at `at` that look as expected; return where the next one begins, and as how
        many plain ones they count: headers that were never seen before take longer."""
        batch = self._expected
        if batch is None:
            return at, 0
        unpack, head, queue_block = self._layout.unpack_from, self._head, batch.queue_block
        known = self._headers.known
        payload_offset = self._layout.size
        row_offset = _ID_AT + (head[3] << 8 | head[4])
        overhead = 2 + len(queue_block)
        stop, body_bytes_max = len(data), self._body_bytes_max
        ids, rests, lengths, payloads = batch.ids, batch.rests, batch.lengths, batch.payloads
        check_payloads = not self.any_payload
        learning = 0
        for number in range(most):
            try:
                size, its_head, its_queue, payload_size = unpack(data, at)
            except struct.error:
                return at, number + learning
            end = at + 5 + size
            if its_head != head or its_queue != queue_block or end > stop or size > body_bytes_max:
                return at, number + learning
            payload_at = at + payload_offset
            payload_end = payload_at + payload_size
            block = data[payload_end:end]
            # Two zero bytes prove at once that the payload ends where it should and that nothing follows.
            if block != NO_HEADERS:
                if block in known:
                    meaning = known[block]
                else:
                    learning += _LEARNING + len(block) // _HEADER_BYTES_LEARNT
                    if number + learning >= most:
                        return at, number + learning
                    meaning = self._learn(block)
                if meaning is not None:
                    if meaning is _THE_LONG_WAY:
                        return at, number + learning
                    batch.meanings[len(ids)] = meaning
            ids.append(data[at + 7 : at + row_offset])
            rests.append(data[payload_at - 4 : end])
            lengths.append(size - overhead)
            if check_payloads:
                payloads.append(data[payload_at:payload_end])
            at = end
        return at, most + learning

    def weigh(self, data: bytes, start: int, end: int) -> int:
        """About how many values the payloads have that were taken in from there; 0 when they may be any bytes."""
        if self.any_payload:
            return 0
        values = values_in(data[start:end])
        self._values += values
        return values

    def _learn(self, block: bytes) -> Meaning | None:
        """The meaning of a header block that fills the rest of its frame."""
        try:
            size, meaning = self._headers.read(block)
        except (InvalidMessage, IndexError):
            return _THE_LONG_WAY
        return meaning if size == len(block) else _THE_LONG_WAY

    def add(self, data: bytes, start: int, end: int) -> None:
        """Take in one body the long way, and expect the next to look like it.

        Raises:
            RemoteProtocolError: a field is cut short or the id is empty.
            Refused: the frame is sound, its content is not allowed.
        """
        try:
            id_end = start + 4 + (data[start + 2] << 8 | data[start + 3])
            queue_end = id_end + 2 + (data[id_end] << 8 | data[id_end + 1])
            (payload_size,) = U32.unpack_from(data, queue_end)
            payload_end = queue_end + 4 + payload_size
            if payload_end + 2 > end:
                raise IndexError("payload is cut short")
            id_block, queue_block = data[start + 2 : id_end], data[id_end:queue_end]
            if len(id_block) == 2:
                raise RemoteProtocolError("a Publish has an empty id; ids have 1 to 65,535 bytes")
            block = data[payload_end:end]
            headers_size, meaning = 2, None
            if block != NO_HEADERS:
                headers_size, meaning = self._read_headers(id_block, block)
        except (struct.error, IndexError):
            raise RemoteProtocolError(f"a Publish of {end - start} B ends inside a field") from None
        batch = self._batch(id_block, queue_block)
        if meaning is not None:
            batch.meanings[len(batch.ids)] = meaning
        batch.ids.append(id_block)
        batch.rests.append(data[queue_end : payload_end + headers_size])
        batch.lengths.append(len(id_block) + 4 + payload_size + headers_size)
        if not self.any_payload:
            batch.payloads.append(data[queue_end + 4 : payload_end])
        self._expect(batch, id_block)

    def _read_headers(self, id_block: bytes, block: bytes) -> tuple[int, Meaning | None]:
        known = self._headers.known
        if block in known:
            return len(block), known[block]
        try:
            return self._headers.read(block)
        except InvalidMessage as error:
            raise NativeRefused(id_block, error) from None

    def _batch(self, id_block: bytes, queue_block: bytes) -> NativeBatch:
        batch = self._batches.get(queue_block)
        if batch is None:
            try:
                batch = NativeBatch(self._name(queue_block), queue_block)
            except VibeMQError as error:
                raise NativeRefused(id_block, error) from None
            self._batches[queue_block] = batch
        return batch

    def _name(self, queue_block: bytes) -> str:
        name = self._names.get(queue_block)
        if name is None:
            if len(queue_block) == 2:
                raise InvalidQueueName("PUBLISH needs a queue name in the frame's queue field")
            try:
                name = check_queue_name(queue_block[2:].decode(errors="replace"))
            except InvalidQueueName as error:
                raise InvalidMessage(str(error)) from None
            if len(self._names) >= _NAMES_MAX:
                self._names.clear()
            self._names[queue_block] = name
            self.names_learnt += 1
        return name

    def _expect(self, batch: NativeBatch, id_block: bytes) -> None:
        self._expected = batch
        self._head = _HEAD + id_block[:2]
        self._layout = _layout(len(id_block) - 2, len(batch.queue_block))

    def flush(self) -> Iterator[NativeBatch | None]:
        """What has gathered, a batch for each queue. None: a step of a long check is done.

        Raises:
            RemoteProtocolError: a payload is not JSON; what came before it was yielded first.
        """
        if not self._batches:
            return
        batches, self._batches, self._expected = self._batches, {}, None
        in_steps, self._values = self._values > VALUES_AT_ONCE, 0
        broken: NativeBatch | None = None
        for batch in batches.values():
            if not self.any_payload and not (yield from self._check_payloads(batch, in_steps)):
                broken = batch
            if batch.ids:
                yield batch
        if broken is not None:
            raise RemoteProtocolError(
                f"the payload of message {len(broken.ids) + 1} for queue {broken.queue!r} is not JSON; "
                "send JSON, or agree on batch/1 to send any bytes"
            )

    def _check_payloads(self, batch: NativeBatch, in_steps: bool) -> Steps[bool]:
        """Cut the batch before its first payload that is not JSON; False when there was one."""
        payloads = [payload for payload in batch.payloads if payload]
        bad = (yield from self._json.bad_in_steps(payloads)) if in_steps else self._json.bad(payloads)
        if not bad:
            return True
        present = [index for index, payload in enumerate(batch.payloads) if payload]
        batch.cut(present[bad[0]])
        return False


@lru_cache(maxsize=1024)
def _layout(id_size: int, queue_block_size: int) -> struct.Struct:
    """Of a Publish frame up to the payload: (size, head, queue block, payload size)."""
    return struct.Struct(f"!I5s{id_size}x{queue_block_size}sI")
