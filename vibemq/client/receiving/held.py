"""What a subscription holds: delivered, and not settled as far as the broker has been told."""

from collections.abc import Iterator, Sequence

from vibemq.client.message import Delivery
from vibemq.client.protocol import ClientProtocol
from vibemq.client.settlements import SettlementBuffer
from vibemq.model.runs import Run, RunSet, run_count, runs_of
from vibemq.model.shared.settlement import Settlement
from vibemq.protocols.native.codec.extensions import DeliverMany


class HeldMessages:
    """Of one connection, with what the program wants done about them. A lost connection takes all of it along."""

    __slots__ = ("extensions", "newest", "runs", "settlements")

    def __init__(self) -> None:
        self.runs = RunSet()
        self.extensions: list[tuple[int, list[Run]]] = []
        """(ack timeout in ms, of which messages) that the broker has not been told of."""
        self.newest: dict[int, Delivery] = {}
        """Of messages that came again while they were held."""
        self.settlements = SettlementBuffer()
        """Of which the broker has not been told."""

    def __len__(self) -> int:
        return len(self.runs)

    def add(self, delivered: DeliverMany, delivery: Delivery) -> Sequence[int]:
        """Note what has come; its sequences."""
        for sequence in delivered.acquired:
            if sequence in self.runs:
                self.newest[sequence] = delivery
        if delivered.sequences:
            self.runs.add_all(runs_of(delivered.sequences))
            return delivered.sequences
        first, count = delivered.first_sequence, delivered.rows.count
        self.runs.add(first, first + count - 1)
        return range(first, first + count)

    def settle(self, verb: Settlement, runs: Sequence[Run], delay_ms: int, reason: str) -> None:
        for first, last in runs:
            self.settlements.add(verb, first, last, delay_ms, reason)

    def take_frames(self, protocol: ClientProtocol, subscription: str) -> Iterator[bytes]:
        """What the broker is to be told now. What is settled is held no longer."""
        for timeout_ms, runs in self.extensions:
            yield protocol.extend(subscription, runs, timeout_ms)
        self.extensions.clear()
        for settled in self.settlements.take():
            for first, last in settled.runs:
                self.runs.remove(first, last)
            if self.newest:
                self._settle_newest(settled.runs)
            yield protocol.settle(subscription, settled)

    def _settle_newest(self, runs: Sequence[Run]) -> None:
        newest = self.newest
        if run_count(runs) <= len(newest):
            for first, last in runs:
                for sequence in range(first, last + 1):
                    newest.pop(sequence, None)
            return
        settled = RunSet(runs)
        for sequence in [known for known in newest if known in settled]:
            del newest[sequence]
