"""Spans and metrics of real clients, as the SDK's exporters in memory see them."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import vibemq
import vibemq.sync
from tests.crash.ledger import BrokerProcess
from vibemq.client import ClientSettings
from vibemq.errors import NoReply, NotConnected, RequesterGone, VibeMQError
from vibemq.integrations.otel import OpenTelemetryHook


class Seen:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider(metric_readers=[self.reader])

    def hook(self, *, link_only: bool = False) -> OpenTelemetryHook:
        return OpenTelemetryHook(link_only=link_only, tracer_provider=self.tracers, meter_provider=self.meters)

    def tracer(self) -> Any:
        return self.tracers.get_tracer("test")

    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        [span] = [span for span in self.spans() if span.name == name]
        return span

    def totals(self) -> dict[str, float]:
        """Metric -> sum of a counter, count of a histogram."""
        return {
            metric.name: sum(
                getattr(point, "value", None) or getattr(point, "count", 0) for point in metric.data.data_points
            )
            for metric in self.metrics()
        }

    def error_types(self, name: str) -> list[Any]:
        """Of the metric's points; "" of one without an error."""
        points = [point for metric in self.metrics() if metric.name == name for point in metric.data.data_points]
        return [(point.attributes or {}).get("error.type", "") for point in points]

    def metrics(self) -> list[Metric]:
        data = self.reader.get_metrics_data()
        resources = data.resource_metrics if data else ()
        return [metric for resource in resources for scope in resource.scope_metrics for metric in scope.metrics]


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def mq(vibemq_url: str, seen: Seen) -> Iterator[vibemq.sync.Client]:
    with vibemq.sync.connect(vibemq_url, hooks=[seen.hook()]) as client:
        yield client


def traceparent(span: Any) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def parent_of(span: ReadableSpan) -> int | None:
    """Its span id; contexts that have travelled say that they are remote."""
    return span.parent.span_id if span.parent is not None else None


def span_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def trace_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id


def test_a_publish_is_a_span_of_the_caller_and_its_context_travels(
    mq: vibemq.sync.Client, seen: Seen, vibemq_queue: str
) -> None:
    with seen.tracer().start_as_current_span("request") as request:
        mq.publish(vibemq_queue, b"body", id="m1", headers={"kind": "order"})
    span = seen.named(f"send {vibemq_queue}")
    assert span.kind is SpanKind.PRODUCER
    assert span.parent is not None
    assert span.parent.span_id == request.get_span_context().span_id
    assert span.attributes is not None
    assert dict(span.attributes) == {
        "messaging.system": "vibemq",
        "messaging.destination.name": vibemq_queue,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.message.id": "m1",
        "server.address": "127.0.0.1",
        "server.port": mq.settings.port,
    }
    [message] = mq.fetch(vibemq_queue)
    assert message.headers["traceparent"] == traceparent(span)
    assert message.headers["kind"] == "order"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_the_asynchronous_client_is_traced_through_every_call(
    vibemq_url: str, seen: Seen, vibemq_queue: str, anyio_backend: str
) -> None:
    async with vibemq.connect(vibemq_url, hooks=[seen.hook()]) as mq:
        with seen.tracer().start_as_current_span("request") as request:
            await mq.publish(vibemq_queue, 1)
            await mq.publish(vibemq_queue, 2, wait=False)
            await mq.publish_many(vibemq_queue, [3, vibemq.Outgoing(4, headers={"a": "b"})])
            async with mq.publisher(vibemq_queue) as out:
                await out.send(5)
        traces = []
        async with mq.subscribe(vibemq_queue) as messages:
            async for message in messages:
                async with message.process():
                    traces.append(message.headers["traceparent"].split("-")[1])
                if len(traces) == 5:
                    break
    assert traces == [f"{request.get_span_context().trace_id:032x}"] * 5
    counts = [span.attributes.get("messaging.batch.message_count") for span in seen.spans() if span.attributes]
    assert counts.count(2) == 1
    assert len([span for span in seen.spans() if span.kind is SpanKind.CONSUMER]) == 5


def test_the_blocking_clients_other_calls_take_the_callers_context(
    mq: vibemq.sync.Client, seen: Seen, vibemq_queue: str
) -> None:
    with seen.tracer().start_as_current_span("request") as request:
        mq.publish(vibemq_queue, 1, wait=False)
        mq.publish_many(vibemq_queue, [2, vibemq.Outgoing(3)], headers={"a": "b"})
        with mq.publisher(vibemq_queue) as out:
            out.send(4, headers={"c": "d"})
    mq.flush()
    messages = mq.fetch(vibemq_queue, max=4, timeout=9)
    assert {m.headers["traceparent"].split("-")[1] for m in messages} == {f"{request.get_span_context().trace_id:032x}"}
    assert [m.headers.get("a", m.headers.get("c")) for m in messages] == [None, "b", None, "d"]


def test_one_trace_through_failure_dead_letter_and_replay(
    mq: vibemq.sync.Client, seen: Seen, vibemq_queue: str
) -> None:
    mq.change_queue(vibemq_queue, max_attempts=2)
    mq.publish(vibemq_queue, "order")
    for _ in range(2):
        [message] = mq.fetch(vibemq_queue, timeout=9)
        with pytest.raises(ValueError, match="bad"), message.process(retry_delay=0):
            raise ValueError("bad order")
        mq.ping()
    assert mq.admin("dlq.replay", queue=vibemq_queue)["count"] == 1
    [message] = mq.fetch(vibemq_queue, timeout=9)
    with message.process():
        pass
    spans = seen.spans()
    assert [span.name.split()[0] for span in spans] == ["send", "process", "process", "process"]
    assert len({trace_id(span) for span in spans}) == 1
    producer = spans[0].get_span_context()
    assert producer is not None
    for span in spans[1:]:
        assert [link.context.span_id for link in span.links] == [producer.span_id]
        assert parent_of(span) == producer.span_id
        assert span.kind is SpanKind.CONSUMER
    failed, _, done = spans[1:]
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "ValueError"
    assert failed.attributes["vibemq.attempt"] == 1
    assert [event.name for event in failed.events] == ["settle", "exception"]
    assert done.status.status_code is StatusCode.UNSET
    [settled] = done.events
    assert settled.attributes is not None
    assert settled.attributes["messaging.operation.name"] == "ack"


@pytest.mark.slow
def test_the_trace_outlives_a_crash_of_the_broker(seen: Seen, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    try:
        with vibemq.sync.connect(broker.url, hooks=[seen.hook()]) as mq:
            mq.create_queue("orders", durability="strong", lost_connection="release")
            mq.publish("orders", 1)
            assert mq.fetch("orders", timeout=60)
            broker.kill()
            broker.start()
            [message] = mq.fetch("orders", timeout=60)
            with message.process():
                pass
    finally:
        broker.stop()
    send, process = seen.named("send orders"), seen.named("process orders")
    assert (trace_id(process), parent_of(process)) == (trace_id(send), span_id(send))
    assert (process.attributes or {})["vibemq.attempt"] == 2


@pytest.mark.parametrize("link_only", [False, True])
def test_a_span_that_is_current_is_the_parent(vibemq_url: str, seen: Seen, vibemq_queue: str, link_only: bool) -> None:
    with vibemq.sync.connect(vibemq_url, hooks=[seen.hook(link_only=link_only)]) as mq:
        mq.publish(vibemq_queue, 1)
        mq.publish(vibemq_queue, 2)
        first, second = mq.fetch(vibemq_queue, max=2, timeout=9)
        with seen.tracer().start_as_current_span("job") as job, first.process():
            pass
        with second.process():
            pass
    inside, alone = [span for span in seen.spans() if span.kind is SpanKind.CONSUMER]
    assert inside.parent == job.get_span_context()
    assert (alone.parent is None) == link_only
    assert len(inside.links) == len(alone.links) == 1


def test_work_in_the_block_belongs_to_its_span(mq: vibemq.sync.Client, seen: Seen, vibemq_queue: str) -> None:
    mq.publish(vibemq_queue, 1)
    [message] = mq.fetch(vibemq_queue)
    with message.process():
        seen.tracer().start_span("work").end()
    process = seen.named(f"process {vibemq_queue}")
    assert seen.named("work").parent == process.get_span_context()
    seen.tracer().start_span("after").end()
    assert seen.named("after").parent is None


def test_a_publish_that_fails_says_why(mq: vibemq.sync.Client, seen: Seen, vibemq_queue: str) -> None:
    mq.change_queue(vibemq_queue, max_messages=1, overflow="drop_newest")
    mq.publish(vibemq_queue, 1)
    with pytest.raises(VibeMQError):
        mq.publish(vibemq_queue, 2)
    with pytest.raises(VibeMQError):
        mq.publish_many(vibemq_queue, [3, 4])
    kinds = [(span.attributes or {}).get("error.type") for span in seen.spans()]
    assert kinds == [None, "QueueFull", "QueueFull"]
    counts = [(span.attributes or {}).get("messaging.batch.message_count") for span in seen.spans()]
    assert counts == [None, None, 2]
    assert seen.totals()["messaging.client.sent.messages"] == 1


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt])
def test_a_call_that_was_cancelled_has_sent_nothing_and_not_failed(seen: Seen, error: type[BaseException]) -> None:
    hook = seen.hook()
    hook.publishing(ClientSettings(), "q", None).end(3, error())
    hook.publishing(ClientSettings(), "q", None).end(2, None)
    assert seen.totals() == {"messaging.client.sent.messages": 2, "messaging.client.operation.duration": 2}
    assert sorted(seen.error_types("messaging.client.operation.duration")) == ["", error.__qualname__]
    assert [span.status.status_code for span in seen.spans()] == [StatusCode.UNSET, StatusCode.UNSET]


def test_a_message_is_never_refused_because_it_is_traced(mq: vibemq.sync.Client, seen: Seen, vibemq_queue: str) -> None:
    full = {f"h{number}": "x" for number in range(50)}
    own = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}
    mq.publish(vibemq_queue, 1, headers=full)
    mq.publish(vibemq_queue, 2, headers=own)
    mq.publish_many(vibemq_queue, [vibemq.Outgoing(3, headers=full)])
    assert [m.headers for m in mq.fetch(vibemq_queue, max=3, timeout=9)] == [full, own, full]


@pytest.mark.parametrize("headers", [44, 45, 46, 47, 48])
def test_nor_because_of_headers_that_the_client_adds(headers: int, mq: vibemq.sync.Client, vibemq_queue: str) -> None:
    full = {f"h{number}": "x" for number in range(headers)}
    mq.publish(vibemq_queue, b"\xff", priority=3, headers=full)
    [message] = mq.fetch(vibemq_queue, timeout=9)
    assert full.items() <= message.headers.items()
    with pytest.raises(NoReply):
        mq.request(vibemq_queue, 1, headers=full, timeout=0.01)


def test_a_request_lasts_until_its_reply_and_the_responder_belongs_to_its_trace(
    mq: vibemq.sync.Client, seen: Seen, vibemq_queue: str
) -> None:
    def respond() -> None:
        [message] = mq.fetch(vibemq_queue, timeout=9)
        with message.process():
            message.reply("here")

    responder = Thread(target=respond)
    responder.start()
    assert mq.request(vibemq_queue, "where?", timeout=9).body == "here"
    responder.join()
    asked, answered = seen.named(f"send {vibemq_queue}"), seen.named(f"process {vibemq_queue}")
    assert parent_of(answered) == span_id(asked)
    with pytest.raises(VibeMQError):
        mq.request(vibemq_queue, "where?", timeout=0.05)
    assert [(span.attributes or {}).get("error.type") for span in seen.spans()][-1] == "NoReply"


def test_a_reply_that_comes_too_late_is_no_failure_of_the_work(
    mq: vibemq.sync.Client, seen: Seen, vibemq_queue: str
) -> None:
    mq.publish(vibemq_queue, 1)
    [message] = mq.fetch(vibemq_queue, timeout=9)
    with message.process():
        raise RequesterGone("nobody waits")
    assert seen.named(f"process {vibemq_queue}").status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("verb", ["ack", "retry", "reject", "release"])
def test_the_event_has_the_verb_that_the_block_calls_itself(
    mq: vibemq.sync.Client, seen: Seen, vibemq_queue: str, verb: str
) -> None:
    mq.publish_many(vibemq_queue, range(3))
    alone, fails, of_a_batch = mq.fetch(vibemq_queue, max=3, timeout=9)
    with alone.process():
        getattr(alone, verb)()
    with suppress(ValueError), fails.process():
        getattr(fails, verb)()
        raise ValueError("behind it")
    getattr(of_a_batch, verb)()
    with of_a_batch.process():
        pass
    processed = [span for span in seen.spans() if span.kind is SpanKind.CONSUMER]
    verbs = [event.attributes["messaging.operation.name"] for span in processed for event in span.events[:1]]  # type: ignore[index]
    assert verbs == [verb] * 3


def test_a_block_whose_client_is_closed_ends_its_span(vibemq_url: str, seen: Seen, vibemq_queue: str) -> None:
    with vibemq.sync.connect(vibemq_url, hooks=[seen.hook()]) as mq:
        mq.publish(vibemq_queue, 1)
        [message] = mq.fetch(vibemq_queue, timeout=9)
        with pytest.raises(NotConnected), message.process():
            mq.close()
    assert (seen.named(f"process {vibemq_queue}").attributes or {})["error.type"] == "NotConnected"
    seen.tracer().start_span("after").end()
    assert seen.named("after").parent is None


def test_metrics(mq: vibemq.sync.Client, seen: Seen, vibemq_queue: str) -> None:
    mq.publish(vibemq_queue, 1)
    mq.publish_many(vibemq_queue, [2, 3])
    for message in mq.fetch(vibemq_queue, max=3, timeout=9):
        with message.process():
            pass
    assert seen.totals() == {
        "messaging.client.operation.duration": 2,
        "messaging.client.sent.messages": 3,
        "messaging.client.consumed.messages": 3,
        "messaging.process.duration": 3,
    }


def test_without_a_provider_nothing_is_added(vibemq_url: str, vibemq_queue: str) -> None:
    with vibemq.sync.connect(vibemq_url, hooks=[OpenTelemetryHook()]) as mq:
        mq.publish(vibemq_queue, 1)
        [message] = mq.fetch(vibemq_queue)
        with message.process():
            assert message.headers == {}
