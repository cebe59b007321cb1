"""The rows of the contract: one file for each noun."""

from vibemq.web.api.contract import Endpoint
from vibemq.web.api.endpoints import (
    broker,
    connections,
    dead_letters,
    groups,
    jobs,
    letter_sets,
    messages,
    monitoring,
    operating,
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
    *letter_sets.ENDPOINTS,
    *dead_letters.ENDPOINTS,
    *jobs.ENDPOINTS,
    *connections.ENDPOINTS,
    *transactions.ENDPOINTS,
    *broker.ENDPOINTS,
    *operating.ENDPOINTS,
    *users.ENDPOINTS,
    *streams.ENDPOINTS,
)
"""In the order of the documentation."""
