"""Why a message could not be packed: asked once packing has failed, so that good messages pay nothing."""

from datetime import datetime
from typing import Any, Final

from vibemq.client.publishing.outgoing import Outgoing
from vibemq.model.arguments import check_headers, check_optional_text, check_text, check_time, misfit

UNPACKED: Final = (TypeError, AttributeError, ValueError)
"""What packing raises for arguments of a wrong kind. UnicodeEncodeError, of a lone surrogate, is a ValueError."""


def explain(queue: object, message: object) -> None:
    """
    Raises:
        LocalProtocolError: an argument is of a wrong kind; the sentence names it. Otherwise the fault is elsewhere.
    """
    check_text("queue", queue)
    if isinstance(message, Outgoing):
        explain_parts(message)


def explain_parts(message: Outgoing) -> None:
    """As `explain`, for what is beside the name of the queue."""
    check_optional_text("id", message.id)
    if message.headers is not None:
        check_headers(message.headers)
    for name in ("ttl", "delay"):
        value = getattr(message, name)
        if value is not None:
            check_time(name, value)
    if message.deliver_at is not None:
        _check_moment(message.deliver_at)
    check_optional_text("dedup_id", message.dedup_id)


def _check_moment(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, datetime | int | float):
        raise misfit("deliver_at", value, "a datetime with a time zone, or seconds since 1970")
