"""What a subscription holds: delivered, and not settled as far as the broker has been told."""

from collections.abc import Iterator, Sequence
from typing import Any

from vibemq.client.message import Delivery
from vibemq.client.protocol import ClientProtocol
from vibemq.client.settlements import SettlementBuffer
from vibemq.model.runs import Run, RunSet, run_count, runs_of, without
from vibemq.model.shared.settlement import Settlement
from vibemq.protocols.native.codec.extensions import DeliverMany


class HeldMessages:
    """Of one connection, with what the program wants done about them. A lost connection takes all of it along."""

    __slots__ = ("deadlines", "extensions", "newest", "runs", "settlements")

    def __init__(self) -> None:
        self.runs = RunSet()
        self.extensions: list[tuple[int, list[Run]]] = []
        """(ack timeout in ms, of which messages) that the broker has not been told of."""
        self.newest: dict[int, Delivery] = {}
        """Of messages that came again while they were held."""
        self.deadlines: dict[int, float] = {}
        """Of messages that the program itself has extended, as long as these may be behind the next automatic one."""
        self.settlements = SettlementBuffer()
        """Of which the broker has not been told."""

    def __len__(self) -> int:
        return len(self.runs)

    def add(self, delivered: DeliverMany, delivery: Delivery) -> Sequence[int]:
        """Note what has come; its sequences."""
        for sequence in delivered.acquired:
            if sequence in self.runs:
                self.newest[sequence] = delivery
                self.deadlines.pop(sequence, None)
        if delivered.sequences:
            self.runs.add_all(runs_of(delivered.sequences))
            return delivered.sequences
        first, count = delivered.first_sequence, delivered.rows.count
        self.runs.add(first, first + count - 1)
        return range(first, first + count)

    def settle(self, verb: Settlement, runs: Sequence[Run], delay_ms: int, reason: str) -> None:
        for first, last in runs:
            self.settlements.add(verb, first, last, delay_ms, reason)

    def note_deadline(self, runs: Sequence[Run], deadline: float) -> None:
        """The program has extended those of them that are held until then."""
        for run in runs:
            for first, last in self.runs.overlap(*run):
                self.deadlines.update(dict.fromkeys(range(first, last + 1), deadline))

    def extend(self, timeout_ms: int, deadline: float) -> bool:
        """Have all extended until then, but what the program has extended for longer; whether there is any. The broker
        takes the latest deadline that it is told, also when it is an earlier one."""
        self.deadlines = {sequence: own for sequence, own in self.deadlines.items() if own > deadline}
        runs = without(self.runs.runs(), runs_of(self.deadlines))
        if runs:
            self.extensions.append((timeout_ms, runs))
        return bool(runs)

    def take_frames(self, protocol: ClientProtocol, subscription: str) -> Iterator[bytes]:
        """What the broker is to be told now. What is settled is held no longer."""
        for timeout_ms, runs in self.extensions:
            yield protocol.extend(subscription, runs, timeout_ms)
        self.extensions.clear()
        for settled in self.settlements.take():
            for first, last in settled.runs:
                self.runs.remove(first, last)
            forget(self.newest, settled.runs)
            forget(self.deadlines, settled.runs)
            yield protocol.settle(subscription, settled)


def forget(known: dict[int, Any], runs: Sequence[Run]) -> None:
    """Take what is in the runs out of it: long runs do not cost their length, nor many runs a look at every pair."""
    if not known:
        return
    if run_count(runs) <= len(known):
        for first, last in runs:
            for sequence in range(first, last + 1):
                known.pop(sequence, None)
        return
    gone = RunSet(runs)
    for sequence in [sequence for sequence in known if sequence in gone]:
        del known[sequence]
