"""The handlers of all operations."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from vibemq.auth.users import Accounts
from vibemq.config import Settings
from vibemq.model.options import QueueOptions
from vibemq.operations import Caller
from vibemq.operations.broker import BrokerOperations
from vibemq.operations.connections import Connections
from vibemq.operations.dead_letters import DeadLetterGroups, DeadLetterReader, DeadLetters, LetterAccess, LetterPreview
from vibemq.operations.groups import Groups
from vibemq.operations.jobs.edits import LetterEdits
from vibemq.operations.jobs.requests import Jobs
from vibemq.operations.jobs.results import JobResults
from vibemq.operations.long_polls import LongPolls
from vibemq.operations.monitoring.applications import Applications
from vibemq.operations.monitoring.around import AroundBroker
from vibemq.operations.monitoring.audit_records import AuditRecords
from vibemq.operations.monitoring.connection_list import ConnectionList
from vibemq.operations.monitoring.consumers import Consumers
from vibemq.operations.monitoring.cursors import CursorList
from vibemq.operations.monitoring.death_errors import DeathErrors
from vibemq.operations.monitoring.history import History
from vibemq.operations.monitoring.overview import Overview
from vibemq.operations.monitoring.queue_rows import QueueRows
from vibemq.operations.queues import Queues
from vibemq.operations.range_reads import RangeReads
from vibemq.operations.reading.bodies import MessageBodies
from vibemq.operations.reading.peeks import Peeks
from vibemq.operations.tokens import Tokens
from vibemq.operations.transactions import Transactions
from vibemq.operations.transfer.definitions import Definitions
from vibemq.operations.transfer.exports import QueueExports
from vibemq.operations.transfer.imports import QueueImports
from vibemq.operations.transfer.kept_messages import KeptMessages
from vibemq.operations.transfer.moves import QueueMoves
from vibemq.operations.transfer.removal import MessageRemoval
from vibemq.operations.user_rights import UserRights
from vibemq.operations.users import Users
from vibemq.server.access.audit_file import FOLDER
from vibemq.server.access.audit_reader import AuditReader
from vibemq.server.access.audit_writer import AuditWriter
from vibemq.server.around.backup_log import BackupLog
from vibemq.server.around.look import Around
from vibemq.server.clock import Clock
from vibemq.server.commit.storage_threads import Store
from vibemq.server.contracts import QueueEngine
from vibemq.server.jobs.export_files import ExportFiles
from vibemq.server.jobs.runner import JobRunner
from vibemq.server.local_session import LocalSession
from vibemq.server.monitoring.broker_figures import BrokerFigures
from vibemq.server.monitoring.byte_rates import ConnectionByteRates
from vibemq.server.monitoring.health import Report
from vibemq.server.monitoring.history.recorder import HistoryRecorder
from vibemq.server.monitoring.trail import Trail
from vibemq.server.net.connections import ConnectionTable
from vibemq.storage.interface import StoragePlugin

Reload = Callable[[Caller], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationParts:
    """What the operations work with."""

    plugin: StoragePlugin
    engine: QueueEngine
    store: Store
    local_session: LocalSession
    clock: Clock
    accounts: Accounts
    queue_defaults: QueueOptions
    connection_table: ConnectionTable
    long_polls: LongPolls
    letters: DeadLetterReader
    transactions: Transactions
    users: Users
    tokens: Tokens
    job_runner: JobRunner
    exports: ExportFiles
    trail: Trail
    figures: BrokerFigures
    history: HistoryRecorder | None
    byte_rates: ConnectionByteRates
    around: Around
    audit_writer: AuditWriter | None


def operation_handlers(settings: Settings, report: Report, reload: Reload, parts: OperationParts) -> list[object]:
    """Those of `vibemq.operations`, each with what it works with.

    Args:
        reload: reads the settings again, when an operator asks for it.
    """
    policy = parts.accounts.policy
    letter_access = LetterAccess(policy)
    kept_messages = KeptMessages(parts.engine, parts.store)

    def row_bytes_max() -> int:
        return parts.connection_table.limits.row_bytes_max

    place = {"data_dir": str(settings.data_dir.absolute()), "provider": parts.store.provider.name}
    return [
        Queues(parts.engine, parts.local_session, policy, parts.queue_defaults),
        Peeks(parts.engine, parts.store, parts.connection_table, parts.clock),
        MessageBodies(parts.engine, kept_messages, parts.connection_table),
        QueueMoves(parts.engine, parts.store, parts.local_session),
        QueueExports(parts.engine, kept_messages),
        QueueImports(
            parts.local_session,
            parts.store,
            parts.clock,
            row_bytes_max=row_bytes_max,
        ),
        MessageRemoval(parts.engine, kept_messages, parts.local_session),
        Groups(parts.engine, parts.store, parts.local_session, parts.long_polls),
        RangeReads(parts.engine, parts.store, parts.letters, parts.local_session),
        DeadLetters(parts.engine, parts.store, parts.letters, parts.local_session, parts.clock, letter_access),
        DeadLetterGroups(parts.engine, parts.store, parts.letters, letter_access),
        LetterPreview(parts.engine, parts.letters, parts.clock, letter_access, policy),
        LetterEdits(parts.engine, parts.store, parts.letters, parts.local_session, row_bytes_max=row_bytes_max),
        Jobs(parts.engine, parts.local_session, parts.letters, policy, parts.clock, parts.job_runner, parts.exports),
        JobResults(parts.engine, policy, parts.exports),
        parts.transactions,
        parts.users,
        UserRights(parts.accounts),
        parts.tokens,
        Connections(parts.connection_table, parts.engine),
        ConnectionList(parts.connection_table, parts.engine, parts.byte_rates),
        Consumers(parts.engine, parts.connection_table, parts.clock),
        CursorList(parts.trail, parts.engine, policy),
        Applications(parts.engine, policy, parts.clock),
        AroundBroker(parts.around),
        Overview(parts.trail, parts.figures, DeathErrors(parts.letters), policy),
        QueueRows(parts.trail, policy),
        History(parts.history, parts.trail, parts.engine, policy),
        AuditRecords(_audit_reader(settings, parts.audit_writer)),
        BrokerOperations(
            parts.store,
            report,
            place,
            BackupLog(settings.data_dir if parts.plugin.local else None),
            parts.clock,
            reload,
        ),
        Definitions(parts.engine, parts.local_session, parts.queue_defaults),
    ]


def _audit_reader(settings: Settings, writer: AuditWriter | None) -> AuditReader | None:
    return AuditReader(settings.data_dir / FOLDER, writer.catch_up) if writer is not None else None
