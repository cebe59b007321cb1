"""Programs in which gevent has made greenlets of threads, which wait in its hub: a loop that is to run beside the
program needs a thread, a selector and a resolver of the operating system all the same.

gevent is asked for nothing but what it has replaced. Locks stay its own: who waits for one gives the others their turn,
and may be woken by another thread.

A program may replace threads after it has imported this. So nothing is decided, and no lock is made, before it is
needed.
"""

import selectors
import socket
import sys
import threading
from collections.abc import Callable
from threading import TIMEOUT_MAX, Lock, Thread
from typing import Any


def threads_are_greenlets() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def taken_lock() -> Lock:
    """One that somebody waits for until another thread releases it."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def wait_s_max() -> float:
    """For a lock, at a time. A hub that is to wait for another thread alone takes that for a wait without an end, and
    raises; so it is given a timer."""
    return 10.0 if threads_are_greenlets() else TIMEOUT_MAX


def acquire(lock: Lock) -> None:
    """However long it takes."""
    if threads_are_greenlets():
        while not lock.acquire(timeout=wait_s_max()):
            pass
    else:
        lock.acquire()


class SystemThread:
    """As a `Thread` that is a daemon, of the operating system."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run
        self._ended = taken_lock()

    def start(self) -> None:
        """Raises RuntimeError: there are no more threads."""
        _original("_thread", "start_new_thread")(self._live, ())

    def join(self) -> None:
        acquire(self._ended)
        self._ended.release()

    def _live(self) -> None:
        try:
            self._run()
        finally:
            self._ended.release()


def system_thread(run: Callable[[], object], name: str) -> Thread | SystemThread:
    """A daemon that is to be started."""
    if threads_are_greenlets():
        return SystemThread(run)
    return Thread(target=run, name=name, daemon=True)


def system_selector() -> selectors.BaseSelector:
    """Where threads are greenlets."""
    selector: selectors.BaseSelector = _original("selectors", "DefaultSelector")()
    return selector


def system_getaddrinfo() -> Callable[..., list[Any]]:
    found: Callable[..., list[Any]] = socket.getaddrinfo
    return _original("socket", "getaddrinfo") if threads_are_greenlets() else found


def _original(module: str, name: str) -> Any:
    """What stood there before gevent came."""
    return sys.modules["gevent.monkey"].get_original(module, name)
