"""A broker inside a program, and the one that `vibemq serve` runs.

async with vibemq.Broker(data_dir="data") as broker:
    async with vibemq.connect(broker.url) as mq:
        ...

`start` and `stop` do the same without a block, from any task.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from vibemq.config import Auth, Http, Listener, Settings, StorageChoice
from vibemq.errors import ConfigInvalid, StorageError, StorageFailed, StorageFenced
from vibemq.model.arguments import check_text, misfit
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.operations import Caller
from vibemq.server.around.arguments import check_broker_arguments
from vibemq.server.assembly import Assembly, Owner, assemble
from vibemq.server.clock import Clock, TimeSource, running_s
from vibemq.server.commit.storage_threads import Store
from vibemq.server.forking import FORKED, let_go, no_longer, watch_forks
from vibemq.server.life import BrokerLife, Ending
from vibemq.server.listeners import Listeners
from vibemq.server.monitoring.health import Report
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.monitoring.status import BrokerStatus
from vibemq.server.net.listener import Listening
from vibemq.server.reload.reloader import Reloader, SettingsSource
from vibemq.server.shutdown import drain

log = logging.getLogger("vibemq.broker")

NOT_RUNNING = "the broker is not running; use `async with Broker(...) as broker:` or `await broker.start()`"
ELSEWHERE = (
    "this broker runs in the event loop of another thread, which alone may ask it; in other threads ask it through a "
    "client, `vibemq.sync.connect(broker.url)`, or have its loop call this with `loop.call_soon_threadsafe`"
)
CATCH_UP_S_MAX = 10.0
"""For so long `time_has_moved` waits."""


class Broker:
    """One broker. Use it once, as an asynchronous context manager or with `start` and `stop`, in any program that runs
    on asyncio.

    Args:
        data_dir: where the queues live; one process at a time.
        settings: everything else at once; then the other arguments must be left alone.
        host, port: of the native listener; port 0 = any free one, see `port` and `url`.
        http_port: serve health and metrics there; None = not at all.
        storage: name of the storage provider.
        on_fatal: called before the broker ends because a write failed with an unknown outcome.
        on_recovered: called when the store is open, before the first client can connect: from here on `stop` drains.
        source: where the settings come from, for `reload`; `vibemq serve` has one.
        time_source: the clocks of the machine, unless a test moves time.

    Leaving the context, or `stop`, drains: clients are told, what they hold is released, everything is flushed and
    closed. When storage fails, the body is cancelled and StorageFailed comes out of the context; without a context it
    comes out of `run` and of `await stop()`.
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
        on_recovered: Callable[[], None] | None = None,
        source: SettingsSource | None = None,
        time_source: TimeSource | None = None,
    ) -> None:
        check_broker_arguments(
            data_dir, settings, host, port, http_port, storage, on_fatal, on_recovered, source, time_source
        )
        if settings is None:
            settings = _settings_of(data_dir, host, port, http_port, storage)
        elif data_dir is not None:
            raise TypeError("give either data_dir or settings, not both")
        self.settings = settings
        self.metrics_counters = Metrics()
        self.status = BrokerStatus()
        self._on_fatal = on_fatal
        self._on_recovered = on_recovered
        self._source = source
        self._time_source = time_source or TimeSource()
        self._reloader: Reloader | None = None
        self._parts: Assembly | None = None
        self._store: Store | None = None
        self._life = BrokerLife(self._begin, self._finish, self._abandon, self._close_audit)
        self._block: anyio.CancelScope | None = None
        """What `async with` cancels when the broker ends by itself."""
        self._data_dir = ""
        """Without links, while the broker runs."""
        self._inherited = False
        """Of the parent, in a forked child."""
        self._closing = False
        """Everything is on disk; who asks storage for something now is told that it is closed."""
        self.report = Report(
            self.status,
            self.metrics_counters,
            series_max=settings.http.metrics_queues_max,
            running=self._time_source.running_s,
        )
        self._listeners = Listeners(self.report, self._fatal)

    # -- the operations of a broker -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store and the listeners; return when clients are served. Another task may call `stop`.

        When the caller is cancelled meanwhile, nothing is left behind.

        Raises:
            ConfigInvalid, StorageError: nothing was served.
            RuntimeError: it has been started before, or no asyncio loop runs.
        """
        self._refuse_in_child()
        await self._life.start()

    async def run(self) -> None:
        """Wait until the broker has ended: somebody has called `stop`, and it has drained.

        Raises:
            StorageFailed: it has ended by itself.
        """
        self._running()
        await self._life.ended()

    def stop(self) -> Ending:
        """Drain and close. May be called by any task and any callback of the event loop, by any thread and by the
        handler of a signal, and more than once; harmless before the start and after the end.

        Returns:
            what can be awaited for the end, in the event loop of the broker. That raises StorageFailed when the broker
            has ended by itself.
        """
        self._refuse_in_child()
        return self._life.stop()

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
        check_text("by", by)
        return await self._running_reloader().reload(by)

    async def _reload_for(self, caller: Caller) -> dict[str, Any]:
        user = caller.principal.name if caller.principal is not None else ""
        return await self._running_reloader().reload("broker.reload", user=user, asker=caller.session)

    def list_queues(self) -> list[QueueInfo]:
        return self._running().engine.queue_infos()

    def queue_info(self, name: str) -> QueueInfo | None:
        check_text("name", name)
        return self._running().engine.queue_info(name)

    def metrics(self) -> dict[str, Any]:
        """As /metrics/ shows them."""
        self._refuse_elsewhere()
        return self.report.json_metrics(self.report.snapshots.at_once())

    def health(self) -> dict[str, Any]:
        """As /health/ shows it."""
        self._refuse_elsewhere()
        return self.report.health(self.report.snapshots.at_once())

    async def time_has_moved(self) -> None:
        """Do what is due now, and return when it is done: the time source has jumped, and the event loop's timers do
        not know. To be awaited in the event loop of the broker."""
        timers = self._running().timers
        timers.look_now()
        with anyio.move_on_after(CATCH_UP_S_MAX):
            while timers.is_behind:
                await asyncio.sleep(0)

    @property
    def connection_count(self) -> int:
        return len(self._running().connection_table)

    @property
    def http_connection_count(self) -> int:
        """Connections to the HTTP server, which are none of the listeners'."""
        web = self._listeners.web
        return len(web.pool) if web is not None else 0

    @property
    def listening(self) -> list[Listening]:
        """The listeners that are open, in the order of the settings; HTTP is not among them."""
        return self._listeners.listening

    @property
    def port(self) -> int:
        """Of the first listener.

        Raises:
            RuntimeError: it has not been started.
        """
        if not self.listening:
            raise RuntimeError(NOT_RUNNING)
        return self.listening[0].port

    @property
    def url(self) -> str:
        """Where `vibemq.connect` finds the native listener: the first one, `vibemqs://` if it has TLS.

        Raises:
            RuntimeError: it has not been started, or its settings have no native listener.
        """
        native = next((listening for listening in self.listening if listening.protocol == "native"), None)
        if native is None:
            raise RuntimeError("this broker has no native listener for a client" if self.listening else NOT_RUNNING)
        host = f"[{native.host}]" if ":" in native.host else native.host
        return f"vibemq{'' if native.tls is None else 's'}://{host}:{native.port}"

    @property
    def http_address(self) -> tuple[str, int] | None:
        web = self._listeners.web
        return (web.host, web.port) if web is not None else None

    @property
    def console_url(self) -> str | None:
        """What a browser on this machine opens; None without the console."""
        web = self._listeners.web
        return web.console_url if web is not None else None

    @property
    def console_refusal(self) -> str | None:
        """Why that address is refused; None: it is not."""
        web = self._listeners.web
        return web.console_refusal if web is not None else None

    # -- life --------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        self._block = anyio.CancelScope()
        self._block.__enter__()
        self._life.when_broken(self._block.cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._block is not None
        if self._inherited:
            # It is the parent who leaves, some time; what this process ends with must be seen.
            return False
        self._life.when_broken(None)
        failure: BaseException | None = None
        with anyio.CancelScope(shield=True):
            try:
                await self.stop()
            except BaseException as told:
                failure = told
        swallowed = self._block.__exit__(kind, error, trace)
        if failure is not None:
            raise failure
        return bool(swallowed)

    def forked(self) -> None:
        """See `vibemq.server.forking.ForkWatcher`."""
        self._inherited = True
        let_go(self, self._data_dir, self._listeners.ports)

    async def _begin(self, tasks: TaskGroup) -> None:
        # From here on there is something to let go of, until `_abandon`.
        self._data_dir = os.path.realpath(self.settings.data_dir)
        watch_forks(self)
        settings = self.settings
        self._listeners.begin(settings, tasks)
        self._parts = await assemble(
            # A program may change its working directory, and would take the data directory with it.
            settings.model_copy(update={"data_dir": settings.data_dir.absolute()}),
            self.report,
            tasks,
            self._fatal,
            self._opened,
            self._make_clock,
            Owner(
                reload=self._reload_for,
                listening=lambda: self._listeners.facts(self._running()),
                configured=lambda: self.settings,
                origins=lambda: None if self._source is None else self._source.origins,
            ),
        )
        self._reloader = self._make_reloader(self._parts)
        if self._on_recovered is not None:
            self._on_recovered()
        await self._listeners.open(settings, self._parts, tasks)
        tasks.start_soon(self._parts.housekeeping.run)
        tasks.start_soon(self._parts.job_runner.run)
        # What the last run has left due must not wait for the first client.
        self._parts.timers.look_at_engine()
        self.status.started = True
        log.info("ready", extra={"event": "broker.ready"})

    def _make_reloader(self, parts: Assembly) -> Reloader:
        return Reloader(
            self.settings,
            self._source,
            tls=self._listeners.tls,
            apply=self._apply,
            accounts=parts.accounts,
            users=parts.users,
            revocation=parts.revocation,
            hashing=parts.hashing,
            audit=parts.audit,
        )

    def _make_clock(self, not_before: int) -> Clock:
        source = self._time_source
        # The machine's own is asked many times for each message: no call of ours stands before it.
        monotonic = running_s if type(source) is TimeSource else source.running_s
        return Clock(not_before=not_before, wall=source.wall_s, monotonic=monotonic)

    def _opened(self, store: Store) -> None:
        """Storage is open: from here on it has to be closed."""
        self._store = store

    async def _finish(self) -> None:
        if self._inherited:
            return
        assert self._parts is not None
        try:
            await drain(
                self._parts,
                self.status,
                self._listeners.listening,
                self._listeners.services,
                self.settings.drain_timeout_ms,
            )
            if self._parts.history is not None:
                await self._parts.history.save()
            self._closing = True
            if self._store is not None and self._life.failure is None:
                await self._store.close()
        except StorageFailed as error:
            self._closing = False
            self._fatal(error)
        finally:
            await self._abandon()
        log.info("stopped", extra={"event": "broker.stopped"})

    async def _abandon(self) -> None:
        """Let go of everything without another word to storage. Harmless after a proper end."""
        if self._inherited:
            return
        no_longer(self)
        self._listeners.close()
        if self._parts is not None:
            self._parts.hashing.close()
            self._parts.timers.stop()
            for connection in self._parts.connection_table:
                connection.drop("the broker has stopped")
            await asyncio.sleep(0)
        if self._store is not None:
            if not self.status.started and self._life.failure is None:
                await self._give_back(self._store)
            self._store.abandon()
        self._listeners.close_http()

    async def _close_audit(self) -> None:
        """Whatever the tasks have done until they were cancelled is recorded."""
        if self._inherited or self._parts is None:
            return
        await self._parts.audit.summarize(last=True)
        if self._parts.audit_writer is not None:
            await to_thread.run_sync(self._parts.audit_writer.close)

    async def _give_back(self, store: Store) -> None:
        """The start has not succeeded: the store is free for the next broker."""
        self._closing = True
        try:
            await store.give_back()
        except StorageError as error:
            log.warning("the store could not be closed after a start that has failed: %s", error)

    def _fatal(self, error: BaseException) -> None:
        """A write or flush failed and nobody knows what is on disk: stop, and let recovery decide."""
        if self._life.failure is not None:
            return
        if self._closing:
            log.debug("after the end of storage: %s", error)
            return
        self._life.fail(error)
        self.status.failed = True
        if isinstance(error, StorageFenced):
            log.critical("the store has another owner, the broker stops: %s", error, extra={"event": "broker.fenced"})
        else:
            log.critical(
                "storage failed, the broker stops: %s", error, exc_info=error, extra={"event": "broker.failed"}
            )
        if self._on_fatal is not None:
            self._on_fatal(error)

    async def replace_users(self, auth: Auth) -> None:
        """Other users, rules and token from now on. They count at once: a subscription whose right is gone ends with
        NOT_AUTHORIZED, and the connections of a user who is gone are closed.

        Whether the broker asks for credentials at all stays as it was at the start.

        Raises:
            ConfigInvalid: `auth` has no users and no token, or the broker was started without; nothing has changed.
        """
        if not isinstance(auth, Auth):
            raise misfit("auth", auth, "a vibemq.config.Auth", ConfigInvalid)
        await self._running_reloader().replace_users(auth)

    def _apply(self, settings: Settings) -> None:
        """Let settings count that a reload has changed, wherever they are used."""
        if settings.http.metrics_queues_max != self.settings.http.metrics_queues_max:
            self.report.set_series_max(settings.http.metrics_queues_max)
        if self._listeners.web is not None:
            self._listeners.web.configure(settings.http)
        self._running().configure(settings)
        self.settings = settings

    def _running_reloader(self) -> Reloader:
        self._running()
        assert self._reloader is not None
        return self._reloader

    def _refuse_in_child(self) -> None:
        if self._inherited:
            raise RuntimeError(FORKED)

    def _refuse_elsewhere(self) -> None:
        """To look is to touch: what was published since is counted when somebody looks."""
        self._refuse_in_child()
        if self._life.is_elsewhere:
            raise RuntimeError(ELSEWHERE)

    def _running(self) -> Assembly:
        self._refuse_elsewhere()
        if self._parts is None:
            raise RuntimeError(NOT_RUNNING)
        return self._parts


def _settings_of(data_dir: str | Path | None, host: str, port: int, http_port: int | None, storage: str) -> Settings:
    """Of arguments that have been checked already, so that no validator has to be made for them."""
    return Settings.model_construct(
        data_dir=Path(data_dir if data_dir is not None else "vibemq-data"),
        storage=StorageChoice.model_construct(provider=storage),
        listeners=(Listener.model_construct(host=host, port=port),),
        http=Http.model_construct(enabled=http_port is not None, port=http_port or 0),
        # A broker inside a program is light unless its settings or its HTTP port say otherwise.
        audit="log" if http_port is None else "file",
        history_bytes=0 if http_port is None else Settings.model_fields["history_bytes"].default,
    )
