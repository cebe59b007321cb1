"""Which delivery an Ack means: a plain client names a message by its id, the engine by consumer and sequence."""

import struct
from collections.abc import Callable, Sequence
from itertools import chain, count, islice, repeat

from vibemq.model.commands import Extend, Settle, Settlement
from vibemq.model.runs import runs_of
from vibemq.protocols.base_session import runs_by_consumer
from vibemq.protocols.native.codec.wire import VERSION, CommandType

Held = tuple[int, int, int, int]
"""(consumer, sequence, queue_id, place): of the first three one delivery is known, the place says where it came among
all deliveries of the connection."""

EXTEND_INTERVAL_MS = 500
LOOKED_AT_MAX = 8_192
"""Of the oldest deliveries, in about a millisecond."""

_EMPTY_REST = bytes(8)
"""No queue, no payload, no headers."""


class DeliveryIndex:
    """Deliveries of one connection by message id, oldest first; several may carry the same id.

    Entries leave with their ack. Those never acked (the engine has long handed the message to someone else) are
    pushed out, oldest first, when there are more than `entries_max`.

    Args:
        may_hold: whether a consumer may hold messages still. What one that does not was given is not meant by an Ack
            if the same message has come again. Another one of its id is: nobody has worked on that yet.
    """

    def __init__(self, *, entries_max: int, may_hold: Callable[[int], bool] = lambda consumer: True) -> None:
        self.entries_max = entries_max
        self._may_hold = may_hold
        self._held: dict[bytes, Held] = {}
        self._more: dict[bytes, list[Held]] = {}
        """Further deliveries with an id that is in `_held`, in order."""
        self._places = count(1)
        self._newest_ack = 0
        """The last place of which the client has said something."""

    def __len__(self) -> int:
        return len(self._held) + sum(map(len, self._more.values()))

    def note(self, ids: Sequence[bytes], consumer: int, queue_id: int, sequences: Sequence[int]) -> None:
        """Remember deliveries; `ids` without their length."""
        held = self._held
        # A place is taken last: none is lost behind the last sequence.
        entries = list(zip(repeat(consumer), sequences, repeat(queue_id), self._places, strict=False))
        if held.keys().isdisjoint(ids) and len(set(ids)) == len(ids):
            held.update(zip(ids, entries, strict=True))
        else:
            for message_id, entry in zip(ids, entries, strict=True):
                self._note_one(message_id, entry)
        if len(held) > self.entries_max:
            for message_id in list(held)[: len(held) - self.entries_max]:
                del held[message_id]
                self._more.pop(message_id, None)

    def _note_one(self, message_id: bytes, entry: Held) -> None:
        first = self._held.setdefault(message_id, entry)
        if first[:3] == entry[:3]:
            # The same message handed out again after its deadline: one ack settles it.
            if first[3] <= self._newest_ack:
                # The client has passed over it, and comes to it once more.
                self._held[message_id] = entry
            return
        more = self._more.setdefault(message_id, [])
        if all(other[:3] != entry[:3] for other in more[-8:]):
            more.append(entry)
            del more[: -self.entries_max]

    def take(self, message_id: bytes) -> Held | None:
        """Remove and return the oldest delivery with this id; None when there is none."""
        entry = self._held.pop(message_id, None)
        if entry is not None and entry[3] > self._newest_ack:
            self._newest_ack = entry[3]
        while entry is not None and self._more and (more := self._more.get(message_id)):
            following = more.pop(0)
            if not more:
                del self._more[message_id]
            if not self._came_again(entry, following):
                self._held[message_id] = following
                break
            entry = following
        return entry

    def find(self, message_id: bytes) -> Held | None:
        """As `take`, but it stays."""
        found = self._held.get(message_id)
        for following in self._more.get(message_id, ()):
            if found is None or not self._came_again(found, following):
                break
            found = following
        return found

    def _came_again(self, entry: Held, following: Held) -> bool:
        return entry[1:3] == following[1:3] and not self._may_hold(entry[0])

    def behind(self) -> list[Held]:
        """Deliveries behind the newest of which the client has said something, the oldest of them first: a client that
        takes one message after the other has begun the first one at most."""
        newest = self._newest_ack
        found = [entry for entry in islice(self._held.values(), LOOKED_AT_MAX) if entry[3] > newest]
        more = islice(chain.from_iterable(self._more.values()), LOOKED_AT_MAX)
        found += [entry for entry in more if entry[3] > newest]
        return sorted(found, key=_place)


def _place(held: Held) -> int:
    return held[3]


class AckIntake:
    """Collects the Ack frames (30) of one read until `flush`."""

    def __init__(self, delivery_index: DeliveryIndex) -> None:
        self._delivery_index = delivery_index
        self._taken: dict[int, list[int]] = {}
        self._head = b""
        self._layout = struct.Struct("!I")
        self._extended_at = 0

    def take(self, data: bytes, at: int, most: int) -> tuple[int, int]:
        """Take in up to `most` plain acks at `at` with ids as long as the last one; return where the next frame is, and
        how many they were."""
        if not self._head:
            return at, 0
        unpack, head, size = self._layout.unpack_from, self._head, self._layout.size
        for number in range(most):
            try:
                its_head, message_id, rest = unpack(data, at)
            except struct.error:
                return at, number
            if its_head != head or rest != _EMPTY_REST:
                return at, number
            self.add(message_id)
            at += size
        return at, most

    def add(self, message_id: bytes) -> None:
        entry = self._delivery_index.take(message_id)
        if entry is None:
            return
        consumer, sequence, *_ = entry
        taken = self._taken.get(consumer)
        if taken is None:
            self._taken[consumer] = [sequence]
        else:
            taken.append(sequence)

    def expect(self, id_size: int) -> None:
        """The next acks will have ids of this many bytes."""
        body_size = 12 + id_size
        self._head = struct.pack("!IBBBH", body_size, 0, VERSION, CommandType.ACK, id_size)
        self._layout = struct.Struct(f"!9s{id_size}s8s")

    @property
    def gathered(self) -> bool:
        """Whether `flush` has something to return."""
        return bool(self._taken)

    def flush(self, session: int) -> list[Settle]:
        taken, self._taken = self._taken, {}
        return [
            Settle(session, None, consumer, Settlement.ACK, runs_of(sequences)) for consumer, sequences in taken.items()
        ]

    def extend_later_ones(self, session: int, now: int) -> list[Extend]:
        """While a client acknowledges one message after the other, those behind have not been begun: their time to
        settle begins again. At most every half a second."""
        if now < self._extended_at + EXTEND_INTERVAL_MS:
            return []
        self._extended_at = now
        later = runs_by_consumer(self._delivery_index.behind())
        return [Extend(session, None, consumer, runs, None) for consumer, runs in later.items()]
