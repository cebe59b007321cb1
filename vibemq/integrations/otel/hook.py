"""Spans and metrics of a client."""

import time
from collections.abc import Mapping
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from vibemq.client import ClientSettings, ObservedMessage, Outgoing, ProcessObservation, PublishObservation
from vibemq.integrations.otel import names
from vibemq.integrations.otel.propagation import context_of, headers_of, span_context_of

_SETTLE_EVENT = "settle"


class OpenTelemetryHook:
    """For `vibemq.connect(hooks=[…])`.

    A call that publishes is a span `send <queue>` (PRODUCER), whose context travels in the headers of its messages. A
    block of `message.process()` is a span `process <queue>` (CONSUMER) with a link to the publisher's; it is also its
    child when no span is current.

    Args:
        link_only: never a child of the publisher's span, only linked to it.
        tracer_provider, meter_provider: left out, those that the program has set.
    """

    def __init__(
        self,
        *,
        link_only: bool = False,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._link_only = link_only
        self._tracer = trace.get_tracer(names.SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(names.SCOPE, meter_provider=meter_provider)
        self._operations = meter.create_histogram(names.OPERATION_DURATION, "s", "Duration of calls that publish")
        self._sent = meter.create_counter(names.SENT, "{message}", "Messages handed to the broker")
        self._consumed = meter.create_counter(names.CONSUMED, "{message}", "Messages delivered to the program")
        self._processing = meter.create_histogram(names.PROCESS_DURATION, "s", "Duration of message.process() blocks")

    def publishing(self, settings: ClientSettings, queue: str, message: Outgoing | None) -> PublishObservation:
        attributes = attributes_of(settings, queue, names.SEND)
        span = self._tracer.start_span(f"{names.SEND} {queue}", kind=SpanKind.PRODUCER, attributes=attributes)
        if span.is_recording() and message is not None and message.id is not None:
            span.set_attribute(names.MESSAGE_ID, message.id)
        return _Publish(self, span, attributes)

    def received(self, settings: ClientSettings, queue: str, messages: int) -> None:
        self._consumed.add(messages, attributes_of(settings, queue, "receive"))

    def processing(self, settings: ClientSettings, message: ObservedMessage) -> ProcessObservation:
        attributes = attributes_of(settings, message.queue, names.PROCESS)
        published = context_of(message)
        publisher = span_context_of(published)
        current = contexts.get_current()
        is_child = not self._link_only and not span_context_of(current).is_valid
        parent = published if is_child else current
        span = self._tracer.start_span(
            f"{names.PROCESS} {message.queue}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[Link(publisher)] if publisher.is_valid else None,
        )
        if span.is_recording():
            span.set_attributes(_of_message(message))
        return _Process(self, span, attributes, contexts.attach(trace.set_span_in_context(span, parent)))

    def sent(
        self, began: float, messages: int, attributes: Mapping[str, Any], error: BaseException | None = None
    ) -> None:
        """`error`: of a call that did not return, a cancelled one too."""
        if error is None:
            self._sent.add(messages, attributes)
        else:
            attributes = {**attributes, names.ERROR_TYPE: type(error).__qualname__}
        self._operations.record(time.perf_counter() - began, attributes)

    def processed(self, began: float, attributes: Mapping[str, Any]) -> None:
        self._processing.record(time.perf_counter() - began, attributes)


class _Publish:
    def __init__(self, hook: OpenTelemetryHook, span: trace.Span, attributes: dict[str, Any]) -> None:
        self._hook = hook
        self._span = span
        self._attributes = attributes
        self._began = time.perf_counter()
        self.headers = headers_of(span)

    def end(self, messages: int, error: BaseException | None) -> None:
        if messages != 1:
            self._span.set_attribute(names.BATCH_COUNT, messages)
        note_error(self._span, error, self._attributes)
        self._span.end()
        self._hook.sent(self._began, messages, self._attributes, error)


class _Process:
    def __init__(self, hook: OpenTelemetryHook, span: trace.Span, attributes: dict[str, Any], token: Any) -> None:
        self._hook = hook
        self._span = span
        self._attributes = attributes
        self._token = token
        self._began = time.perf_counter()

    def end(self, verb: str, error: BaseException | None) -> None:
        self._span.add_event(_SETTLE_EVENT, {names.OPERATION_NAME: verb, names.OPERATION_TYPE: _SETTLE_EVENT})
        note_error(self._span, error, self._attributes)
        contexts.detach(self._token)
        self._span.end()
        self._hook.processed(self._began, self._attributes)


def attributes_of(settings: ClientSettings, queue: str, operation: str) -> dict[str, Any]:
    return {
        names.MESSAGING_SYSTEM: names.SYSTEM,
        names.DESTINATION: queue,
        names.OPERATION_NAME: operation,
        names.OPERATION_TYPE: operation,
        names.SERVER_ADDRESS: settings.host,
        names.SERVER_PORT: settings.port,
    }


def note_error(span: trace.Span, error: BaseException | None, attributes: dict[str, Any]) -> None:
    """A cancelled block has not failed."""
    if not isinstance(error, Exception):
        return
    attributes[names.ERROR_TYPE] = type(error).__qualname__
    span.set_attribute(names.ERROR_TYPE, type(error).__qualname__)
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def _of_message(message: ObservedMessage) -> dict[str, Any]:
    found: dict[str, Any] = {names.ATTEMPT: message.attempt, names.SEQUENCE: message.sequence}
    if message.group is not None:
        found[names.GROUP] = message.group
    if not message.damaged:
        found[names.MESSAGE_ID] = message.id
        found[names.BODY_SIZE] = len(message.payload)
    return found
