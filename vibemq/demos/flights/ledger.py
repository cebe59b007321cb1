"""Which worker has processed which row. Kept in the process that is never killed."""

from collections.abc import Callable
from typing import Any, Protocol

import orjson

from vibemq.demos.flights.delays import Delays
from vibemq.demos.flights.flights import ROW

NO_DEPARTURE = "no departure"


class FlightBatch(Protocol):
    """What the ledger needs of `vibemq.client.MessageBatch`."""

    def payloads(self) -> list[bytes]: ...

    def __getitem__(self, index: int, /) -> Any: ...

    def ack_all(self) -> Any: ...


class Ledger:
    """Counts of one run. `rows` flights are numbered from 0.

    Args:
        clock: seconds; only differences matter.
    """

    def __init__(self, rows: int, clock: Callable[[], float]) -> None:
        self.rows = rows
        self.delays = Delays()
        self.published = 0
        """Rows that the broker confirmed."""
        self.refused = 0
        self.distinct = 0
        """Rows that reached a consumer."""
        self.departed = 0
        self.cancelled = 0
        self.duplicates = 0
        """Deliveries of rows that had come before."""
        self._seen = bytearray(rows)
        self._confirmed = bytearray(rows)
        self._clock = clock
        self.first_confirm_at = self.last_confirm_at = 0.0
        self.first_delivery_at = self.last_delivery_at = 0.0
        self.last_new_at = clock()

    def confirm(self, first_row: int, count: int, refused: int = 0) -> None:
        """The broker has answered for these rows; `refused` of them it did not take."""
        self.last_confirm_at = self._clock()
        self.first_confirm_at = self.first_confirm_at or self.last_confirm_at
        self.published += count - refused
        self.refused += refused
        if not refused:
            self._confirmed[first_row : first_row + count] = b"\1" * count

    def process(self, batch: FlightBatch) -> None:
        """The consumer's work: count a departed flight into its carrier, reject one that never left."""
        now = self._clock()
        self.first_delivery_at = self.first_delivery_at or now
        self.last_delivery_at = now
        before = self.distinct
        for index, payload in enumerate(batch.payloads()):
            flight = orjson.loads(payload)
            is_new = self._is_new(flight[ROW])
            if flight["dep_time"] is None:
                self.cancelled += is_new
                batch[index].reject(NO_DEPARTURE)
            elif is_new:
                self.departed += 1
                self.delays.add_flight(flight["carrier"], flight["dep_delay"], flight["arr_delay"])
        batch.ack_all()
        if self.distinct > before:
            self.last_new_at = now

    def _is_new(self, row: int) -> bool:
        if self._seen[row]:
            self.duplicates += 1
            return False
        self._seen[row] = 1
        self.distinct += 1
        return True

    @property
    def complete(self) -> bool:
        return self.distinct == self.rows

    @property
    def lost(self) -> int:
        """Rows that the broker confirmed and no consumer ever saw."""
        return sum(confirmed and not seen for confirmed, seen in zip(self._confirmed, self._seen, strict=True))
