"""Takes connections from listening sockets: one in each turn of the event loop, or a few when the turns are long, so
that a flood of them leaves the loop to those who are connected, and refuses the unwanted before anything is made for
them, a TLS handshake included.

Who is not taken at once waits in the kernel's queue of the socket.
"""

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import anyio
import anyio.to_thread

from vibemq.server.access.newcomers import Newcomers

log = logging.getLogger("vibemq.listener")

BACKLOG = 1024
TAKEN_PER_TURN = 8
"""Connections of one socket, at most; each costs some tenths of a millisecond until it has gone again."""
TURN_S_OF_EACH = 0.001
"""While more are waiting, one is taken for so much of the time that the last turn took."""
REFUSALS_FOR_ONE = 4
"""Refusing somebody costs so much less."""
KEEP_ALIVE_S, KEEP_ALIVE_INTERVAL_S, KEEP_ALIVE_PROBES = 60, 20, 3
RETRY_S = 1.0
"""After an accept that failed because files or memory have run out."""


async def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address of the host that the machine has.

    Raises OSError, also when it has none of them.
    """
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # Not by the event loop: a process that is forked from one with an embedded broker does not have the threads of
    # uvloop's pool, joins them when it exits all the same, and ends by a signal.
    found = await anyio.to_thread.run_sync(look_up)
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                bound = socket.socket(family, kind, protocol)
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:
                    raise
                continue
            sockets.append(bound)
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                bound.bind(address)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                # A host may have names for addresses of a family that is switched off, as `::1` for localhost.
                absent = error
                sockets.pop().close()
                log.info("does not listen at %s port %d: %s", *address[:2], error.strerror)
                continue
            bound.listen(BACKLOG)
    except OSError:
        for each in sockets:
            each.close()
        raise
    if not sockets:
        raise absent or OSError(errno.EAFNOSUPPORT, "this machine supports none of its address families")
    return sockets


class Handshakes:
    """TLS handshakes that are under way, of one listener or of several. Nothing is known of these peers but their
    addresses, and each costs a file and some memory. So their number is bounded: when all places are taken, an address
    that has few gets one of the address that has the most."""

    def __init__(self, places: int) -> None:
        """`places`: 0 = any number."""
        self._under_way: Newcomers[socket.socket] = Newcomers(places)

    def __len__(self) -> int:
        return len(self._under_way)

    def resize(self, places: int) -> None:
        self._under_way.places = places

    def has_place(self, host: str) -> bool:
        """Whether one may begin from there; for it the oldest of another address may have to end."""
        return not self._under_way.full or self.give_way(host)

    def give_way(self, host: str) -> bool:
        """End the oldest of the address that has the most; False: that one would have as many, or there is none."""
        leaving = self._under_way.who_makes_room(host)
        if leaving is None:
            return False
        log.info(
            "a TLS handshake gives way: its address has more under way than others", extra={"event": "conn.closed"}
        )
        self.end(leaving)
        _cut(leaving)
        return True

    def begin(self, connected: socket.socket, host: str) -> None:
        self._under_way.add(connected, host, 0.0)

    def end(self, connected: socket.socket) -> None:
        self._under_way.remove(connected)


class Acceptor:
    """Accepts from now on until `close`.

    Args:
        make: (accepted socket, which the transport will own) -> the protocol object of the connection.
        refuses: (host) -> None when a connection from there may come in; else what to say before it is closed.
        tls: the context of the listener; nothing is said before a handshake.
        handshakes: where those of this acceptor count. Left out: there may be any number.
        failed: told of each handshake that came to nothing.
        monotonic: seconds, for the length of a turn.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        make: Callable[[socket.socket], asyncio.BaseProtocol],
        refuses: Callable[[str], bytes | None],
        *,
        tls: ssl.SSLContext | None = None,
        handshake_timeout_s: float | None = None,
        handshakes: Handshakes | None = None,
        failed: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._going_on: set[socket.socket] = set()
        """Those of which more is taken in the next turn, readable or not."""
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._make = make
        self._refuses = refuses
        self._tls = tls
        self._failed = failed
        self._handshakes = Handshakes(0) if handshakes is None else handshakes
        self._handshake_timeout_s = handshake_timeout_s if tls is not None else None
        self._beginning: dict[asyncio.Task[None], socket.socket] = {}
        self._retries: set[asyncio.TimerHandle] = set()
        self._closed = False
        for each in sockets:
            self._loop.add_reader(each.fileno(), self._accept, each)

    def close(self) -> None:
        """Take nobody more; those who wait in the kernel's queue are reset. Connections go on."""
        if self._closed:
            return
        self._closed = True
        for each in self._sockets:
            self._loop.remove_reader(each.fileno())
            each.close()
        for retry in self._retries:
            retry.cancel()
        if self._tls is not None:
            # Their handshakes fail. A task is not cancelled: uvloop would close a connection that has just been made
            # without telling its protocol, which would wait for its end.
            for connected in self._beginning.values():
                _cut(connected)

    def _accept(self, listening: socket.socket) -> None:
        """It is readable."""
        if listening not in self._going_on:
            self._take(listening, 1)

    def _go_on(self, listening: socket.socket, since: float) -> None:
        """One turn after some were taken: however long the turns are, those who wait get a share of them."""
        self._going_on.discard(listening)
        if not self._closed:
            due = int((self._monotonic() - since) / TURN_S_OF_EACH)
            self._take(listening, min(max(due, 1), TAKEN_PER_TURN))

    def _take(self, listening: socket.socket, count: int) -> None:
        left = count * REFUSALS_FOR_ONE
        while left > 0:
            try:
                connected, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._wait(listening, error)
                return
            host = str(address[0]) if isinstance(address, tuple) else "local"
            said = self._refuses(host)
            if said is None and self._tls is not None and not self._handshakes.has_place(host):
                log.info(
                    "connection refused: too many TLS handshakes are under way",
                    extra={"event": "conn.rejected", "remote": host},
                )
                self._failed()
                said = b""
            if said is None:
                left -= REFUSALS_FOR_ONE
                self._begin(connected, host)
            else:
                left -= 1
                _refuse(connected, b"" if self._tls is not None else said)
        self._going_on.add(listening)
        self._loop.call_soon(self._go_on, listening, self._monotonic())

    def _wait(self, listening: socket.socket, error: OSError) -> None:
        """The socket stays readable: without a pause the loop would do nothing else."""
        log.error("a connection could not be accepted: %s; trying again in %g s", error, RETRY_S)
        self._loop.remove_reader(listening.fileno())

        def go_on() -> None:
            self._retries.discard(timer)
            self._loop.add_reader(listening.fileno(), self._accept, listening)

        timer = self._loop.call_later(RETRY_S, go_on)
        self._retries.add(timer)

    def _begin(self, connected: socket.socket, host: str) -> None:
        connected.setblocking(False)
        _keep_watch(connected)
        task = self._loop.create_task(self._connect(connected))
        self._beginning[task] = connected
        if self._tls is not None:
            self._handshakes.begin(connected, host)
        task.add_done_callback(self._begun)

    def _begun(self, task: asyncio.Task[None]) -> None:
        self._handshakes.end(self._beginning.pop(task))

    async def _connect(self, connected: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                partial(self._make, connected),
                connected,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_timeout_s,
            )
        except OSError as error:
            # It has gone, or its handshake failed (`vibemq.server.net.tls` says why).
            log.debug("a connection came to nothing: %s", error)
            if self._tls is not None and not self._closed:
                self._failed()


def _keep_watch(connected: socket.socket) -> None:
    """Have the kernel notice a peer whose machine is gone, also one that has nothing to say by its protocol."""
    if connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # A peer that has reset the connection by now is no fault of ours, and the loop tells of its end by itself.
    with suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", KEEP_ALIVE_S),
            ("TCP_KEEPINTVL", KEEP_ALIVE_INTERVAL_S),
            ("TCP_KEEPCNT", KEEP_ALIVE_PROBES),
        ):
            if hasattr(socket, name):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _cut(connected: socket.socket) -> None:
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        log.debug("a connection has gone meanwhile: %s", error)


def _refuse(connected: socket.socket, said: bytes) -> None:
    """At once: what is said is short, and fits the buffer of a new socket."""
    with connected:
        connected.setblocking(False)
        if said:
            try:
                connected.send(said)
            except OSError as error:
                log.debug("a refused connection has gone: %s", error)
