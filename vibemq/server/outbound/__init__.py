"""Calls that the broker makes to machines which others have named: what is refused, and an HTTP client that pins what
was checked."""

from vibemq.server.outbound.calls import OutboundCalls

__all__ = ["OutboundCalls"]
