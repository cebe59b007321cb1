"""A broker inside a program, and the one that `vibemq serve` runs.

async with vibemq.Broker(data_dir="data") as broker:
    async with vibemq.connect(broker.url) as mq:
        ...
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup

from vibemq.config import Auth, Http, Listener, Settings, StorageChoice
from vibemq.errors import StorageFailed, StorageFenced
from vibemq.model.effects import QueueInfo
from vibemq.operations import Caller
from vibemq.server.assembly import Assembly, assemble
from vibemq.server.clock import Clock
from vibemq.server.commit.storage_threads import Store
from vibemq.server.monitoring.health import Report
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.monitoring.status import BrokerStatus
from vibemq.server.net.connections import ListenerEndpoint
from vibemq.server.net.listener import Listening, endpoint_of, listen
from vibemq.server.net.plugin_services import OUTBOUND_MAX, PluginServices
from vibemq.server.net.tls import ServerTls
from vibemq.server.reload.reloader import Reloader, SettingsSource
from vibemq.server.shutdown import drain
from vibemq.web.server import WebServer

log = logging.getLogger("vibemq.broker")


class Broker:
    """One broker. Use it once, as an asynchronous context manager, in any program that runs on asyncio.

    Args:
        data_dir: where the queues live; one process at a time.
        settings: everything else at once; then the other arguments must be left alone.
        host, port: of the native listener; port 0 = any free one, see `port` and `url`.
        http_port: serve health and metrics there; None = not at all.
        storage: name of the storage provider.
        on_fatal: called, instead of ending the context, when a write failed with an unknown outcome.
        source: where the settings come from, for `reload`; `vibemq serve` has one.

    Leaving the context drains: clients are told, what they hold is released, everything is flushed and closed.
    When storage fails, the body is cancelled and StorageFailed comes out of the context.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        settings: Settings | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        http_port: int | None = None,
        storage: str = "lmdb",
        on_fatal: Callable[[BaseException], None] | None = None,
        source: SettingsSource | None = None,
    ) -> None:
        if settings is None:
            settings = Settings(
                data_dir=Path(data_dir if data_dir is not None else "vibemq-data"),
                storage=StorageChoice(provider=storage),
                listeners=(Listener(host=host, port=port),),
                http=Http(enabled=http_port is not None, port=http_port or 0),
            )
        elif data_dir is not None:
            raise TypeError("give either data_dir or settings, not both")
        self.settings = settings
        self.listening: list[Listening] = []
        self.metrics_counters = Metrics()
        self.status = BrokerStatus()
        self._on_fatal = on_fatal
        self._source = source
        self._tls: dict[int, ServerTls] = {}
        """Of the open listeners, by their places in the settings."""
        self._reloader: Reloader | None = None
        self._parts: Assembly | None = None
        self._store: Store | None = None
        self._web: WebServer | None = None
        self._tasks: TaskGroup | None = None
        self._services: list[PluginServices] = []
        self._failure: BaseException | None = None
        self._closing = False
        """Everything is on disk; who asks storage for something now is told that it is closed."""
        self._failed = asyncio.Event()
        self._stop = asyncio.Event()
        self.report = Report(self.status, self.metrics_counters, series_max=settings.http.metrics_queues_max)

    # -- the operations of a broker -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until `stop` is called."""
        await self._stop.wait()

    def stop(self) -> None:
        """Have `run` return; leaving the context then drains."""
        self._stop.set()

    async def reload(self, *, by: str = "the program") -> dict[str, Any]:
        """Read again what may change under a running broker: the TLS files of the listeners and, in `vibemq serve`, the
        settings. Connections stay, but for those whose user or token is gone or has another password.

        Args:
            by: what has asked for it, for the audit log.

        Returns:
            names, never values: `changed`, `needs_restart`, `certificates` (files that hold something else),
            `hidden_users` (of the store, whose names the settings have now), and `files` that were read, None when the
            settings come from no file.

        Raises:
            ConfigInvalid: something cannot be used; nothing has changed.
        """
        return await self._running_reloader().reload(by)

    async def _reload_for(self, caller: Caller) -> dict[str, Any]:
        user = caller.principal.name if caller.principal is not None else ""
        return await self._running_reloader().reload("broker.reload", user=user, asker=caller.session)

    def list_queues(self) -> list[QueueInfo]:
        return self._running().engine.queue_infos()

    def queue_info(self, name: str) -> QueueInfo | None:
        return self._running().engine.queue_info(name)

    def metrics(self) -> dict[str, Any]:
        """As /metrics/ shows them."""
        return self.report.json_metrics(self.report.snapshots.at_once())

    def health(self) -> dict[str, Any]:
        """As /health/ shows it."""
        return self.report.health(self.report.snapshots.at_once())

    @property
    def connection_count(self) -> int:
        return len(self._running().connection_table)

    @property
    def port(self) -> int:
        """Of the first listener."""
        return self.listening[0].port

    @property
    def url(self) -> str:
        """Where `vibemq.connect` finds the native listener."""
        native = next(listening for listening in self.listening if listening.protocol == "native")
        host = f"[{native.host}]" if ":" in native.host else native.host
        return f"vibemq://{host}:{native.port}"

    @property
    def http_address(self) -> tuple[str, int] | None:
        return (self._web.host, self._web.port) if self._web is not None else None

    # -- life --------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        try:
            await self._start(self._tasks)
        except BaseException:
            # First the tasks: one that trips over what is closed under it would hide the error that counts.
            self._tasks.cancel_scope.cancel()
            await self._tasks.__aexit__(None, None, None)
            with anyio.CancelScope(shield=True):
                await self._abandon()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._tasks is not None
        with anyio.CancelScope(shield=True):
            if self._failure is None:
                await self._finish()
            else:
                await self._abandon()
        self._tasks.cancel_scope.cancel()
        # The group sees only its own cancellation, never the body's error: it would come out wrapped in a group.
        ours = isinstance(error, asyncio.CancelledError) and self._failure is not None
        await self._tasks.__aexit__(*((kind, error, trace) if ours else (None, None, None)))
        if self._failure is not None:
            raise self._as_storage_failure(self._failure)
        return False

    async def _start(self, tasks: TaskGroup) -> None:
        settings = self.settings
        endpoints = [(listener, endpoint_of(listener)) for listener in settings.listeners]
        if settings.http.enabled:
            self._web = WebServer(settings.http, self.report)
            tasks.start_soon(self._serve_http, self._web)
        tasks.start_soon(self._guard)
        self._parts = await assemble(
            settings,
            self.report,
            tasks,
            self._fatal,
            self._opened,
            self._make_clock,
            self._reload_for,
        )
        self._reloader = self._make_reloader(self._parts)
        await self._start_plugins([endpoint for _, endpoint in endpoints], self._parts, tasks)
        for number, (listener, endpoint) in enumerate(endpoints):
            if endpoint.plugin.create is not None:
                listening = await listen(listener, number, endpoint, self._parts.socket_services)
                self.listening.append(listening)
                if listening.tls is not None:
                    self._tls[number] = listening.tls
        tasks.start_soon(self._parts.housekeeping.run)
        self.status.started = True
        log.info("ready", extra={"event": "broker.ready"})

    def _make_reloader(self, parts: Assembly) -> Reloader:
        return Reloader(
            self.settings,
            self._source,
            tls=self._tls,
            apply=self._apply,
            accounts=parts.accounts,
            users=parts.users,
            revocation=parts.revocation,
            hashing=parts.hashing,
            audit=parts.audit,
        )

    def _make_clock(self, not_before: int) -> Clock:
        return Clock(not_before=not_before)

    async def _start_plugins(self, endpoints: list[ListenerEndpoint], parts: Assembly, tasks: TaskGroup) -> None:
        mount = self._web.mount if self._web is not None else None
        outbound = anyio.CapacityLimiter(OUTBOUND_MAX)
        for endpoint in endpoints:
            if endpoint.plugin.start is not None:
                services = PluginServices(endpoint.protocol, parts.socket_services, mount, outbound, tasks, self._fatal)
                self._services.append(services)
                await endpoint.plugin.start(services, endpoint.settings)

    def _opened(self, store: Store) -> None:
        """Storage is open: from here on it has to be closed."""
        self._store = store

    async def _finish(self) -> None:
        assert self._parts is not None
        try:
            await drain(self._parts, self.status, self.listening, self._services, self.settings.drain_timeout_ms)
            self._closing = True
            if self._store is not None and self._failure is None:
                await self._store.close()
        except StorageFailed as error:
            self._closing = False
            self._fatal(error)
        finally:
            await self._abandon()
        log.info("stopped", extra={"event": "broker.stopped"})

    async def _abandon(self) -> None:
        """Let go of everything without another word to storage. Harmless after a proper end."""
        for listening in self.listening:
            listening.acceptor.close()
        for services in self._services:
            services.cut()
        if self._parts is not None:
            self._parts.hashing.close()
            self._parts.timers.stop()
            for connection in self._parts.connection_table:
                connection.drop("the broker has stopped")
            await asyncio.sleep(0)
        if self._store is not None:
            self._store.abandon()
        if self._web is not None:
            self._web.stop()
            self._web.close()

    def _fatal(self, error: BaseException) -> None:
        """A write or flush failed and nobody knows what is on disk: stop, and let recovery decide."""
        if self._failure is not None:
            return
        if self._closing:
            log.debug("after the end of storage: %s", error)
            return
        self._failure = error
        self.status.failed = True
        if isinstance(error, StorageFenced):
            log.critical("the store has another owner, the broker stops: %s", error, extra={"event": "broker.fenced"})
        else:
            log.critical(
                "storage failed, the broker stops: %s", error, exc_info=error, extra={"event": "broker.failed"}
            )
        if self._on_fatal is not None:
            self._on_fatal(error)
        self._failed.set()

    async def _serve_http(self, web: WebServer) -> None:
        try:
            await web.run()
        except Exception:
            # Probes fail from now on, and say so to whoever watches; messages are served on.
            log.exception("the HTTP server has failed")

    async def _guard(self) -> None:
        await self._failed.wait()
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()

    @staticmethod
    def _as_storage_failure(error: BaseException) -> StorageFailed:
        if isinstance(error, StorageFailed):
            return error
        failure = StorageFailed(f"storage failed in an unforeseen way: {error!r}")
        failure.__cause__ = error
        return failure

    async def replace_users(self, auth: Auth) -> None:
        """Other users, rules and token from now on. They count at once: a subscription whose right is gone ends with
        NOT_AUTHORIZED, and the connections of a user who is gone are closed.

        Whether the broker asks for credentials at all stays as it was at the start.

        Raises:
            ConfigInvalid: `auth` has no users and no token, or the broker was started without; nothing has changed.
        """
        await self._running_reloader().replace_users(auth)

    def _apply(self, settings: Settings) -> None:
        """Let settings count that a reload has changed, wherever they are used."""
        if settings.http.metrics_queues_max != self.settings.http.metrics_queues_max:
            self.report.set_series_max(settings.http.metrics_queues_max)
        if self._web is not None:
            self._web.configure(settings.http)
        self._running().configure(settings)
        self.settings = settings

    def _running_reloader(self) -> Reloader:
        self._running()
        assert self._reloader is not None
        return self._reloader

    def _running(self) -> Assembly:
        if self._parts is None:
            raise RuntimeError("the broker is not running; use `async with Broker(...) as broker:`")
        return self._parts
