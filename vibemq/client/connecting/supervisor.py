"""Keeps a link connected: dials, lets the connection run, and dials again."""

import logging
import random
from collections.abc import Callable

import anyio

from vibemq.client.connecting.connection import GOODBYE_SECONDS, ClientConnection
from vibemq.client.connecting.dialing import dial
from vibemq.client.connecting.direct_connection import DirectConnection
from vibemq.client.connecting.forking import FORKED
from vibemq.client.connecting.plain_socket import PlainSocket
from vibemq.client.connecting.stream_connection import StreamConnection
from vibemq.client.link import CLIENT_CLOSED, ClientLink
from vibemq.errors import AuthError, ClientForked, ConfigInvalid, NotABroker, NotConnected, ProtocolError, VibeMQError

logger = logging.getLogger(__name__)

STEADY_SECONDS = 5.0
"""A connection that lived so long was a good one: the next loss starts with the shortest delay again."""
_HOPELESS = (AuthError, ConfigInvalid, NotABroker, ProtocolError)
"""No use in trying again, when the very first connection meets them."""


class Supervisor:
    """Owns the connections of one client, one after the other."""

    def __init__(
        self,
        link: ClientLink,
        draw: Callable[[float], float] = lambda ceiling: random.uniform(0, ceiling),  # noqa: S311  # spreads load, guards nothing
    ) -> None:
        self._link = link
        self._draw = draw
        self._connection: ClientConnection | None = None
        self._closing = False
        self._steady = False
        """Whether the last connection was a good one."""
        self._ended = anyio.Event()
        self.connections = 0
        """Made so far; above 1 counts reconnections."""

    async def live(self) -> None:
        """Keep connected, and keep time, until the caller is cancelled. Never raises a VibeMQError: `link.failure`
        tells."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run)
            tasks.start_soon(self._tick)

    async def _run(self) -> None:
        """Until the client closes, or the policy gives up."""
        try:
            await self._keep_connected()
        finally:
            self._ended.set()

    async def _tick(self) -> None:
        """The client's clock: what is due, a few times a second; more often for short leases that are extended."""
        settings, restored = self._link.settings, self._link.restored
        interval = min(0.5, settings.command_timeout / 10, settings.keep_alive / 4)
        while True:
            with anyio.move_on_after(min(interval, restored.tick_s)):
                await restored.hurried.wait()
            now = anyio.current_time()
            if self._connection is not None:
                self._connection.tick(now)
            else:
                self._link.tick(now)

    def forked(self) -> None:
        """In a forked child: the connection is the parent's."""
        self._link.forget_inherited(_forked)

    async def close(self, *, wait_for_confirms: bool) -> None:
        """Say goodbye, within `command_timeout` in all: settlements and publishes first, then Disconnect, then the
        broker hangs up. Without a connection, publishes wait for the next one, but no longer than `offline_timeout`."""
        link = self._link
        deadline = anyio.current_time() + link.settings.command_timeout
        offline = link.protocol is None
        for subscriber in link.restored.all():
            subscriber.halt()
            if offline:
                link.restored.forget(subscriber)  # The next connection is for publishes only.
        try:
            if wait_for_confirms and link.failure is None:
                await self._confirmed(deadline, offline=offline)
            self._closing = True
            goodbye_s = min(GOODBYE_SECONDS, max(0.0, deadline - anyio.current_time()))
            with anyio.move_on_after(goodbye_s, shield=True):
                if self._connection is not None:
                    link.goodbye()
                    await self._ended.wait()
        finally:
            # Also of a call that was cancelled: nobody keeps the client's time from now on.
            self._closing = True
            link.fail(_closed)

    async def _confirmed(self, deadline: float, *, offline: bool) -> None:
        policy = self._link.settings.reconnect
        until = deadline
        if offline and policy.offline_timeout is not None:
            until = min(deadline, anyio.current_time() + policy.offline_timeout)
        with anyio.CancelScope(deadline=until):
            await self._link.outbox.idle.wait()

    async def _keep_connected(self) -> None:
        policy = self._link.settings.reconnect
        delays = policy.delays(self._draw)
        attempts = 0
        while not self._is_closing():
            connections = self.connections
            try:
                why = await self._connect_once()
            except VibeMQError as exc:
                if not self.connections and (not policy.first_connect or isinstance(exc, _HOPELESS)):
                    self._link.fail(_same(exc))
                    return
                why = self._link.unreachable = str(exc)
            if self._is_closing():
                return
            if self.connections > connections:
                attempts = 0
                if self._steady:
                    delays = policy.delays(self._draw)
            if policy.is_over(attempts):
                self._give_up(attempts, why)
                return
            delay = next(delays)
            attempts += 1
            logger.warning("no connection: %s; attempt %d in %.1f s", why, attempts, delay)
            await anyio.sleep(delay)

    async def _connect_once(self) -> str:
        """One connection, from the dial to its end; why it ended."""
        settings = self._link.settings
        async with dial(settings) as (stream, protocol):
            self.connections += 1
            began = anyio.current_time()
            if isinstance(stream, PlainSocket):
                self._connection = DirectConnection(stream, protocol, self._link)
            else:
                self._connection = StreamConnection(stream, protocol, self._link)
            try:
                return await self._connection.run()
            finally:
                self._connection = None
                self._steady = anyio.current_time() - began >= STEADY_SECONDS

    def _is_closing(self) -> bool:
        return self._closing

    def _give_up(self, attempts: int, why: str) -> None:
        address = f"{self._link.settings.host}:{self._link.settings.port}"
        sentence = f"gave up on {address} after {attempts} attempts to reconnect: {why}"
        logger.error("%s", sentence)
        self._link.fail(lambda: NotConnected(sentence))


def _forked() -> VibeMQError:
    return ClientForked(FORKED)


def _closed() -> VibeMQError:
    return NotConnected(CLIENT_CLOSED)


def _same(error: VibeMQError) -> Callable[[], VibeMQError]:
    return lambda: error
