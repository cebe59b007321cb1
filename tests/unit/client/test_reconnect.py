from itertools import islice

import pytest

from vibemq.client.reconnect import ReconnectPolicy
from vibemq.errors import ConfigInvalid


def test_ceilings_double_up_to_the_maximum() -> None:
    policy = ReconnectPolicy(initial_delay=1, max_delay=5)
    assert list(islice(policy.delays(lambda ceiling: ceiling), 5)) == [1, 2, 4, 5, 5]


def test_a_constant_delay() -> None:
    policy = ReconnectPolicy(initial_delay=1, max_delay=5, exponential=False)
    assert list(islice(policy.delays(lambda ceiling: ceiling / 2), 3)) == [0.5, 0.5, 0.5]


def test_attempts_end() -> None:
    policy = ReconnectPolicy(max_attempts=2)
    assert [policy.is_over(attempts) for attempts in range(4)] == [False, False, True, True]
    assert ReconnectPolicy(max_attempts=0).is_over(0)
    assert not ReconnectPolicy().is_over(10**9)


def test_a_delay_of_nothing_grows_too() -> None:
    assert list(islice(ReconnectPolicy(initial_delay=0).delays(lambda c: c), 3)) == [0, 0.001, 0.002]


def test_impossible_policies_are_refused() -> None:
    with pytest.raises(ConfigInvalid):
        ReconnectPolicy(initial_delay=3, max_delay=1)
    with pytest.raises(ConfigInvalid):
        ReconnectPolicy(max_attempts=-1)


@pytest.mark.parametrize(
    "times",
    [
        {"initial_delay": float("nan")},
        {"max_delay": float("nan")},
        {"max_delay": float("inf")},
        {"offline_timeout": -1},
        {"offline_timeout": float("nan")},
    ],
)
def test_times_that_are_none_are_refused(times: dict[str, float]) -> None:
    with pytest.raises(ConfigInvalid, match=r"reconnect .* must be"):
        ReconnectPolicy(**times)  # type: ignore[arg-type]
