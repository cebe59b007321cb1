"""How much a client may ask for."""

from contextlib import ExitStack

import pytest

from vibemq.errors import RateLimited
from vibemq.web.api.guardrails.rates import BURST, TOGETHER, RequestRates
from vibemq.web.api.kinds import Kind

ADA = ("ada", "10.0.0.1")


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


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
    rates = RequestRates(clock, per_second=per_second, streams_max=1)
    assert admitted(rates) == per_second * BURST
    clock.now_s = 3.0
    assert admitted(rates) == per_second * 3
    with pytest.raises(RateLimited) as refusal:
        rates.count(Kind.READ, ADA)
    clock.now_s += refusal.value.wait_s + 1e-9
    rates.count(Kind.READ, ADA)


def test_changes_are_fewer() -> None:
    rates = RequestRates(Clock(), per_second=50, streams_max=1)
    assert admitted(rates, Kind.CHANGE) == 40


def test_clients_do_not_share() -> None:
    rates = RequestRates(Clock(), per_second=1, streams_max=1)
    admitted(rates)
    for client in (("bob", ADA[1]), (ADA[0], "10.0.0.2")):
        rates.count(Kind.READ, client)


def test_no_limit() -> None:
    rates = RequestRates(Clock(), per_second=0, streams_max=1)
    for _ in range(1_000):
        rates.count(Kind.CHANGE, ADA)


@pytest.mark.parametrize("kind", [Kind.READ, Kind.CHANGE, Kind.SCAN, Kind.STREAM])
def test_slots_of_one_client_and_of_all(kind: Kind) -> None:
    together = TOGETHER[kind]
    rates = RequestRates(Clock(), per_second=0, streams_max=together.in_all)
    with ExitStack() as held:
        for _ in range(together.of_client):
            held.enter_context(rates.slot(kind, ADA))
        with pytest.raises(RateLimited), rates.slot(kind, ADA):
            pass
        others = (("other", f"10.1.0.{number // together.of_client}") for number in range(together.in_all))
        for client in list(others)[: together.in_all - together.of_client]:
            held.enter_context(rates.slot(kind, client))
        with pytest.raises(RateLimited), rates.slot(kind, ("late", "10.2.0.1")):
            pass
    with rates.slot(kind, ADA):
        """They are free again."""
