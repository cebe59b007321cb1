"""The rows of the contract: one file for each noun."""

from vibemq.web.api.contract import Endpoint
from vibemq.web.api.endpoints import dead_letters, queues, session

ENDPOINTS: tuple[Endpoint, ...] = (
    *session.ENDPOINTS,
    *queues.ENDPOINTS,
    *dead_letters.ENDPOINTS,
)
"""In the order of the documentation."""
