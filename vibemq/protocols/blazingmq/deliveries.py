"""PUSHes out, CONFIRMs in.

A PUSH goes out under the sId of the consumer that the message was handed to, which is the one that the client knows:
what comes for others is given back. It stands in the order of the answers, so never before the response that makes its
sId known, nor behind the one that ends it.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, repeat

from vibemq.errors import RemoteProtocolError
from vibemq.model.commands import Settle, Settlement
from vibemq.model.effects import Deliver
from vibemq.model.rows import LargeRow
from vibemq.model.runs import runs_of
from vibemq.model.stored import Slice
from vibemq.protocols.blazingmq.codec.guid import guid_of_message_id, guids_of_message_ids
from vibemq.protocols.blazingmq.codec.options import sub_queue_ids_option
from vibemq.protocols.blazingmq.codec.push import PushMessage, build_pushes
from vibemq.protocols.blazingmq.codec.rows import (
    alike_pushes_of_rows,
    properties_in,
    push_around_row,
    pushes_of_rows,
)
from vibemq.protocols.blazingmq.delivery_index import BlazingmqDeliveryIndex, Held
from vibemq.protocols.blazingmq.state import BlazingmqState

ROWS_AT_ONCE = 200
"""Rows that are encoded in about two milliseconds if they have few properties. Four of those are as much as a row."""

ALIKE_MIN = 4
"""Rows of one slice that are looked at whether they can be encoded together."""


class Deliveries:
    def __init__(self, state: BlazingmqState, index: BlazingmqDeliveryIndex) -> None:
        self._state = state
        self._index = index
        self.rows_at_once = ROWS_AT_ONCE // 8
        """By the properties of the last ones. It begins low, and doubles with those that have few."""

    def deliver(self, deliver: Deliver, slices: Sequence[Slice]) -> None:
        state = self._state
        consumer = state.consumers.get(deliver.consumer)
        if consumer is None or not consumer.writable or consumer.stream.closing or state.disconnecting:
            if not deliver.settled:
                runs = [piece.run for piece in slices]
                state.ask(Settle(state.context.session, None, deliver.consumer, Settlement.RELEASE, runs))
            return
        stream = consumer.stream
        q_id, option = stream.q_id, sub_queue_ids_option((consumer.s_id,))
        held = self._index.of((q_id, stream.sub_id))
        messages: list[PushMessage] = []
        for piece in slices:
            rows = piece.rows
            guids = guids_of_message_ids(rows.ids())
            if not deliver.settled:
                self._hold(deliver, piece, guids, held)
                consumer.held += rows.count
            if isinstance(rows, LargeRow):
                state.out += build_pushes(messages)
                messages = []
                large = PushMessage(q_id, guids[0], 0, 0, 0, option, b"")
                before, part, behind = push_around_row(rows, large, new_style=state.new_style)
                state.send(before)
                state.send_row(part)
                state.send(behind)
            elif rows.count >= ALIKE_MIN and (
                event := alike_pushes_of_rows(rows, guids, q_id, option, new_style=state.new_style)
            ):
                state.out += build_pushes(messages)
                messages = []
                state.send(event)
                self._note_work(rows.count)
            else:
                pushes = pushes_of_rows(rows, q_id, option, new_style=state.new_style, guids=guids)
                messages += pushes
                self._note_work(rows.count, sum(properties_in(push.data) for push in pushes if push.flags))
        state.out += build_pushes(messages)

    def _note_work(self, count: int, properties: int = 0) -> None:
        if not count:
            return
        work = count + (properties >> 2)
        self.rows_at_once = max(1, min(ROWS_AT_ONCE, 2 * self.rows_at_once, ROWS_AT_ONCE * count // work))

    def _hold(self, deliver: Deliver, piece: Slice, guids: list[bytes], held: dict[bytes, Held]) -> None:
        """May give some of them another GUID."""
        number, first = deliver.consumer, piece.first_sequence
        if not held.keys().isdisjoint(guids) or len(set(guids)) < len(guids):
            _tell_apart(deliver.queue_id, first, guids, held)
        held.update(zip(guids, zip(repeat(number), range(first, first + len(guids))), strict=True))

    def confirm(self, confirms: Iterator[tuple[int, bytes, int]], most: int) -> int:
        """Take up to `most` confirms; return how many there were. What the client does not hold is ignored.

        Raises:
            RemoteProtocolError: one that cannot be read; those before it are taken.
        """
        of_streams: dict[tuple[int, int], list[bytes]] = {}
        count = 0
        broken: RemoteProtocolError | None = None
        try:
            for q_id, guid, sub_id in islice(confirms, most):
                count += 1
                guids = of_streams.get((q_id, sub_id))
                if guids is None:
                    guids = of_streams[q_id, sub_id] = []
                guids.append(guid)
        except RemoteProtocolError as error:
            # Those before it count.
            broken = error
        state = self._state
        for key, guids in of_streams.items():
            for number, sequences in self._index.confirmed(key, guids).items():
                state.ask(Settle(state.context.session, None, number, Settlement.ACK, runs_of(sequences)))
                consumer = state.consumers.get(number)
                if consumer is not None:
                    state.settled(consumer, len(sequences))
        if broken is not None:
            raise broken
        return count


def _tell_apart(queue_id: int, first: int, guids: list[bytes], held: dict[bytes, Held]) -> None:
    """A message whose GUID the stream holds already gets another for this time, or a CONFIRM could mean either. It
    happens to ids of other protocols, whose publishers may use one twice."""
    seen: set[bytes] = set()
    for index, guid in enumerate(guids):
        if guid in held or guid in seen:
            guids[index] = guid_of_message_id(b"%d/%d" % (queue_id, first + index))
        seen.add(guids[index])
