"""The rows of the contract: one file for each noun."""

from vibemq.web.api.contract import Endpoint
from vibemq.web.api.endpoints import (
    audit,
    broker,
    connections,
    cursors,
    dead_groups,
    dead_letters,
    groups,
    jobs,
    messages,
    monitoring,
    queues,
    session,
    streams,
    transactions,
    users,
)

ENDPOINTS: tuple[Endpoint, ...] = (
    *session.ENDPOINTS,
    *monitoring.ENDPOINTS,
    *queues.ENDPOINTS,
    *messages.ENDPOINTS,
    *groups.ENDPOINTS,
    *cursors.ENDPOINTS,
    *dead_groups.ENDPOINTS,
    *dead_letters.ENDPOINTS,
    *jobs.ENDPOINTS,
    *connections.ENDPOINTS,
    *transactions.ENDPOINTS,
    *broker.ENDPOINTS,
    *audit.ENDPOINTS,
    *users.ENDPOINTS,
    *streams.ENDPOINTS,
)
"""In the order of the documentation."""
