"""Puts a broker together from its parts, in the order in which they need each other."""

import logging
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from anyio.abc import TaskGroup

from vibemq import plugins
from vibemq.auth.users import Accounts
from vibemq.config import Settings
from vibemq.engine import Engine, EngineSettings
from vibemq.errors import ConfigInvalid
from vibemq.model.options import options_from_dict
from vibemq.operations import AUDITED_COMMANDS, OPERATIONS, Caller, Registry
from vibemq.operations.broker import BrokerOperations
from vibemq.operations.connections import Connections
from vibemq.operations.dead_letters import DeadLetterReader, DeadLetters
from vibemq.operations.groups import Groups
from vibemq.operations.long_polls import LongPolls
from vibemq.operations.queues import Queues
from vibemq.operations.range_reads import RangeReads
from vibemq.operations.tokens import Tokens
from vibemq.operations.transactions import Transactions
from vibemq.operations.transfer.exports import QueueExports
from vibemq.operations.transfer.imports import QueueImports
from vibemq.operations.transfer.kept_messages import KeptMessages
from vibemq.operations.transfer.moves import QueueMoves
from vibemq.operations.transfer.removal import MessageRemoval
from vibemq.operations.user_rights import UserRights
from vibemq.operations.users import Users
from vibemq.server.access.audit import AuditLog
from vibemq.server.access.authenticator import Authenticator
from vibemq.server.access.command_audit import CommandAudit
from vibemq.server.access.guessing import GuessLimiter
from vibemq.server.access.hashing import HashingThreads
from vibemq.server.access.revocation import Revocation
from vibemq.server.background_tasks import BackgroundTasks
from vibemq.server.checks import plugin_settings
from vibemq.server.clock import Clock
from vibemq.server.commit.backpressure import Backpressure
from vibemq.server.commit.committer import Committer
from vibemq.server.commit.loop_cycle import LoopCycle
from vibemq.server.commit.message_memory import MessageMemory
from vibemq.server.commit.release_order import EffectRouter
from vibemq.server.commit.storage_threads import Store
from vibemq.server.contracts import QueueEngine
from vibemq.server.declared import declare
from vibemq.server.local_session import INNER_SESSION, LocalSession
from vibemq.server.monitoring.health import Report
from vibemq.server.monitoring.housekeeping import Housekeeping
from vibemq.server.monitoring.reporting import Running
from vibemq.server.net.classifier import Classifier
from vibemq.server.net.connections import ConnectionTable
from vibemq.server.net.decider import Decider
from vibemq.server.net.large_turns import LargeTurns
from vibemq.server.net.operation_runner import OperationRunner
from vibemq.server.net.pacer import Pacer
from vibemq.server.net.peer_driver import PeerServices
from vibemq.server.net.peer_factory import PeerFactory
from vibemq.server.net.timers import Timers
from vibemq.server.net.transport import SocketServices
from vibemq.server.net.unsent import Unsent
from vibemq.storage.interface import StoragePlugin
from vibemq.storage.timeline import begin_timeline

log = logging.getLogger("vibemq.assembly")


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
    hashing: HashingThreads
    audit: AuditLog
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


async def assemble(
    settings: Settings,
    report: Report,
    tasks: TaskGroup,
    fatal: Callable[[BaseException], None],
    opened: Callable[[Store], None],
    make_clock: Callable[[int], Clock],
    reload: Callable[[Caller], Awaitable[dict[str, Any]]],
) -> Assembly:
    """Open storage, rebuild the engine from it and wire everything; nothing is accepted yet.

    Args:
        report: is shown the broker once it has been recovered.
        opened: called with the store once it has to be closed.
        make_clock: from the last instant that storage knows.
        reload: reads the settings again, when an operator asks for it.

    Raises:
        ConfigInvalid, StorageError
    """
    plugin, provider_settings = storage_plugin(settings)
    durable_queues = plugin.accepts_durable_queues(provider_settings)
    if durable_queues and not plugin.durable:
        log.warning("durable queues are accepted, and the provider %r keeps nothing over a restart", plugin.name)
    if plugin.local:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    accounts = Accounts(settings.auth.accounts(), token=settings.auth.shared_token)
    store = Store(plugin.create(settings.data_dir, provider_settings))
    opened(store)
    if plugin.local:
        await store.begin(partial(begin_timeline, plugin, settings.data_dir, provider_settings, new_id))
    state = await store.begin(store.provider.open)
    accounts.load(state.users.values(), state.tokens.values())

    metrics, status = report.metrics, report.status
    clock = make_clock(state.instant)
    status.store_ahead_ms = clock.set_back_ms
    if clock.set_back_ms:
        log.warning("%s", status.store_ahead_trouble(), extra={"event": "clock.behind_store"})
    queue_defaults = options_from_dict(settings.queue_defaults)
    engine: QueueEngine = Engine(
        engine_settings(settings, durable_queues=durable_queues),
        jitter=random.Random().random,  # noqa: S311  # spreads retries; nothing secret
        new_id=new_id,
    )
    loop_cycle = LoopCycle()
    background_tasks = BackgroundTasks(tasks, fatal)
    tasks.start_soon(background_tasks.run)
    audit = AuditLog(time.monotonic)
    command_audit = CommandAudit(audit, AUDITED_COMMANDS)
    effect_router = EffectRouter(left=command_audit.note)
    committer = Committer(
        store=store,
        engine=engine,
        effect_router=effect_router,
        clock=clock,
        metrics=metrics,
        weak_flush_ms=settings.weak_flush_ms,
        wake=loop_cycle.wake,
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
        new_id=new_id,
        turns_away=guesses.turns_away,
        large_turns=large_turns,
        after_flush=committer.after_flush,
    )
    pacer = Pacer()
    decider = Decider(engine, committer, clock, pacer)
    classifier = Classifier(store, pacer, decide=decider.decide, failed=fatal)
    local_session = LocalSession(decider.decide, metrics.note_queue_gone, classifier.take)
    effect_router.connect(INNER_SESSION, local_session.take)
    long_polls = LongPolls(engine.readers.tail)
    transactions = Transactions(engine, store, local_session)
    letters = DeadLetterReader(store)
    kept_messages = KeptMessages(engine, store)
    hashing = HashingThreads()
    revocation = Revocation(accounts, clock, subscriptions=engine.subscriptions, peers=connection_table.peers)
    users = Users(accounts, local_session, hashing, revocation.look_at_users, clock)
    tokens = Tokens(accounts, users, clock)
    place = {"data_dir": str(settings.data_dir.absolute()), "provider": store.provider.name}
    operations = Registry(
        accounts.policy,
        OPERATIONS,
        [
            Queues(engine, store, local_session, accounts.policy, queue_defaults),
            QueueMoves(engine, store, local_session),
            QueueExports(engine, kept_messages),
            QueueImports(
                local_session,
                clock,
                row_bytes_max=settings.limits.row_bytes_max,
            ),
            MessageRemoval(engine, kept_messages, local_session),
            Groups(engine, store, local_session, long_polls),
            RangeReads(engine, store, letters, local_session),
            DeadLetters(engine, store, letters, local_session, clock),
            transactions,
            users,
            UserRights(accounts),
            tokens,
            Connections(connection_table),
            BrokerOperations(store, report, place, reload),
        ],
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
    peer_services = PeerServices(
        clock=clock,
        metrics=metrics,
        decider=decider,
        effect_router=effect_router,
        store=store,
        authenticator=authenticator,
        operations=OperationRunner(operations, background_tasks, metrics, audit, command_audit, fatal),
        fatal=fatal,
    )
    timers = Timers(engine, committer, clock)
    per_second = settings.limits.messages_per_client_per_second
    backpressure = Backpressure(lambda: committer.backlog_bytes, connection_table)
    socket_services = SocketServices(
        peers=PeerFactory(peer_services, accounts.policy, timers, messages_per_second_max=per_second),
        connection_table=connection_table,
        loop_cycle=loop_cycle,
        timers=timers,
        metrics=metrics,
        backpressure=backpressure,
        unsent=partial(Unsent, store),
        fatal=fatal,
    )
    loop_cycle.before += [committer.run_cycle, backpressure.apply, timers.look_at_engine, long_polls.look]
    housekeeping = Housekeeping(
        store=store,
        sweep=connection_table.sweep,
        clock=clock,
        status=status,
        limits=settings.limits,
        decide=decider.decide,
        chores=(transactions.tidy, tokens.tidy, audit.summarize),
        fatal=fatal,
    )
    committer.submit(engine.restore(state, clock.now()))
    report.attach(Running(engine, connection_table))
    await declare(settings.queues, local_session, defaults=queue_defaults, durable=durable_queues)
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
        hashing=hashing,
        audit=audit,
        durable_queues=durable_queues,
    )


def engine_settings(settings: Settings, *, durable_queues: bool) -> EngineSettings:
    """What of the settings is the engine's. `durable_queues`: whether queues may be other than transient."""
    return EngineSettings(
        auto_create=settings.auto_create,
        queue_defaults=options_from_dict(settings.queue_defaults),
        capacity_messages_default=settings.limits.capacity_messages_default,
        block_timeout_ms=settings.limits.block_timeout_ms,
        transient_only=not durable_queues,
    )
