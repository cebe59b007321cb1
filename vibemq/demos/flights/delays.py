"""Delays per carrier: whole minutes and counts, so that two ways of adding them up agree to the last digit."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Carrier:
    departed: int = 0
    departure_minutes: int = 0
    arrived: int = 0
    """Of the departed; some never arrived where they were meant to."""
    arrival_minutes: int = 0

    @property
    def mean_departure_delay(self) -> float:
        return self.departure_minutes / self.departed if self.departed else 0.0

    @property
    def mean_arrival_delay(self) -> float:
        return self.arrival_minutes / self.arrived if self.arrived else 0.0


@dataclass(slots=True)
class Delays:
    carriers: dict[str, Carrier] = field(default_factory=dict)

    def add(self, carrier: str, *, departed: int, departure_minutes: int, arrived: int, arrival_minutes: int) -> None:
        entry = self.carriers.setdefault(carrier, Carrier())
        entry.departed += departed
        entry.departure_minutes += departure_minutes
        entry.arrived += arrived
        entry.arrival_minutes += arrival_minutes

    def add_flight(self, carrier: str, departure_delay: float, arrival_delay: float | None) -> None:
        entry = self.carriers.get(carrier)
        if entry is None:
            entry = self.carriers[carrier] = Carrier()
        entry.departed += 1
        entry.departure_minutes += int(departure_delay)
        if arrival_delay is not None:
            entry.arrived += 1
            entry.arrival_minutes += int(arrival_delay)

    def by_flights(self) -> list[tuple[str, Carrier]]:
        """The biggest carrier first."""
        return sorted(self.carriers.items(), key=lambda item: -item[1].departed)
