"""Traces and metrics of a program's publishes and deliveries with OpenTelemetry; see docs/howto/opentelemetry.md.

mq = vibemq.connect(url, hooks=[OpenTelemetryHook()])     one client
vibemq.integrations.otel.instrument()                      every client that is made from now on
"""

from vibemq.integrations.otel.hook import OpenTelemetryHook
from vibemq.integrations.otel.instrumentor import instrument, uninstrument
from vibemq.integrations.otel.scopes import attach, process

__all__ = ["OpenTelemetryHook", "attach", "instrument", "process", "uninstrument"]
