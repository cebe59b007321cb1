"""Bytes from a peer to requests: the reading half of a native session."""

from collections.abc import Iterator

from vibemq.errors import (
    InvalidMessage,
    InvalidQueueName,
    MessageTooLarge,
    NotAuthenticated,
    RemoteProtocolError,
    VibeMQError,
)
from vibemq.model.arguments import utf16_units
from vibemq.model.commands import Publish
from vibemq.model.options import check_queue_name
from vibemq.protocols.native import bulk, commands, handshake
from vibemq.protocols.native.codec.compression import GrowsTooLarge, Inflater
from vibemq.protocols.native.codec.extensions import (
    CURSOR_EXTENSION,
    REQUEST_EXTENSION,
    PublishMany,
    begin_publish_many,
)
from vibemq.protocols.native.codec.frames import HEADER_SIZE, ByteBuffer, Frame, FrameTooLong, find_frame
from vibemq.protocols.native.codec.json_check import VALUES_AT_ONCE, values_in
from vibemq.protocols.native.codec.large import LargeFrame
from vibemq.protocols.native.codec.wire import CommandType, TooManyHeaders, WireMessage, decode_body
from vibemq.protocols.native.publish import NativeRefused
from vibemq.protocols.native.replies import PublishedPlain
from vibemq.protocols.native.state import NativeState

_TYPE_AT = 6
"""Offset of the type byte in an uncompressed frame."""
_PUBLISH, _ACK, _PUBLISH_MANY = int(CommandType.PUBLISH), int(CommandType.ACK), int(CommandType.PUBLISH_MANY)
_ALIKE = frozenset({_PUBLISH, _ACK})
"""Frames that come in runs that look alike."""

READ_UNITS = 150
"""What is read at once, in frames that are read one by one: about a millisecond of it."""
_BYTES_PER_UNIT = 8_192
"""Of a frame's body, compressed or not."""
_INFLATED_UNITS = 2
_REQUEST_UNITS = 3
"""More than another frame: a message, its record and its place among those that wait are made for each."""
_OPERATION_UNITS = 5
"""The same of a request by name and of what makes a queue or a consumer: arguments are checked, most leave a record.
With as many as of other frames, a program that makes thousands of queues at once would hold everybody for 10 to 19 ms,
and one that restores a thousand subscriptions for 8."""
_OPERATIONS = frozenset(
    {
        int(CommandType.ADMIN),
        int(CommandType.CURSOR_REQUEST),
        int(CommandType.CREATE_QUEUE),
        int(CommandType.SUBSCRIBE),
    }
)
_VALUES_PER_UNIT = 100
"""Of JSON that is checked."""
_PUBLISHES_PER_UNIT, _ACKS_PER_UNIT = 4, 8
"""Frames that look alike."""
_HEADERS_READ_MAX = 1_024
"""Of a frame, those of an empty side and equal ones included: with more it is refused without a look at them."""
_STRANGERS_VALUES_MAX = 1_024
"""Of a payload before the login, for which there is no use."""
_LARGE_ONES = {int(CommandType.PUBLISH_MANY): begin_publish_many}


class FrameParser:
    """Reads frames of one connection in order; what they ask for gathers in `state.requests`."""

    def __init__(self, state: NativeState) -> None:
        limits = state.context.limits
        self._state = state
        self._buffer = ByteBuffer()
        self._body_bytes_max = limits.body_bytes_max
        self._handshake_bytes_max = min(limits.handshake_bytes_max, limits.body_bytes_max)
        self._inflater = Inflater(body_bytes_max=limits.body_bytes_max)
        self.unread = False
        """`read` has stopped before the end of what has come, so that others have their turn."""
        self.waits_for_bytes = False
        """`read` has come to the end of what has come, and would find nothing again."""
        self.waits_for_memory = False
        """A large frame has begun for which there is no memory yet."""
        self.large_under_way = False
        """A large frame has begun and is not complete."""
        self._large: LargeFrame[PublishMany] | None = None
        self._steps: Iterator[None] | None = None
        """A long check of payloads that is under way, and what comes of it: nothing is read meanwhile."""
        self._broken: RemoteProtocolError | None = None
        """What has broken the stream behind it."""
        self._ended = False
        """What comes has no beginning that could be known."""

    @property
    def has_enough_behind_login(self) -> bool:
        """So much has come behind a Connect that is not answered that nothing more should be read."""
        return self._state.authenticating and len(self._buffer) > self._handshake_bytes_max

    @property
    def large_left(self) -> int:
        """Bytes of a large frame that have not come; 0: none has begun, or it waits for memory."""
        return 0 if self._large is None else self._large.left

    def end(self) -> None:
        """Nothing is read any more, and the memory of a large frame is given back: what still comes may be the rest of
        its body, and no frame."""
        self._ended = True
        self._large = self._steps = None
        self._buffer = ByteBuffer()
        self.large_under_way = self.waits_for_memory = self.unread = self.waits_for_bytes = False

    def go_on_later(self) -> None:
        """A Connect has its answer, which was work, too: what has come behind it has another turn."""
        self.unread = len(self._buffer) > 0

    def append(self, data: bytes) -> None:
        if not self._ended:
            self._buffer.append(data)
            self.waits_for_bytes = False

    def read(self) -> None:
        """Work through complete frames, as many as are the work of one turn; stops early at a Connect, whose answer
        decides about the rest.

        Raises:
            RemoteProtocolError: the stream cannot be read on; everything before stands in `state.requests`.
        """
        state = self._state
        self.unread = False
        if state.authenticating:
            self._check_patience()
        if state.authenticating or state.left or self._ended:
            return
        if self._steps is not None:
            more = self._step(self._steps)
            # What comes behind the last step is read in a turn of its own.
            self.unread = more or self._broken is not None or len(self._buffer) > 0
            return
        if self._broken is not None:
            raise self._broken
        if self._large is not None and not self._read_large(self._large):
            return
        try:
            self._read_frames()
        except RemoteProtocolError as error:
            if not self._is_checking:
                raise
            self._broken = error

    @property
    def _is_checking(self) -> bool:
        return self._steps is not None

    def _step(self, steps: Iterator[None]) -> bool:
        """Whether there are more."""
        self._steps = None
        for _ in steps:
            self._steps = steps
            self.unread, self.waits_for_bytes = True, False
            return True
        return False

    def _read_frames(self) -> None:
        state = self._state
        limit = self._limit()
        data = self._buffer.take(limit)
        at, units = 0, READ_UNITS
        try:
            while not (state.authenticating or state.left or self._steps):
                if at + _TYPE_AT < len(data) and data[at + _TYPE_AT] in _ALIKE:
                    at, units = self._expected(data, at, units)
                if units <= 0:
                    self.unread = at < len(data)
                    break
                frame = find_frame(data, at, limit) if at < len(data) else None
                if frame is None:
                    self.waits_for_bytes = True
                    break
                units -= (_INFLATED_UNITS if frame.flag else 1) + self._frame(data, frame) // _BYTES_PER_UNIT
                at = frame.end
        except FrameTooLong as error:
            at = self._begin_large(error, data, at)
            self.unread = at < len(data) and not self.large_under_way
        finally:
            if at < len(data):
                self._buffer.put_back(data[at:] if at else data)
            # Even a broken stream's good part counts.
            self._flush_acks()
            if state.publishes.gathered:
                self._step(self._publishes())

    def _begin_large(self, found: FrameTooLong, data: bytes, at: int) -> int:
        """Where the rest begins; at the frame itself when more of it has to come, or memory for it.

        Raises:
            RemoteProtocolError: larger than was agreed.
        """
        size = found.size
        if size > self._state.large_bytes_max:
            raise FrameTooLong(size, max(self._limit(), self._state.large_bytes_max)) from None
        if len(data) - at < HEADER_SIZE:
            return at
        memory = self._state.context.reserve_memory(size)
        self.large_under_way = True
        self.waits_for_memory = memory is None
        if memory is None:
            return at
        self._large = LargeFrame(size, data[at + 4], _LARGE_ONES, memory)
        return self._go_on(self._large, data, at + HEADER_SIZE)

    def _read_large(self, large: LargeFrame[PublishMany]) -> bool:
        """Go on with a large frame; whether it has come to its end."""
        data = self._buffer.take_all()
        at = self._go_on(large, data, 0)
        if at < len(data):
            self._buffer.put_back(data[at:])
        return not self.large_under_way

    def _go_on(self, large: LargeFrame[PublishMany], data: bytes, at: int) -> int:
        at = large.feed(data, at)
        if not large.left:
            self._large = None
            self.large_under_way = False
            self.flush()
            frame, row = large.finish()
            frame.rows = row
            self._step(bulk.publish(self._state, frame))
        return at

    def _check_patience(self) -> None:
        """A stranger may not fill our memory while its credentials are being checked."""
        if self._state.principal is None and len(self._buffer) > self._handshake_bytes_max:
            raise RemoteProtocolError(
                f"more than {self._handshake_bytes_max:,} B behind a Connect that is not answered; wait for ConnectAck"
            )

    def _limit(self) -> int:
        return self._body_bytes_max if self._state.principal is not None else self._handshake_bytes_max

    def _expected(self, data: bytes, at: int, units: int) -> tuple[int, int]:
        """Take in runs of Publish and Ack frames, as long as they look like earlier ones: where they end, and how much
        of the units is left."""
        state, size = self._state, len(data)
        if state.principal is None:
            return at, units
        while units > 0 and at + _TYPE_AT < size:
            kind = data[at + _TYPE_AT]
            if kind == _PUBLISH:
                after, number = state.publishes.take(data, at, units * _PUBLISHES_PER_UNIT)
                values = state.publishes.weigh(data, at, after)
                cost = number // _PUBLISHES_PER_UNIT + values // _VALUES_PER_UNIT
            elif kind == _ACK:
                after, number = state.acks.take(data, at, units * _ACKS_PER_UNIT)
                cost = number // _ACKS_PER_UNIT
            else:
                return at, units
            if after == at:
                return at, units
            at = after
            units -= 1 + cost
        return at, units

    def _frame(self, data: bytes, frame: Frame) -> int:
        """Returns the bytes of its body, or as many as are as much work."""
        start, end = frame.start, frame.end
        if frame.flag:
            if self._state.principal is None:
                raise RemoteProtocolError("a compressed frame before Connect; send Connect plain")
            try:
                data = self._inflater.inflate(data[start:end], frame.flag)
            except GrowsTooLarge as error:
                self._refuse_grown(error)
                return self._body_bytes_max
            start, end = 0, len(data)
        kind = data[start + 1]
        if self._state.principal is not None:
            if kind == _PUBLISH:
                before = self._state.publishes.names_learnt
                self._publish(data, start, end)
                units = self._state.publishes.weigh(data, start, end) // _VALUES_PER_UNIT
                units += _OPERATION_UNITS * (self._state.publishes.names_learnt - before)
                return end - start + units * _BYTES_PER_UNIT
            if kind == _ACK:
                self._ack(data, start, end)
                return end - start
            if self._state.bulk and kind == _PUBLISH_MANY:
                self.flush()
                self._step(bulk.publish_many(self._state, data[start:end]))
                return end - start
            if self._state.bulk and kind in bulk.HANDLERS:
                self.flush()
                bulk.HANDLERS[kind](self._state, data[start:end])
                return end - start
            if kind == CommandType.STAGE and CURSOR_EXTENSION in self._state.extensions:
                self.flush()
                self._step(bulk.stage(self._state, data[start:end]))
                return end - start
            if kind in bulk.OF_REQUESTS and REQUEST_EXTENSION in self._state.extensions:
                self.flush()
                bulk.OF_REQUESTS[kind](self._state, data[start:end])
                return end - start + _REQUEST_UNITS * _BYTES_PER_UNIT
        try:
            message = decode_body(data[start:end], _HEADERS_READ_MAX)
        except TooManyHeaders as error:
            self._state.error(error.message_id, self._too_many_headers(error.count))
            return end - start
        self.flush()
        if message.payload and self._is_long(message.payload):
            self._steps = self._long_message(message, message.payload)
            self.unread = True
        else:
            self._message(message)
        return end - start + (_OPERATION_UNITS * _BYTES_PER_UNIT if kind in _OPERATIONS else 0)

    def _refuse_grown(self, error: GrowsTooLarge) -> None:
        """The original broker takes such a message of a .NET client, whose program is told which one it is.

        Raises GrowsTooLarge: it is something else.
        """
        start = error.start
        id_end = 4 + int.from_bytes(start[2:4], "big")
        if start[1] != _PUBLISH or not 4 < id_end <= len(start):
            raise error
        self._state.error(start[4:id_end], MessageTooLarge(f"{error}; send it in smaller messages"))

    def _is_long(self, payload: bytes) -> bool:
        """Whether to check it takes more than one turn."""
        if self._state.bulk or self._state.principal is None or len(payload) <= VALUES_AT_ONCE:
            return False
        return values_in(payload) > VALUES_AT_ONCE

    def _long_message(self, message: WireMessage, payload: bytes) -> Iterator[None]:
        if not (yield from self._state.json.is_json_in_steps(payload)):
            raise _no_json(message)
        self._answer(message)

    def _publish(self, data: bytes, start: int, end: int) -> None:
        try:
            self._state.publishes.add(data, start, end)
        except NativeRefused as refused:
            self._state.error(refused.message_id[2:], refused.error)

    def _ack(self, data: bytes, start: int, end: int) -> None:
        """The delivered id, either as the frame's own (.NET) or in the header `messageId` (seed). Never answered."""
        id_end = start + 4 + int.from_bytes(data[start + 2 : start + 4], "big")
        if id_end > start + 4 and data[id_end:end] == bytes(8):
            self._state.acks.expect(id_end - start - 4)
            self._state.acks.add(data[start + 4 : id_end])
            return
        try:
            message = decode_body(data[start:end], _HEADERS_READ_MAX)
        except TooManyHeaders:
            return
        target = message.headers.get("messageId")
        self._state.acks.add(data[start + 4 : id_end] if target is None else target.encode(errors="replace"))

    def _message(self, message: WireMessage) -> None:
        """One plain frame, in the order of checks of the protocol: form, limits, authentication, content."""
        if message.payload is not None and not self._state.bulk:
            self._check_payload(message, message.payload)
        self._answer(message)

    def _check_payload(self, message: WireMessage, payload: bytes) -> None:
        """Of strangers within bounds: to read it costs more than to send it."""
        if self._state.principal is None and values_in(payload) > _STRANGERS_VALUES_MAX:
            raise RemoteProtocolError(f"a payload before the login has more than {_STRANGERS_VALUES_MAX:,} values")
        if not self._state.json.is_json(payload):
            raise _no_json(message)

    def _answer(self, message: WireMessage) -> None:
        """One whose form is right."""
        try:
            self._dispatch(message)
        except VibeMQError as error:
            if isinstance(error, RemoteProtocolError):
                raise
            self._state.error(message.id, error)

    def _dispatch(self, message: WireMessage) -> None:
        state = self._state
        if message.type == CommandType.PING:
            state.reply(CommandType.PONG, message.id)
            return
        self._check_limits(message)
        if message.type == CommandType.CONNECT:
            handshake.connect(state, message)
        elif state.principal is None:
            raise NotAuthenticated("the first command must be Connect (0); only Ping (10) may come before it")
        else:
            commands.dispatch(state, message)

    def _check_limits(self, message: WireMessage) -> None:
        limits = self._state.context.limits
        if len(message.headers) > limits.headers_max:
            raise self._too_many_headers(len(message.headers))
        most = limits.header_value_units_max
        for key, value in message.headers.items():
            if len(value) > most // 2 and utf16_units(value) > most:
                raise InvalidMessage(f"the value of header {key[:64]!r} is longer than {most:,} characters")
        if message.queue:
            try:
                check_queue_name(message.queue)
            except InvalidQueueName as error:
                raise InvalidMessage(str(error)) from None

    def _too_many_headers(self, count: int) -> InvalidMessage:
        return InvalidMessage(f"{count} headers; a message may have {self._state.context.limits.headers_max}")

    def flush(self) -> None:
        """Turn what the intakes have gathered into commands: settlements first, they only make room. It is the work of
        a turn at most."""
        self._flush_acks()
        if self._state.publishes.gathered:
            for _ in self._publishes():
                pass

    def _flush_acks(self) -> None:
        state = self._state
        if state.acks.gathered:
            state.requests += state.acks.flush(state.session)
            if state.in_order:
                state.requests += state.acks.extend_later_ones(state.session, state.now)

    def _publishes(self) -> Iterator[None]:
        state = self._state
        for batch in state.publishes.flush():
            if batch is None:
                yield
                continue
            token = PublishedPlain.of(batch)
            extras = batch.extras(state.now)
            state.ask(Publish(state.session, token, batch.queue, batch.rows(), extras))


def _no_json(message: WireMessage) -> RemoteProtocolError:
    return RemoteProtocolError(f"the payload of a frame of type {message.type} is not JSON")
