"""Trace contexts in the headers of messages."""

from collections.abc import Mapping
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from vibemq.errors import RemoteProtocolError
from vibemq.model.arguments import utf16_units
from vibemq.model.rows import HEADER_VALUE_UNITS_MAX

HEADERS = ("traceparent", "tracestate", "baggage")
"""Of the propagators that are set unless a program chooses others."""


def headers_of(span: trace.Span) -> dict[str, str]:
    """What carries the span's context; what a header cannot hold is left out, and so is a span that nobody records."""
    if not span.get_span_context().is_valid:
        return {}
    carrier: dict[str, str] = {}
    propagate.inject(carrier, trace.set_span_in_context(span))
    return {name: value for name, value in carrier.items() if value and utf16_units(value) <= HEADER_VALUE_UNITS_MAX}


def context_of(message: Any) -> Context:
    """Of the publisher, with its baggage; empty when the message carries none, or arrived damaged."""
    try:
        headers: Mapping[str, str] = message.headers
    except RemoteProtocolError:
        headers = {}
    return propagate.extract(headers, Context())


def span_context_of(context: Context) -> trace.SpanContext:
    return trace.get_current_span(context).get_span_context()
