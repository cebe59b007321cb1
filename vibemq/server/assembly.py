"""Puts a broker together from its parts, in the order in which they need each other."""

import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from anyio import to_thread
from anyio.abc import TaskGroup

from vibemq import plugins
from vibemq.auth.users import Accounts
from vibemq.config import Settings
from vibemq.engine import Engine, EngineSettings
from vibemq.errors import ConfigInvalid, QueueNotFound
from vibemq.model.options import Durability, QueueOptions, options_from_dict
from vibemq.model.stored import StoredState
from vibemq.operations import AUDITED_COMMANDS, OPERATIONS, Caller, Registry
from vibemq.operations.dead_letters import DeadLetterReader
from vibemq.operations.long_polls import LongPolls
from vibemq.operations.tokens import Tokens
from vibemq.operations.transactions import Transactions
from vibemq.operations.users import Users
from vibemq.server.access.audit import AuditLog
from vibemq.server.access.audit_file import FOLDER, AuditFile
from vibemq.server.access.audit_writer import AuditWriter
from vibemq.server.access.authenticator import Authenticator
from vibemq.server.access.command_audit import CommandAudit
from vibemq.server.access.guessing import GuessLimiter
from vibemq.server.access.hashing import HashingThreads
from vibemq.server.access.revocation import Revocation
from vibemq.server.around.look import Around, ListenerFacts
from vibemq.server.assembling.handlers import OperationParts, operation_handlers
from vibemq.server.background_tasks import BackgroundTasks
from vibemq.server.checks import plugin_settings
from vibemq.server.clock import Clock
from vibemq.server.commit.backpressure import Backpressure, PutAside, ReadTurns
from vibemq.server.commit.committer import Committer
from vibemq.server.commit.loop_cycle import LoopCycle
from vibemq.server.commit.message_memory import MessageMemory
from vibemq.server.commit.release_order import EffectRouter
from vibemq.server.commit.storage_threads import Store
from vibemq.server.contracts import QueueEngine
from vibemq.server.declared import declare
from vibemq.server.jobs.expiry import OldJobs, StillJobs
from vibemq.server.jobs.export_files import ExportFiles
from vibemq.server.jobs.export_folder import FOLDER as EXPORTS
from vibemq.server.jobs.export_folder import ExportFolder
from vibemq.server.jobs.runner import JobRunner
from vibemq.server.jobs.worker import JobServices
from vibemq.server.local_session import INNER_SESSION, LocalSession
from vibemq.server.monitoring.broker_figures import BrokerFigures
from vibemq.server.monitoring.byte_rates import ConnectionByteRates
from vibemq.server.monitoring.health import Report
from vibemq.server.monitoring.history.history_file import NAME as HISTORY
from vibemq.server.monitoring.history.recorder import HistoryRecorder
from vibemq.server.monitoring.housekeeping import Housekeeping
from vibemq.server.monitoring.reporting import Running
from vibemq.server.monitoring.status import BrokerStatus
from vibemq.server.monitoring.trail import Trail
from vibemq.server.net.classifier import Classifier
from vibemq.server.net.connections import ConnectionTable
from vibemq.server.net.decider import Decider
from vibemq.server.net.driving.services import PeerServices
from vibemq.server.net.large_turns import LargeTurns
from vibemq.server.net.operation_runner import OperationRunner
from vibemq.server.net.pacer import Pacer
from vibemq.server.net.peer_factory import PeerFactory
from vibemq.server.net.timers import Timers
from vibemq.server.net.transport import SocketServices
from vibemq.server.net.unsent import Unsent
from vibemq.storage.interface import StoragePlugin
from vibemq.storage.timeline import begin_timeline, refuse_restored

log = logging.getLogger("vibemq.assembly")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """What the parts of a broker ask of it."""

    reload: Callable[[Caller], Awaitable[dict[str, Any]]]
    """Reads the settings again, when an operator asks for it."""
    listening: Callable[[], Sequence[ListenerFacts]]
    configured: Callable[[], Settings]
    """Those that count at the moment."""
    origins: Callable[[], Mapping[str, str] | None]
    """Where each setting came from; None = a program has made them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The parts that the broker's owner needs again."""

    engine: QueueEngine
    store: Store
    committer: Committer
    decider: Decider
    pacer: Pacer
    operations: Registry
    accounts: Accounts
    users: Users
    revocation: Revocation
    connection_table: ConnectionTable
    timers: Timers
    socket_services: SocketServices
    housekeeping: Housekeeping
    local_session: LocalSession
    long_polls: LongPolls
    job_runner: JobRunner
    hashing: HashingThreads
    audit: AuditLog
    command_audit: CommandAudit
    authenticator: Authenticator
    runner: OperationRunner
    background_tasks: BackgroundTasks
    clock: Clock
    audit_writer: AuditWriter | None
    """None: there is no audit file."""
    trail: Trail
    history: HistoryRecorder | None
    queue_defaults: QueueOptions
    durable_queues: bool
    """Whether queues may be other than transient."""

    def configure(self, settings: Settings) -> None:
        """Let settings count that a reload has changed."""
        limits = settings.limits
        self.engine.configure(engine_settings(settings, durable_queues=self.durable_queues))
        self.committer.set_weak_flush_ms(settings.weak_flush_ms)
        self.connection_table.configure(limits)
        self.socket_services.peers.messages_per_second_max = limits.messages_per_client_per_second
        self.housekeeping.limits = limits


def new_id() -> str:
    """32 hex digits from the system's source."""
    return os.urandom(16).hex()


def storage_plugin(settings: Settings) -> tuple[StoragePlugin, Any]:
    """The provider's plug-in and its checked options. Raises ConfigInvalid."""
    name = settings.storage.provider
    try:
        plugin: StoragePlugin = plugins.find("storage", name)
    except LookupError as error:
        raise ConfigInvalid(f"storage provider {name!r} cannot be used: {error}") from error
    return plugin, plugin_settings(plugin.settings, settings.storage.settings, f"the {name} provider's settings")


class _OpenStorage(NamedTuple):
    plugin: StoragePlugin
    accepts_durable_queues: bool
    store: Store
    state: StoredState


async def _open_storage(settings: Settings, opened: Callable[[Store], None]) -> _OpenStorage:
    """See `assemble` for `opened` and for what is raised."""
    plugin, provider_settings = storage_plugin(settings)
    durable_queues = plugin.accepts_durable_queues(provider_settings)
    if durable_queues and not plugin.durable:
        log.warning("durable queues are accepted, and the provider %r keeps nothing over a restart", plugin.name)
    store = Store(plugin.create(settings.data_dir, provider_settings))
    store.begin_threads()
    opened(store)
    if plugin.local:
        await store.begin(partial(begin_timeline, plugin, settings.data_dir, provider_settings, new_id))
    state = await store.begin(store.provider.open)
    if plugin.local:
        await store.begin(partial(refuse_restored, settings.data_dir))
    return _OpenStorage(plugin, durable_queues, store, state)


async def assemble(
    settings: Settings,
    report: Report,
    tasks: TaskGroup,
    fatal: Callable[[BaseException], None],
    opened: Callable[[Store], None],
    make_clock: Callable[[int], Clock],
    owner: Owner,
) -> Assembly:
    """Open storage, rebuild the engine from it and wire everything; nothing is accepted yet.

    Args:
        report: is shown the broker once it has been recovered.
        opened: called with the store once it has to be closed.
        make_clock: from the last instant that storage knows.
        owner: what its parts ask of the broker that they are parts of.

    Raises:
        ConfigInvalid, StorageError
    """
    accounts = Accounts(settings.auth.accounts(), token=settings.auth.shared_token)
    plugin, durable_queues, store, state = await _open_storage(settings, opened)
    for name in accounts.load(state.users.values(), state.tokens.values()):
        log.error(
            "the store's password hash of user %r cannot be checked, so no password lets the user in; set another one "
            "with `vibemq-admin user passwd`",
            name,
            extra={"event": "auth.hash_unusable", "user": name},
        )
    hidden = sorted(user.name for user in state.users.values() if user.superuser)
    if hidden and not accounts.policy.has_superusers:
        log.error(
            "nobody can administer the broker: the settings have other users with the names of all superusers of the "
            "store (%s); give one of them superuser = true, or set auth.superuser",
            ", ".join(hidden[:10]),
            extra={"event": "auth.no_superuser"},
        )
    elif state.users and not (accounts.policy.has_superusers or settings.auth.users or settings.auth.shared_token):
        log.error(
            "nobody can administer the broker: its store has users, none of them a superuser, and the settings have "
            "neither users nor a token; set auth.superuser, or auth.token as before",
            extra={"event": "auth.no_superuser"},
        )

    metrics, status = report.metrics, report.status
    clock = _clock(make_clock, state, status)
    queue_defaults = default_options(settings, durable_queues=durable_queues)
    engine: QueueEngine = Engine(
        engine_settings(settings, durable_queues=durable_queues),
        jitter=random.Random().random,  # noqa: S311  # spreads retries; nothing secret
        new_id=new_id,
    )
    loop_cycle = LoopCycle()
    background_tasks = BackgroundTasks(tasks, fatal)
    tasks.start_soon(background_tasks.run)
    writer = _audit_writer(settings, local=plugin.local)
    audit = AuditLog(
        time.monotonic,
        file=writer,
        strict=settings.audit_strict,
        reads=settings.audit_reads,
        off=settings.audit == "off",
    )

    async def watch_audit() -> None:
        status.audit_trouble = audit.trouble

    command_audit = CommandAudit(audit, AUDITED_COMMANDS)
    effect_router = EffectRouter(left=command_audit.note)

    def behind(work: Callable[[], None]) -> None:
        loop_cycle.behind(work)
        # What it shows may have brought a deadline of the engine nearer.
        loop_cycle.behind(timers.look_at_engine)

    committer = Committer(
        store=store,
        engine=engine,
        effect_router=effect_router,
        clock=clock,
        metrics=metrics,
        weak_flush_ms=settings.weak_flush_ms,
        wake=loop_cycle.wake,
        behind=behind,
        fatal=fatal,
    )
    guesses = GuessLimiter()
    half_bytes = settings.limits.message_memory_bytes // 2
    large_turns = LargeTurns(MessageMemory(half_bytes), MessageMemory(half_bytes))
    connection_table = ConnectionTable(
        settings.limits,
        metrics,
        clock,
        authentication=accounts.enabled,
        queue_defaults=queue_defaults,
        transient_only=not durable_queues,
        new_id=new_id,
        turns_away=guesses.turns_away,
        large_turns=large_turns,
        after_flush=committer.after_flush,
    )
    pacer = Pacer()
    decider = Decider(engine, committer, clock, pacer)
    classifier = Classifier(store, pacer, decide=decider.decide, failed=fatal)
    local_session = LocalSession(decider.decide, metrics.note_queue_gone, classifier.take, command_audit.note)
    effect_router.connect(INNER_SESSION, local_session.take)
    long_polls = LongPolls(engine.readers.tail)
    transactions = Transactions(engine, store, local_session)
    letters = DeadLetterReader(store)
    hashing = HashingThreads()
    revocation = Revocation(
        accounts,
        clock,
        subscriptions=engine.subscriptions,
        any_parked=engine.any_parked,
        peers=connection_table.peers,
    )
    users = Users(accounts, local_session, hashing, revocation.look_at_users, clock)
    tokens = Tokens(accounts, users, clock)
    trail = Trail(report.snapshots, metrics, refuses_all=report.refuses_all, now=clock.now)
    figures = BrokerFigures(
        report,
        trail,
        limits=lambda: connection_table.limits,
        jobs_running=lambda: len(engine.jobs.running()),
        now=clock.now,
    )
    history = _history(settings, figures, engine, clock, local=plugin.local)
    byte_rates = ConnectionByteRates(lambda: connection_table, time.monotonic)
    around = _around(report, trail, accounts, history, audit, owner)
    exports = _exports(settings, plugin, engine, clock, store, accounts, connection_table)
    await exports.begin()
    job_services = JobServices(engine, local_session, store, letters, accounts, clock, exports)
    timers = Timers(engine, committer, clock)
    job_runner = JobRunner(job_services, timers.watch, fatal)
    operations = Registry(
        accounts.policy,
        OPERATIONS,
        operation_handlers(
            settings,
            report,
            owner.reload,
            OperationParts(
                plugin=plugin,
                engine=engine,
                store=store,
                local_session=local_session,
                clock=clock,
                accounts=accounts,
                queue_defaults=queue_defaults,
                connection_table=connection_table,
                long_polls=long_polls,
                letters=letters,
                transactions=transactions,
                users=users,
                tokens=tokens,
                job_runner=job_runner,
                exports=exports,
                trail=trail,
                figures=figures,
                history=history,
                byte_rates=byte_rates,
                around=around,
                audit_writer=writer,
            ),
        ),
        ended=lambda principal: accounts.ended(principal, clock.now()),
    )
    authenticator = Authenticator(
        accounts,
        background_tasks,
        clock,
        metrics,
        hashing=hashing,
        revocation=revocation,
        audit=audit,
        rehash=users.rehash,
        guesses=guesses,
        monotonic=time.monotonic,
    )
    store.memory = large_turns.outgoing
    runner = OperationRunner(operations, background_tasks, metrics, audit, command_audit, fatal, time.monotonic)
    peer_services = PeerServices(
        clock=clock,
        metrics=metrics,
        decider=decider,
        effect_router=effect_router,
        store=store,
        authenticator=authenticator,
        operations=runner,
        fatal=fatal,
    )
    per_second = settings.limits.messages_per_client_per_second
    backpressure = Backpressure(lambda: committer.backlog_bytes, connection_table)
    read_turns = ReadTurns(store.room_is_ready, wake=loop_cycle.wake)
    put_aside = PutAside(connection_table, wake=loop_cycle.wake, monotonic=time.monotonic)
    socket_services = SocketServices(
        peers=PeerFactory(peer_services, accounts.policy, timers, messages_per_second_max=per_second),
        connection_table=connection_table,
        loop_cycle=loop_cycle,
        timers=timers,
        metrics=metrics,
        backpressure=backpressure,
        read_turns=read_turns,
        put_aside=put_aside,
        unsent=partial(Unsent, store),
        fatal=fatal,
    )
    loop_cycle.before += [put_aside.begin, committer.run_cycle, backpressure.apply, read_turns.begin]
    loop_cycle.before += [timers.look_at_engine, long_polls.look]
    housekeeping = Housekeeping(
        store=store,
        sweep=connection_table.sweep,
        clock=clock,
        status=status,
        limits=settings.limits,
        decide=decider.decide,
        chores=(
            transactions.tidy,
            tokens.tidy,
            StillJobs(engine.jobs, local_session, accounts, clock).tidy,
            OldJobs(engine.jobs, decider.decide, clock).tidy,
            exports.tidy,
            audit.summarize,
            watch_audit,
        ),
        fatal=fatal,
    )
    committer.submit(engine.restore(state, clock.now()))
    protocols = [listener.protocol for listener in settings.listeners]
    report.attach(Running(engine, connection_table), clock.now, protocols)
    tasks.start_soon(trail.run, byte_rates.take, *([history.take] if history is not None else []))
    await declare(settings.queues, local_session, defaults=queue_defaults)
    if writer is not None:
        writer.start()
        # Whether it can be written is known when the first change is asked for.
        await to_thread.run_sync(writer.catch_up)
    return Assembly(
        engine=engine,
        store=store,
        committer=committer,
        decider=decider,
        pacer=pacer,
        operations=operations,
        accounts=accounts,
        users=users,
        revocation=revocation,
        connection_table=connection_table,
        timers=timers,
        socket_services=socket_services,
        housekeeping=housekeeping,
        local_session=local_session,
        long_polls=long_polls,
        job_runner=job_runner,
        hashing=hashing,
        audit=audit,
        command_audit=command_audit,
        authenticator=authenticator,
        runner=runner,
        background_tasks=background_tasks,
        clock=clock,
        audit_writer=writer,
        trail=trail,
        history=history,
        queue_defaults=queue_defaults,
        durable_queues=durable_queues,
    )


def _exports(
    settings: Settings,
    plugin: StoragePlugin,
    engine: QueueEngine,
    clock: Clock,
    store: Store,
    accounts: Accounts,
    connection_table: ConnectionTable,
) -> ExportFiles:
    return ExportFiles(
        ExportFolder(settings.data_dir / EXPORTS, reserve=lambda: connection_table.limits.disk_reserve_bytes)
        if plugin.local
        else None,
        engine.jobs,
        clock,
        store.aside,
        bytes_max=settings.exports_bytes,
        has_users=lambda: accounts.enabled,
    )


def _around(
    report: Report, trail: Trail, accounts: Accounts, history: HistoryRecorder | None, audit: AuditLog, owner: Owner
) -> Around:
    return Around(
        report=report,
        trail=trail,
        listening=owner.listening,
        authentication=lambda: accounts.enabled,
        configured=owner.configured,
        origins=owner.origins,
        history_trouble=lambda: "" if history is None else history.trouble,
        audit_trouble=lambda: audit.trouble,
    )


def _clock(make_clock: Callable[[int], Clock], state: StoredState, status: BrokerStatus) -> Clock:
    clock = make_clock(state.instant)
    status.store_ahead_ms = clock.set_back_ms
    if clock.set_back_ms:
        log.warning("%s", status.store_ahead_trouble(), extra={"event": "clock.behind_store"})
    return clock


def _audit_writer(settings: Settings, *, local: bool) -> AuditWriter | None:
    if settings.audit != "file" or not local:
        return None
    return AuditWriter(AuditFile(settings.data_dir / FOLDER))


def _history(
    settings: Settings, figures: BrokerFigures, engine: QueueEngine, clock: Clock, *, local: bool
) -> HistoryRecorder | None:
    if not settings.history_bytes:
        return None

    def incarnation_of(queue: str) -> str | None:
        try:
            return engine.readers.queue(queue).incarnation
        except QueueNotFound:
            return None

    return HistoryRecorder(
        settings.data_dir / HISTORY if local else None,
        settings.history_bytes,
        whole=figures.whole,
        incarnation_of=incarnation_of,
        monotonic=time.monotonic,
        now=clock.now,
    )


def engine_settings(settings: Settings, *, durable_queues: bool) -> EngineSettings:
    """What of the settings is the engine's. `durable_queues`: whether queues may be other than transient."""
    return EngineSettings(
        auto_create=settings.auto_create,
        queue_defaults=default_options(settings, durable_queues=durable_queues),
        capacity_messages_default=settings.limits.capacity_messages_default,
        block_timeout_ms=settings.limits.block_timeout_ms,
        transient_only=not durable_queues,
    )


def default_options(settings: Settings, *, durable_queues: bool) -> QueueOptions:
    """Of queues and options that a request leaves out. Where nothing is kept over a restart, no other durability than
    transient is possible, and .NET clients have no word for it.

    Raises:
        ConfigInvalid: the settings name another one.
    """
    defaults = options_from_dict(settings.queue_defaults)
    if durable_queues or defaults.durability is Durability.TRANSIENT:
        return defaults
    if "durability" in settings.queue_defaults:
        raise ConfigInvalid(
            f"setting queue_defaults.durability is {defaults.durability.name.lower()}, and the storage provider"
            f" {settings.storage.provider!r} keeps nothing over a restart: leave it out, write transient, or choose"
            " another storage.provider"
        )
    return defaults.with_changes(durability=Durability.TRANSIENT)
