"""Which delivery a CONFIRM means: a client names a message by stream and GUID, the engine by consumer and sequence."""

from collections.abc import Iterator, Sequence

from vibemq.protocols.base_session import emptied

StreamKey = tuple[int, int]
"""(qId, subId)"""
Held = tuple[int, int]
"""(consumer, sequence)"""
FREED_AT_ONCE = 3_000
"""Entries that are freed in about half a millisecond."""


class BlazingmqDeliveryIndex:
    """Messages that were written and not confirmed, by stream. One dict entry for each."""

    def __init__(self) -> None:
        self._held: dict[StreamKey, dict[bytes, Held]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def of(self, key: StreamKey) -> dict[bytes, Held]:
        """GUID -> (consumer, sequence)."""
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = {}
        return held

    def confirmed(self, key: StreamKey, guids: Sequence[bytes]) -> dict[int, list[int]]:
        """Take these out: their sequences by consumer. Those that the stream does not hold are left out."""
        held = self._held.get(key)
        found: dict[int, list[int]] = {}
        if not held:
            return found
        pop = held.pop
        for guid in guids:
            entry = pop(guid, None)
            if entry is None:
                continue
            consumer, sequence = entry
            sequences = found.get(consumer)
            if sequences is None:
                found[consumer] = [sequence]
            else:
                sequences.append(sequence)
        return found

    def take_stream(self, key: StreamKey) -> dict[bytes, Held]:
        """Everything that the stream holds, in the order in which it was written."""
        return self._held.pop(key, {})

    def forget(self, key: StreamKey, consumer: int) -> None:
        """The consumer's queue is gone, and with it what there was to confirm."""
        held = self._held.get(key)
        if held:
            self._held[key] = {guid: entry for guid, entry in held.items() if entry[0] != consumer}

    def let_go(self) -> Iterator[None]:
        """Everything, in steps."""
        for held in self._held.values():
            yield from emptied(held, FREED_AT_ONCE)
        yield from emptied(self._held, FREED_AT_ONCE)
