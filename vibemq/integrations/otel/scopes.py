"""Contexts for loops without `message.process()`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind

from vibemq.client import Message, MessageBatch
from vibemq.integrations.otel import names
from vibemq.integrations.otel.hook import note_error
from vibemq.integrations.otel.propagation import context_of, span_context_of

LINKS_MAX = 128


@contextmanager
def attach(message: Message[Any]) -> Iterator[None]:
    """Make the publisher's context current for the block, for loops that do not call `message.process()`: spans that
    begin in it belong to the publisher's trace."""
    token = contexts.attach(context_of(message))
    try:
        yield
    finally:
        contexts.detach(token)


@contextmanager
def process(batch: MessageBatch[Any], *, tracer_provider: trace.TracerProvider | None = None) -> Iterator[Span]:
    """A span `process <queue>` for a batch, linked to the publishers of its first 128 messages. It settles nothing."""
    tracer = trace.get_tracer(names.SCOPE, tracer_provider=tracer_provider)
    attributes: dict[str, Any] = {
        names.MESSAGING_SYSTEM: names.SYSTEM,
        names.DESTINATION: batch.queue,
        names.OPERATION_NAME: names.PROCESS,
        names.OPERATION_TYPE: names.PROCESS,
        names.BATCH_COUNT: len(batch),
    }
    if batch and (group := batch[0].group) is not None:
        attributes[names.GROUP] = group
    publishers = (span_context_of(context_of(message)) for message in batch[:LINKS_MAX])
    links = [Link(publisher) for publisher in publishers if publisher.is_valid]
    span = tracer.start_span(
        f"{names.PROCESS} {batch.queue}", kind=SpanKind.CONSUMER, attributes=attributes, links=links
    )
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except BaseException as error:
            note_error(span, error, attributes)
            raise
