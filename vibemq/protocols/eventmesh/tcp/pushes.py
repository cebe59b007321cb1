"""Pushes to a client, and what its acknowledgements settle.

Each push has a number, which its acknowledgement repeats. Pushes that are neither acknowledged nor still the client's
are forgotten in the order in which they were sent.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import orjson

from vibemq.errors import InvalidMessage
from vibemq.model.commands import Extend, Settle, Settlement
from vibemq.model.effects import Deliver
from vibemq.model.rows import LARGE_ROW_BYTES, RowView, header_pairs
from vibemq.model.runs import runs_of
from vibemq.model.stored import Slice
from vibemq.protocols.base_session import emptied, runs_by_consumer
from vibemq.protocols.eventmesh.messages import forms, names
from vibemq.protocols.eventmesh.messages.message import write_message
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.tcp.frames import EventMeshDialect, encode_frame
from vibemq.protocols.eventmesh.tcp.package import Cmd, Package, push_header, push_seq
from vibemq.protocols.eventmesh.tcp.state import EventMeshState
from vibemq.protocols.eventmesh.tcp.subscriptions import EventMeshSubscription, EventMeshSubscriptions

PENDING_MAX = 65_536
"""Pushes whose acknowledgements are waited for; more than any client may hold."""
EARLIER_MAX = 1_024
FREED_AT_ONCE = 2_000
"""Of these, in about half a millisecond."""
_SEQ_MAX = (1 << 31) - 1
"""What the C client reads."""
_LARGE_BYTES = LARGE_ROW_BYTES + 65_536
"""A row above it would not fit into a frame, whatever its bytes are."""
_EXTEND_INTERVAL_MS = 2_000
_HEADERS = {(cmd, form): push_header(cmd, form) for cmd in Cmd for form in Form if cmd.endswith("_TO_CLIENT")}
_BODY_MARK = '"\\u0000body"'


class _Pending(NamedTuple):
    consumer: int
    sequence: int
    address: str
    """Where the reply goes; empty: it is no request."""


class _Shape(NamedTuple):
    """What messages with the same headers have in common."""

    cmd: Cmd
    form: Form
    headers: dict[str, str]
    around: tuple[bytes, bytes] | None
    """Of an EventMeshMessage: what stands before and behind its body."""
    address: str
    broadcast: bool


class EventMeshPushes:
    def __init__(self, state: EventMeshState, subscriptions: EventMeshSubscriptions) -> None:
        self._state = state
        self._subscriptions = subscriptions
        self._pending: dict[int, _Pending] = {}
        """By number, in the order in which they were sent."""
        self._numbers: dict[tuple[int, int], int] = {}
        """Of (consumer, sequence)."""
        self._last_number = 0
        self._earlier: dict[int, int] = {}
        """Numbers of pushes that were sent again, with the next one of the same message: a client whose work takes
        longer than the ack timeout acknowledges the one that it was at."""
        self._acked: dict[int, list[int]] = {}
        self._failed: dict[int, list[int]] = {}
        self._extended_at = state.now
        self._newest_ack = 0

    @property
    def held(self) -> bool:
        return bool(self._pending)

    # -- acknowledgements -------------------------------------------------------------------------------------------

    def acked(self, package: Package) -> None:
        """Any acknowledgement will do: C answers every push with one of its own choice."""
        number = push_seq(package.seq)
        pending = self._pending.pop(number, None)
        if pending is None:
            pending = self._pending.pop(self._sent_again(number), None)
            if pending is None:
                return
        del self._numbers[pending.consumer, pending.sequence]
        kind = self._failed if package.code else self._acked
        kind.setdefault(pending.consumer, []).append(pending.sequence)
        self._newest_ack = max(self._newest_ack, number)

    def _sent_again(self, number: int) -> int:
        """The number that this message has now."""
        while number in self._earlier:
            number = self._earlier.pop(number)
        return number

    def flush(self) -> None:
        """Settle what is gathered."""
        if not (self._acked or self._failed):
            return
        session = self._state.session
        for consumer, sequences in self._acked.items():
            self._state.ask(Settle(session, None, consumer, Settlement.ACK, runs_of(sequences)))
        for consumer, sequences in self._failed.items():
            reason = "the client acknowledged it with a code that is not 0"
            self._state.ask(Settle(session, None, consumer, Settlement.RETRY, runs_of(sequences), reason=reason))
        self._acked, self._failed = {}, {}
        if self._pending and self._state.now >= self._extended_at + _EXTEND_INTERVAL_MS:
            self._extend_later_ones()

    def _extend_later_ones(self) -> None:
        """A client takes one message after the other: while it acknowledges, those behind have not been begun."""
        self._extended_at = self._state.now
        for consumer, runs in runs_by_consumer(self._behind()).items():
            self._state.ask(Extend(self._state.session, None, consumer, runs))

    def _behind(self) -> Iterator[_Pending]:
        """Those sent after the one of the newest acknowledgement, in their order."""
        return (pending for number, pending in self._pending.items() if number > self._newest_ack)

    def unbegun(self) -> list[Settle]:
        """See `vibemq.protocols.session.Session`."""
        # It may have begun the first one, and that may have been its end.
        waiting = runs_by_consumer(islice(self._behind(), 1, None))
        session = self._state.session
        return [Settle(session, None, consumer, Settlement.RELEASE, runs) for consumer, runs in waiting.items()]

    def oldest_request(self) -> str:
        """The address of the request that the client is at, if it is at one: Java replies before it acknowledges."""
        first = next(iter(self._pending.values()), None)
        return first.address if first is not None else ""

    def forget(self, consumer: int) -> None:
        """Its queue is gone, and with it what there was to settle."""
        for number in [number for number, pending in self._pending.items() if pending.consumer == consumer]:
            pending = self._pending.pop(number)
            del self._numbers[pending.consumer, pending.sequence]

    def let_go(self) -> Iterator[None]:
        """All, in steps, once the session has ended."""
        for table in (self._pending, self._numbers):
            yield from emptied(table, FREED_AT_ONCE)

    # -- messages ---------------------------------------------------------------------------------------------------

    def deliver(self, deliver: Deliver, slices: Sequence[Slice]) -> None:
        subscription = self._subscriptions.by_consumer.get(deliver.consumer)
        if subscription is None or subscription.leaving or self._state.failed:
            self._give_back(deliver, slices)
            return
        silent: list[int] = []
        unfit: dict[str, list[int]] = {}
        for piece in slices:
            if piece.rows.size > _LARGE_BYTES and piece.rows.count == 1:
                self._turn_down(deliver, piece)
                continue
            sequence = piece.first_sequence
            blocks = piece.rows.header_blocks()
            for row, block in zip(piece.rows, blocks, strict=True):
                try:
                    if not self._push(subscription, deliver, sequence, row, block):
                        silent.append(sequence)
                except InvalidMessage as error:
                    unfit.setdefault(f"cannot be written for EventMesh: {error}", []).append(sequence)
                sequence += 1
        if deliver.settled:
            return
        session, consumer = self._state.session, deliver.consumer
        if silent:
            self._state.ask(Settle(session, None, consumer, Settlement.ACK, runs_of(silent)))
        for reason, sequences in unfit.items():
            self._state.ask(Settle(session, None, consumer, Settlement.REJECT, runs_of(sequences), reason=reason))

    def _give_back(self, deliver: Deliver, slices: Sequence[Slice]) -> None:
        if deliver.settled:
            return
        runs = [piece.run for piece in slices]
        self._state.ask(Settle(self._state.session, None, deliver.consumer, Settlement.RELEASE, runs))

    def _turn_down(self, deliver: Deliver, piece: Slice) -> None:
        """What is larger than a frame of this protocol."""
        if not deliver.settled:
            reason = f"too large for EventMesh: its messages have at most {LARGE_ROW_BYTES:,} bytes"
            runs = [(piece.first_sequence, piece.first_sequence)]
            self._state.ask(Settle(self._state.session, None, deliver.consumer, Settlement.REJECT, runs, reason=reason))

    def _push(
        self, subscription: EventMeshSubscription, deliver: Deliver, sequence: int, row: bytes, block: bytes
    ) -> bool:
        """Whether the client gets it; an old client gets each message through one of its two subscriptions.

        Raises:
            InvalidMessage: it cannot be written.
        """
        shape = self._shape(subscription, row, block)
        if subscription.broadcasts is not None and shape.broadcast is not subscription.broadcasts:
            return False
        if shape.around is not None:
            text = _json_text(RowView(row).payload)
            if text is not None:
                body = b"%b%b%b" % (shape.around[0], text, shape.around[1])
            else:
                body = self._body(subscription, shape, row)
        else:
            body = self._body(subscription, shape, row)
        body = self._state.dialect.readable(body)
        number = self._number(deliver, sequence, shape.address)
        self._state.send(encode_frame(self._state.dialect, _HEADERS[shape.cmd, shape.form] % number, body))
        return True

    def _body(self, subscription: EventMeshSubscription, shape: _Shape, row: bytes) -> bytes:
        view = RowView(row)
        return forms.write(
            shape.form,
            subscription.item.topic,
            view.message_id,
            view.payload,
            shape.headers,
            self._more(shape.address),
            with_headers=self._state.with_headers,
            returnable=bool(shape.address),
        )

    def _number(self, deliver: Deliver, sequence: int, address: str) -> int:
        number = self._last_number = self._last_number % _SEQ_MAX + 1
        if deliver.settled:
            return number
        key = (deliver.consumer, sequence)
        before = self._numbers.get(key)
        if before is not None:
            del self._pending[before]
            if len(self._earlier) >= EARLIER_MAX:
                del self._earlier[next(iter(self._earlier))]
            self._earlier[before] = number
        elif len(self._pending) >= PENDING_MAX:
            oldest = self._pending.pop(next(iter(self._pending)))
            del self._numbers[oldest.consumer, oldest.sequence]
        self._pending[number] = _Pending(deliver.consumer, sequence, address)
        self._numbers[key] = number
        return number

    # -- what messages with the same headers have in common ---------------------------------------------------------

    def _shape(self, subscription: EventMeshSubscription, row: bytes, block: bytes) -> _Shape:
        form = self._state.form
        key = block if form is None else block + form.encode()
        known: _Shape | None = subscription.cache.known.get(key)
        if known is None:
            known = self._looked_at(subscription, dict(header_pairs(block, 0)))
            subscription.cache.remember(key, known)
        return known

    def _looked_at(self, subscription: EventMeshSubscription, headers: dict[str, str]) -> _Shape:
        state = self._state
        form, address = self._form(headers), headers.get(names.REPLY_TO, "")
        around = None
        if form is Form.MESSAGE:
            topic = headers.get(names.TOPIC, subscription.item.topic)
            whole = write_message(topic, b"\x00body", headers, self._more(address), with_headers=state.with_headers)
            before, _, behind = whole.rpartition(_BODY_MARK.encode())
            around = (before, behind)
        broadcast = headers.get(names.SENT_BY) == names.BROADCAST
        return _Shape(self._cmd(subscription, headers), form, headers, around, address, broadcast)

    def _form(self, headers: dict[str, str]) -> Form:
        """That of the session, as far as it is known; else that of the publisher."""
        state = self._state
        if state.before_1_3:
            return Form.MESSAGE
        if state.form is not None:
            return state.form
        if names.FORM in headers or "ce-specversion" in headers:
            return forms.form_of(headers)
        return state.settings.push_form

    def _cmd(self, subscription: EventMeshSubscription, headers: dict[str, str]) -> Cmd:
        item = subscription.item
        if item.broadcasting:
            return Cmd.BROADCAST_MESSAGE_TO_CLIENT
        if item.sync:
            return Cmd.REQUEST_TO_CLIENT
        if item.bare:
            if names.REPLY_TO in headers:
                return Cmd.REQUEST_TO_CLIENT
            if headers.get(names.SENT_BY) == names.BROADCAST:
                return Cmd.BROADCAST_MESSAGE_TO_CLIENT
            return _OLD_COMMANDS.get(_service_digit(item.topic), Cmd.ASYNC_MESSAGE_TO_CLIENT)
        return Cmd.ASYNC_MESSAGE_TO_CLIENT

    def _more(self, address: str) -> dict[str, str]:
        if not address:
            return {}
        more = {names.REPLY_TOKEN: address, names.REPLY_CLIENT: names.CLUSTER, names.REPLY_CLUSTER: names.CLUSTER}
        if self._state.dialect is EventMeshDialect.WEMQ:
            more[names.OLD_REPLY_TO] = names.CLUSTER
        return more


_OLD_COMMANDS = {
    "0": Cmd.REQUEST_TO_CLIENT,
    "3": Cmd.BROADCAST_MESSAGE_TO_CLIENT,
    "4": Cmd.BROADCAST_MESSAGE_TO_CLIENT,
}


def _service_digit(topic: str) -> str:
    """The digit that says how a service of 1.0 is called: the fourth of `dcn-(s or e)-digits-scene-n`."""
    parts = topic.split("-")
    if len(parts) != 5 or parts[1] not in ("s", "e") or len(parts[2]) < 4 or not parts[2].isdigit():
        return ""
    return parts[2][3]


def _json_text(payload: bytes) -> bytes | None:
    """As a JSON string; None: it is not UTF-8."""
    try:
        return orjson.dumps(payload.decode())
    except UnicodeDecodeError:
        return None
