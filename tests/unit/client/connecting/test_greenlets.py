"""Threads of the system in a program whose threads are greenlets. A module in the place of gevent says so."""

import _thread
import selectors
import socket
import sys
import threading
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.integration.fake_broker import FakeBroker
from tests.integration.test_client_sync import address, serving_in_a_thread
from vibemq import sync
from vibemq.client.connecting.greenlets import (
    SystemThread,
    acquire,
    system_selector,
    system_thread,
    taken_lock,
    wait_s_max,
)
from vibemq.sync.direct_publishes import WORTHWHILE
from vibemq.sync.loop_thread import LoopThread


@pytest.fixture
def greenlets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for under its first name is what it was; what is used in its place would not work."""
    originals = {
        ("_thread", "start_new_thread"): _thread.start_new_thread,
        ("selectors", "DefaultSelector"): selectors.DefaultSelector,
        ("socket", "getaddrinfo"): socket.getaddrinfo,
    }
    monkey = ModuleType("gevent.monkey")
    monkey.is_module_patched = lambda name: name == "threading"  # type: ignore[attr-defined]
    monkey.get_original = lambda *name: originals[name]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gevent.monkey", monkey)
    monkeypatch.delattr(selectors, "DefaultSelector")


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with serving_in_a_thread() as broker:
        yield broker


def test_otherwise_it_is_a_thread_as_any() -> None:
    thread = system_thread(lambda: None, "of-a-test")
    assert isinstance(thread, threading.Thread)
    assert (thread.name, thread.daemon) == ("of-a-test", True)


@pytest.mark.usefixtures("greenlets")
def test_a_thread_of_the_system_runs_and_is_waited_for() -> None:
    ran: list[int] = []
    thread = system_thread(lambda: ran.append(threading.get_ident()), "of-a-test")
    assert isinstance(thread, SystemThread)
    thread.start()
    thread.join()
    thread.join()
    assert len(ran) == 1
    assert ran != [threading.get_ident()]


def test_threads_may_become_greenlets_after_the_import(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wait_s_max() == threading.TIMEOUT_MAX
    request.getfixturevalue("greenlets")
    assert wait_s_max() < threading.TIMEOUT_MAX
    waits: list[float] = []

    class Impatient:
        """Of gevent: who waits for another thread is woken by its timer first."""

        def acquire(self, timeout: float = -1) -> bool:
            waits.append(timeout)
            return len(waits) != 2

    monkeypatch.setattr("threading.Lock", Impatient)
    acquire(taken_lock())
    assert waits == [-1, wait_s_max(), wait_s_max()]


@pytest.mark.usefixtures("greenlets")
@pytest.mark.parametrize("has_uvloop", [True, False])
def test_a_loop_lives_beside_greenlets(monkeypatch: pytest.MonkeyPatch, has_uvloop: bool) -> None:
    if not has_uvloop:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    loop = LoopThread("of-a-test")
    assert loop.call(threading.get_ident) != threading.get_ident()
    loop.close()
    system_selector().close()


def test_a_client_has_no_second_connection_there(broker: FakeBroker, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("greenlets")
    named = address(broker).replace("127.0.0.1", "localhost")
    with sync.connect(named) as first, sync.connect(named) as second:
        for number in range(2 * WORTHWHILE):
            assert first.publish("orders", number).sequence == 2 * number + 1
            assert second.publish("orders", number).sequence == 2 * number + 2
        assert broker.accepted == 2
