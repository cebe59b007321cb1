"""What idle connections may cost is judged by what an echo costs in the same seconds, and by the wake-ups."""

import pytest

from tests.proof.idle import CPU_MAX_ECHOES, ECHOES_PER_S, WAKEUPS_OWN_MAX, Cost, Silence, judge, least_silence

SECONDS = 10.0


def cost(silence: Silence) -> Cost:
    return Cost(10_000, 2.0, 200.0, 180.0, 40.0, 1.0, 0.5, silence, 10_000)


def silence(cpu_s: float, echo_cpu_s: float, wakeups_per_s: float = ECHOES_PER_S) -> Silence:
    return Silence(SECONDS, cpu_s, int(SECONDS * wakeups_per_s), echo_cpu_s)


@pytest.mark.parametrize("slowness", [1.0, 6.0])
def test_a_slow_machine_is_no_finding(slowness: float) -> None:
    assert judge(cost(silence(0.2 * slowness, 0.1 * slowness)), "silent") == []


@pytest.mark.parametrize("slowness", [1.0, 6.0])
def test_work_for_every_connection_is_a_finding_however_fast_the_machine(slowness: float) -> None:
    spent = 1.1 * CPU_MAX_ECHOES * 0.1 * slowness
    [finding] = judge(cost(silence(spent, 0.1 * slowness)), "silent")
    assert "times the processor time" in finding.what


def test_a_timer_for_every_connection_is_a_finding_however_cheap() -> None:
    [finding] = judge(cost(silence(0.1, 0.1, ECHOES_PER_S + WAKEUPS_OWN_MAX + 100)), "silent")
    assert "wake the broker" in finding.what


def test_what_is_too_much_is_measured_again() -> None:
    burst, calm = silence(1.0, 0.1), silence(0.2, 0.1)
    heard = iter([burst, calm])
    assert least_silence(heard.__next__, 10_000) is calm
    heard = iter([burst, silence(0.9, 0.1), burst])
    assert judge(cost(least_silence(heard.__next__, 10_000)), "silent")


def test_what_is_little_is_measured_once() -> None:
    assert least_silence(iter([silence(0.2, 0.1)]).__next__, 10_000).echoes == 2.0
