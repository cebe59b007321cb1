"""What idle connections may cost is judged by what an echo costs in the same seconds, and by the wake-ups."""

import os
import threading
import time
from contextlib import nullcontext

import pytest

from tests.proof import idle
from tests.proof.idle import (
    CPU_MAX_ECHOES,
    WAKEUPS_OWN_MAX,
    Cost,
    Echo,
    Silence,
    be_silent,
    echoes_per_s,
    judge,
    least_silence,
)
from tests.proof.slow_peers import cpu_seconds

SECONDS = 10.0
MESSAGES_PER_S = echoes_per_s(10_000)


def cost(silence: Silence) -> Cost:
    return Cost(10_000, 2.0, 200.0, 180.0, 40.0, 1.0, 0.5, silence, 10_000)


def silence(cpu_s: float, echo_cpu_s: float, wakeups_per_s: float = MESSAGES_PER_S) -> Silence:
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
    [finding] = judge(cost(silence(0.1, 0.1, MESSAGES_PER_S + WAKEUPS_OWN_MAX + 100)), "silent")
    assert "wake the broker" in finding.what


class Machine:
    """Its time passes while somebody sleeps, and by a millisecond at each look at the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.echoed = 0

    def monotonic(self) -> float:
        self.now += 0.001
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def sendall(self, data: bytes) -> None:
        self.echoed += 1


@pytest.mark.parametrize(("connections", "echoes"), [(10_000, 2_222), (20_000, 4_444), (2_000, 444), (50, 200)])
def test_the_echo_gets_as_many_messages_as_the_clients_send(
    connections: int, echoes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine()
    monkeypatch.setattr(idle, "time", machine)
    monkeypatch.setattr(idle, "_connected", lambda port: nullcontext(machine))
    monkeypatch.setattr(idle, "_frame", lambda peer: None)
    heard = be_silent(os.getpid(), Echo(1, os.getpid()), SECONDS, connections)
    assert heard.seconds >= SECONDS
    assert machine.echoed == pytest.approx(echoes, rel=0.01)


def test_the_processor_time_of_ended_threads_counts() -> None:
    before = cpu_seconds(os.getpid())
    spent = []

    def work() -> None:
        sum(range(200_000))
        spent.append(time.thread_time())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert cpu_seconds(os.getpid()) - before >= spent[0]


def test_what_is_too_much_is_measured_again() -> None:
    burst, calm = silence(1.0, 0.1), silence(0.2, 0.1)
    heard = iter([burst, calm])
    assert least_silence(heard.__next__, 10_000) is calm
    heard = iter([burst, silence(0.9, 0.1), burst])
    assert judge(cost(least_silence(heard.__next__, 10_000)), "silent")


def test_what_is_little_is_measured_once() -> None:
    assert least_silence(iter([silence(0.2, 0.1)]).__next__, 10_000).echoes == 2.0
