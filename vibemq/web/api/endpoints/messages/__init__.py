"""Messages: publish them, look at them, fetch and settle them."""

from vibemq.web.api.endpoints.messages import deliveries, publish, queue_messages

ENDPOINTS = (
    queue_messages.PEEK_MESSAGES,
    publish.PUBLISH,
    queue_messages.SHOW,
    queue_messages.REMOVE,
    queue_messages.DOWNLOAD,
    deliveries.FETCH,
    deliveries.SETTLE,
)
"""In the order of the documentation."""
