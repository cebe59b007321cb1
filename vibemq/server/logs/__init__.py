"""Logging of `vibemq serve`: to stderr, as text or as JSON lines. Embedded brokers leave logging to their program."""

from vibemq.server.logs.process_log import ProcessLog

__all__ = ["ProcessLog"]
