"""What the server lends to a plug-in that does more than answer its sockets. Contract: `protocols.session.Services`."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import anyio
from anyio import CapacityLimiter
from anyio.abc import TaskGroup

from vibemq.errors import ConfigInvalid, ShuttingDown, StorageError, StorageFailed
from vibemq.protocols.session import HttpCalls, Principal, Session, SessionContext
from vibemq.server.background_tasks import BackgroundTasks
from vibemq.server.net.transport import CarrierServices

log = logging.getLogger("vibemq.plugin")

Create = Callable[[SessionContext], Session]

OUTBOUND_MAX = 64
TURNS_LEFT = 3
"""Of the loop, for the last words of tasks that the stop has waited for."""
GRACE_S = 2.0
"""For tasks that the stop waits for. A server that hangs must not hold up the stop."""
ROOM_BYTES = 262_144
"""Bytes of deliveries that a peer without a socket takes in one turn of the loop."""


class LoosePeer:
    """A peer without a socket: the plug-in gives its bytes to `receive`, and gets the session's through `write`."""

    def __init__(
        self,
        protocol: str,
        services: CarrierServices,
        create: Create,
        host: str,
        write: Callable[[bytes], None],
        forget: Callable[["LoosePeer"], None],
        *,
        own: bool = False,
        limited: bool = True,
    ) -> None:
        self._services = services
        self._write = write
        self._forget = forget
        self._ended = asyncio.Event()
        context = replace(services.connection_table.context(), wake=self._process_later)
        self.driver = services.peers.drive(
            create(context),
            number=context.session,
            connection_id=context.connection_id,
            host=host,
            wake=self._wake,
            protocol=protocol,
            own=own,
            limited=limited,
        )
        services.connection_table.without_socket[self.driver.number] = self.driver

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def until_ended(self) -> None:
        await self._ended.wait()

    def receive(self, data: bytes) -> None:
        """b"" is the end of the peer's stream."""
        self.driver.receive(data)

    def close(self) -> None:
        """The peer is gone."""
        self.driver.part()
        self._services.connection_table.without_socket.pop(self.driver.number, None)
        self._forget(self)
        self._ended.set()

    def _process_later(self) -> None:
        asyncio.get_running_loop().call_soon(self._process)

    def _process(self) -> None:
        if not self.driver.ending:
            self.driver.process()

    def _wake(self) -> None:
        self._services.loop_cycle.flush_later(self)

    @property
    def delivers(self) -> bool:
        return bool(self.driver.delivery_queue)

    def flush(self) -> None:
        driver = self.driver
        if driver.parted:
            return
        try:
            broken = driver.broken
            data, finished = (driver.last_word(), True) if broken else driver.collect(ROOM_BYTES)
            if data:
                self._write(data)
            if finished:
                self.close()
                return
            if driver.delivery_queue and not driver.delivery_queue.reading:
                self._wake()
            self._services.timers.watch(driver)
        except StorageError as error:
            self._services.fatal(error)
        except Exception:
            if driver.broken:
                log.exception("a peer of a plug-in could not be ended", extra={"conn_id": driver.connection_id})
                self.close()
            else:
                driver.give_up("what was due could not be written")


class PluginServices:
    """One plug-in's share; its tasks end with the broker, after its peers have been told."""

    def __init__(
        self,
        name: str,
        services: CarrierServices,
        mount: Callable[[str, Any], None] | None,
        outbound: CapacityLimiter,
        tasks: TaskGroup,
        fatal: Callable[[BaseException], None],
        acting: Callable[[str, str, int], Principal | None],
        watch_users: Callable[[Callable[[Collection[str]], None]], None],
    ) -> None:
        self._acting = acting
        self._watch_users = watch_users
        self._closers: list[Callable[[], None]] = []
        self._name = name
        self._services = services
        self._mount = mount
        self._begun = BackgroundTasks(tasks, fatal)
        self._fatal = fatal
        self._scopes: set[anyio.CancelScope] = set()
        self._last_scopes: set[anyio.CancelScope] = set()
        """Of tasks that the stop waits for."""
        self._peers: set[LoosePeer] = set()
        self._stopping = False
        self._seen_through = 0
        """Tasks under way that the stop waits for."""
        self._somebody_done = asyncio.Event()
        self.outbound = outbound
        tasks.start_soon(self._run, self._begun.run, ())

    def mount(self, prefix: str, app: Any) -> None:
        if self._mount is None:
            raise ConfigInvalid(f"{self._name} needs the HTTP port, and `http.enabled` is false; switch it on")
        self._mount(prefix, app)

    def begin(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        self._begun.begin(self._run, work, arguments)

    def see_through(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        if not self._stopping:
            self._seen_through += 1
            self._begun.begin(self._run_through, work, arguments)

    async def _run_through(self, work: Callable[..., Coroutine[Any, Any, None]], arguments: tuple[Any, ...]) -> None:
        try:
            await self._run(work, arguments, last=True)
        finally:
            self._seen_through -= 1
            self._somebody_done.set()

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def now(self) -> int:
        return self._services.connection_table.now()

    def connect(
        self,
        create: Create,
        *,
        host: str,
        write: Callable[[bytes], None],
        own: bool = False,
        limited: bool = True,
    ) -> LoosePeer:
        if self._stopping:
            raise ShuttingDown("the broker is stopping")
        forget = self._peers.discard
        peer = LoosePeer(self._name, self._services, create, host, write, forget, own=own, limited=limited)
        self._peers.add(peer)
        return peer

    def acting(self, user: str, token_id: str = "") -> Principal | None:
        return self._acting(user, token_id, self._services.connection_table.now())

    def watch_users(self, changed: Callable[[Collection[str]], None]) -> None:
        self._watch_users(changed)

    def http_calls(self, *, allowed: Sequence[str], timeout_ms: int, ca_file: str | None = None) -> HttpCalls:
        # A broker whose plug-ins call nobody starts sooner.
        from vibemq.server.outbound import OutboundCalls

        made = OutboundCalls.configured(allowed=allowed, timeout_ms=timeout_ms, ca_file=ca_file)
        self._closers.append(made.close)
        return made

    async def stop(self, reason: str) -> None:
        """Say goodbye to its peers, wait until what they asked is answered, then end its tasks."""
        self._stopping = True
        with anyio.move_on_after(GRACE_S):
            await self._until_seen_through()
        for scope in list(self._last_scopes):
            scope.cancel()
        await self._until_seen_through()
        for _ in range(TURNS_LEFT):
            # What they have said last is on its way to their peers.
            await asyncio.sleep(0)
        for peer in list(self._peers):
            peer.driver.goodbye(reason)
        for peer in list(self._peers):
            if not peer.driver.parted:
                await peer.until_ended()
        self.cut()

    async def _until_seen_through(self) -> None:
        while self._seen_through:
            await self._somebody_done.wait()
            self._somebody_done.clear()

    def cut(self) -> None:
        """The same at once."""
        self._stopping = True
        for peer in list(self._peers):
            peer.close()
        for scope in [*self._scopes, *self._last_scopes]:
            scope.cancel()
        for close in self._closers:
            close()

    async def _run(
        self, work: Callable[..., Coroutine[Any, Any, None]], arguments: tuple[Any, ...], *, last: bool = False
    ) -> None:
        if self._stopping and not last:
            return
        with anyio.CancelScope() as scope:
            scopes = self._last_scopes if last else self._scopes
            scopes.add(scope)
            try:
                await work(*arguments)
            except StorageFailed as error:
                self._fatal(error)
            except Exception:
                log.exception("a task of the plug-in %s has failed", self._name)
            finally:
                scopes.discard(scope)
