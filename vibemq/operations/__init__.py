"""What can be asked of a broker by name, whatever door it comes through: one registry (see `registry`), one file for
each noun. No sockets and no wire: sessions hand over requests, and answers are JSON-ready or a `Fetched`."""

from collections.abc import Mapping
from typing import Any

from vibemq.operations import (
    broker,
    connections,
    dead_letters,
    groups,
    queues,
    range_reads,
    tokens,
    transactions,
    user_rights,
    users,
)
from vibemq.operations.jobs import edits, requests, results
from vibemq.operations.monitoring import (
    applications,
    around,
    audit_records,
    connection_list,
    consumers,
    cursors,
    history,
    overview,
    queue_rows,
)
from vibemq.operations.reading import bodies, peeks
from vibemq.operations.registry import Call, Caller, Operation, OwnLimit, Registry
from vibemq.operations.transfer import definitions, exports, imports, moves, removal

OPERATIONS: tuple[Operation[Any], ...] = (
    *queues.OPERATIONS,
    *peeks.OPERATIONS,
    *bodies.OPERATIONS,
    *moves.OPERATIONS,
    *definitions.OPERATIONS,
    *exports.OPERATIONS,
    *imports.OPERATIONS,
    *removal.OPERATIONS,
    *groups.OPERATIONS,
    *range_reads.OPERATIONS,
    *dead_letters.OPERATIONS,
    *edits.OPERATIONS,
    *requests.OPERATIONS,
    *results.OPERATIONS,
    *transactions.OPERATIONS,
    *users.OPERATIONS,
    *user_rights.OPERATIONS,
    *tokens.OPERATIONS,
    *connection_list.OPERATIONS,
    *connections.OPERATIONS,
    *consumers.OPERATIONS,
    *cursors.OPERATIONS,
    *applications.OPERATIONS,
    *overview.OPERATIONS,
    *queue_rows.OPERATIONS,
    *history.OPERATIONS,
    *audit_records.OPERATIONS,
    *around.OPERATIONS,
    *broker.OPERATIONS,
)
"""Every operation there is, in the order of the documentation."""

AUDITED_COMMANDS: Mapping[type, str] = {o.becomes: o.name for o in OPERATIONS if o.becomes is not None}
"""The operation that each audited command of the engine is, whichever words asked for it."""

__all__ = ["AUDITED_COMMANDS", "OPERATIONS", "Call", "Caller", "Operation", "OwnLimit", "Registry"]
