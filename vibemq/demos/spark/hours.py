"""Departures and delays per carrier and hour: whole minutes and counts, so that two ways of adding up agree exactly."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

Key = tuple[str, str]
"""Carrier, and hour as the data write it: 2013-01-01T10:00:00Z."""


@dataclass(frozen=True, slots=True)
class Hour:
    departed: int = 0
    departure_minutes: int = 0
    arrived: int = 0
    arrival_minutes: int = 0


NONE = Hour()


def direct(frame: Any) -> dict[Key, Hour]:
    """Computed by pandas from the whole table at once."""
    departed = frame[frame["dep_time"].notna()]
    grouped = departed.groupby(["carrier", "time_hour"])
    table = grouped.agg(
        departed=("dep_delay", "size"),
        departure_minutes=("dep_delay", "sum"),
        arrived=("arr_delay", "count"),
        arrival_minutes=("arr_delay", "sum"),
    )
    return {
        (str(key[0]), str(key[1])): Hour(*map(int, values))
        for key, values in zip(table.index, table.values, strict=True)
    }


class Results:
    """What the queue `delays` says: of each key the value of the latest version holds."""

    def __init__(self) -> None:
        self.messages = 0
        self.duplicates = 0
        """Messages whose key and version had come before."""
        self._latest: dict[Key, tuple[int, Hour]] = {}
        self._seen: set[tuple[Key, int]] = set()

    def add(self, bodies: Iterable[bytes]) -> None:
        for body in bodies:
            row = orjson.loads(body)
            key, version = (row["carrier"], row["hour"]), row["version"]
            self.messages += 1
            self.duplicates += (key, version) in self._seen
            self._seen.add((key, version))
            if version >= self._latest.get(key, (-1, NONE))[0]:
                counts = Hour(row["departed"], row["departure_minutes"], row["arrived"], row["arrival_minutes"])
                self._latest[key] = (version, counts)

    @property
    def hours(self) -> dict[Key, Hour]:
        return {key: hour for key, (_, hour) in self._latest.items()}

    @property
    def versions(self) -> int:
        """How many batches have published anything."""
        return len({version for _, version in self._seen})


def missing(expected: dict[Key, Hour], found: dict[Key, Hour]) -> int:
    """Departures that are counted nowhere."""
    return sum(max(0, hour.departed - found.get(key, NONE).departed) for key, hour in expected.items())


def too_many(expected: dict[Key, Hour], found: dict[Key, Hour]) -> int:
    """Departures that are counted again."""
    return sum(max(0, hour.departed - expected.get(key, NONE).departed) for key, hour in found.items())


def different(expected: dict[Key, Hour], found: dict[Key, Hour]) -> int:
    """Keys whose four numbers are not the same on both sides."""
    return sum(expected.get(key) != found.get(key) for key in expected.keys() | found.keys())
