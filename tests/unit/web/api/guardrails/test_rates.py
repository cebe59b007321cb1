"""How much a client may ask for."""

from collections import Counter
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import RateLimited
from vibemq.web.api.guardrails.rates import BURST, TOGETHER, RequestRates, Shares, client_of
from vibemq.web.api.kinds import Kind

ADA = ("ada", "10.0.0.1")


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def unheard(error: RateLimited) -> None:
    """The broker counts it."""


def admitted(rates: RequestRates, kind: Kind = Kind.READ, client: tuple[str, str] = ADA) -> int:
    """How many pass until one is refused."""
    for count in range(100_000):
        try:
            rates.count(kind, client)
        except RateLimited:
            return count
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize("per_second", [10, 50, 1_000])
def test_the_rate_is_exact_and_the_wait_is_true(per_second: int) -> None:
    clock = Clock()
    rates = RequestRates(clock, per_second=per_second, streams_max=1, refused=unheard)
    assert admitted(rates) == per_second * BURST
    clock.now_s = 3.0
    assert admitted(rates) == per_second * 3
    with pytest.raises(RateLimited) as refusal:
        rates.count(Kind.READ, ADA)
    clock.now_s += refusal.value.wait_s + 1e-9
    rates.count(Kind.READ, ADA)


@pytest.mark.parametrize(("before", "after"), [(2, 1_000), (1_000, 2)])
def test_another_rate_counts_for_clients_that_are_known(before: int, after: int) -> None:
    clock = Clock()
    rates = RequestRates(clock, per_second=before, streams_max=1, refused=unheard)
    admitted(rates)
    clock.now_s = 1.0
    rates.per_second = after
    assert admitted(rates) == after
    clock.now_s += 60.0
    assert admitted(rates) == after * BURST


def test_changes_are_fewer() -> None:
    rates = RequestRates(Clock(), per_second=50, streams_max=1, refused=unheard)
    assert admitted(rates, Kind.CHANGE) == 40


def test_clients_do_not_share() -> None:
    rates = RequestRates(Clock(), per_second=1, streams_max=1, refused=unheard)
    admitted(rates)
    for client in (("bob", ADA[1]), (ADA[0], "10.0.0.2")):
        rates.count(Kind.READ, client)


def test_no_limit() -> None:
    rates = RequestRates(Clock(), per_second=0, streams_max=1, refused=unheard)
    for _ in range(1_000):
        rates.count(Kind.CHANGE, ADA)


@pytest.mark.parametrize("kind", [Kind.READ, Kind.CHANGE, Kind.SCAN, Kind.STREAM])
def test_slots_of_one_client_and_of_all(kind: Kind) -> None:
    together = TOGETHER[kind]
    rates = RequestRates(Clock(), per_second=0, streams_max=together.in_all, refused=unheard)
    with ExitStack() as held:
        for _ in range(together.of_client):
            held.enter_context(rates.slot(kind, ADA))
        with pytest.raises(RateLimited), rates.slot(kind, ADA):
            pass
        for number in range(together.in_all - together.of_client):
            held.enter_context(rates.slot(kind, (f"user {number}", "10.1.0.1")))
        with pytest.raises(RateLimited), rates.slot(kind, ("late", "10.2.0.1")):
            pass
    with rates.slot(kind, ADA):
        """They are free again."""


@pytest.mark.parametrize("kind", [Kind.READ, Kind.CHANGE, Kind.SCAN, Kind.STREAM])
def test_who_has_many_addresses_leaves_half_to_others(kind: Kind) -> None:
    together = TOGETHER[kind]
    rates = RequestRates(Clock(), per_second=0, streams_max=together.in_all, refused=unheard)
    with ExitStack() as held:

        def taken(user: str) -> int:
            for number in range(together.in_all):
                try:
                    held.enter_context(rates.slot(kind, (user, f"10.1.0.{number}")))
                except RateLimited:
                    return number
            raise AssertionError("nothing was refused")

        most = together.in_all
        assert [taken("a"), taken("b"), taken("c")] == [most // 2, most // 4, most // 8]


def test_addresses_of_one_network_are_one_client() -> None:
    assert client_of("ada", "2001:db8::1") == client_of("ada", "2001:db8::ffff:1") != client_of("bob", "2001:db8::1")
    assert client_of("", "2001:db8::1") != client_of("", "2001:db8:0:1::1")
    assert client_of("", "127.0.0.1") == ("", "127.0.0.1")


@given(st.integers(0, 100), st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 60), st.booleans())))
def test_nobody_has_more_than_is_left_to_others(room: int, asked: list[tuple[str, int, bool]]) -> None:
    shares, held = Shares(room), ExitStack()
    has: Counter[str] = Counter()
    for owner, amount, from_anew in asked:
        if from_anew:
            held.close()
            has.clear()
        left = room - has.total()
        with ExitStack() as this:
            is_held = this.enter_context(shares.hold((owner, "10.0.0.1"), amount))
            assert is_held is (amount <= left and has[owner] + amount <= left - amount + 1)
            if is_held:
                has[owner] += amount
                held.push(this.pop_all())
    held.close()
    with shares.hold(("new", ""), (room + 1) // 2) as is_held:
        assert is_held, "all of it is free again"


def test_large_amounts_leave_some_for_whoever_comes_next() -> None:
    shares = Shares(64)
    with ExitStack() as held:

        def taken(owner: str, amount: int) -> int:
            """How much it gets in all."""
            count = 0
            while held.enter_context(shares.hold((owner, ""), amount)):
                count += 1
            return count * amount

        assert [taken(owner, 8) for owner in "abcde"] == [32, 16, 8, 0, 0]
        assert taken("f", 2) == 4, "half of the eight that are left"
