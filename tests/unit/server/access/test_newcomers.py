from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.server.access.newcomers import LOOKED_AT_EVERY_S, Newcomers


def filled(*hosts: str, places: int) -> Newcomers[int]:
    newcomers: Newcomers[int] = Newcomers(places)
    for number, host in enumerate(hosts):
        newcomers.add(number, host, float(number))
    return newcomers


def test_the_address_with_the_most_makes_room_for_one_with_few() -> None:
    newcomers = filled("192.0.2.1", "192.0.2.9", "192.0.2.9", "192.0.2.9", places=4)
    assert newcomers.full
    assert newcomers.who_makes_room("198.51.100.1") == 1
    assert newcomers.who_makes_room("192.0.2.9") is None
    newcomers.remove(1)
    assert not newcomers.full
    assert [number for number, _ in newcomers.oldest_first()] == [0, 2, 3]


def test_addresses_with_one_each_keep_their_places() -> None:
    newcomers = filled("192.0.2.1", "192.0.2.2", places=2)
    assert newcomers.who_makes_room("192.0.2.3") is None


def test_any_number() -> None:
    assert not filled("192.0.2.1", places=0).full
    newcomers = filled("192.0.2.1", places=1)
    newcomers.remove(7)
    newcomers.remove(0)
    assert len(newcomers) == 0
    assert newcomers.who_makes_room("192.0.2.1") is None


def test_whom_to_ask_for_a_place_is_found_without_a_look_at_every_address(monkeypatch: pytest.MonkeyPatch) -> None:
    newcomers = filled(*(f"10.0.{number // 250}.{number % 250}" for number in range(1_000)), places=1_002)
    newcomers.add(2_000, "192.0.2.9", 1.0)
    newcomers.add(2_001, "192.0.2.9", 1.0)
    newcomers.add(2_002, "192.0.2.9", 1.0)
    looked_at = []

    class Noting(dict[str, Any]):
        def values(self) -> Any:
            looked_at.append(len(self))
            return super().values()

    monkeypatch.setattr(newcomers, "_by_address", Noting(newcomers._by_address))
    assert newcomers.who_makes_room("198.51.100.1") == 2_000
    assert looked_at == []


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 11))))
def test_the_oldest_of_an_address_with_the_most_is_asked(steps: list[tuple[bool, int, int]]) -> None:
    newcomers: Newcomers[int] = Newcomers(1)
    kept: dict[int, str] = {}
    for comes, address, one in steps:
        if comes and one not in kept:
            kept[one] = f"192.0.2.{address}"
            newcomers.add(one, kept[one], 0.0)
        elif not comes:
            kept.pop(one, None)
            newcomers.remove(one)
        counts = Counter(kept.values())
        asked = newcomers.who_makes_room("198.51.100.1")
        if max(counts.values(), default=0) <= 1:
            assert asked is None
        else:
            assert asked is not None
            assert counts[kept[asked]] == max(counts.values())
            assert asked == next(other for other, host in kept.items() if host == kept[asked])


def test_a_thousand_logins_in_the_same_instant_are_no_newcomers_any_more() -> None:
    newcomers: Newcomers[int] = Newcomers(8)
    for number in range(80):
        if newcomers.full:
            newcomers.let_go(lambda one: True, now=5.0)
        assert not newcomers.full, f"number {number} is refused though everybody before has logged in"
        newcomers.add(number, "192.0.2.1", 5.0)


def test_a_look_that_finds_few_is_not_repeated_for_each_connection() -> None:
    newcomers: Newcomers[int] = Newcomers(20)
    for number in range(20):
        newcomers.add(number, "192.0.2.1", 5.0)
    looked_at: list[int] = []

    def has_come_in(one: int) -> bool:
        looked_at.append(one)
        return one in {3, 4}

    for _ in range(10):
        newcomers.let_go(has_come_in, now=5.0)
    assert (len(newcomers), len(looked_at)) == (18, 20)
    newcomers.let_go(has_come_in, now=5.0 + LOOKED_AT_EVERY_S)
    assert len(looked_at) == 38
