import vibemq.sync
from tests.unit.integrations.otel.test_hook import Seen, parent_of, span_id, trace_id
from vibemq.integrations.otel import attach, process


def test_a_loop_without_process_takes_the_publishers_context(vibemq_url: str, vibemq_queue: str) -> None:
    seen = Seen()
    with vibemq.sync.connect(vibemq_url, hooks=[seen.hook()]) as mq:
        mq.publish(vibemq_queue, 1)
        [message] = mq.fetch(vibemq_queue)
        with attach(message):
            seen.tracer().start_span("work").end()
        seen.tracer().start_span("after").end()
    assert parent_of(seen.named("work")) == span_id(seen.named(f"send {vibemq_queue}"))
    assert seen.named("after").parent is None


def test_a_batch_is_linked_to_its_first_publishers(vibemq_url: str, vibemq_queue: str) -> None:
    seen = Seen()
    with vibemq.sync.connect(vibemq_url, hooks=[seen.hook()]) as mq:
        mq.publish_many(vibemq_queue, range(300))
        with mq.subscribe(vibemq_queue, group="readers", start="beginning") as messages:
            batch = messages.next_batch(timeout=9)
            assert batch is not None
            with process(batch, tracer_provider=seen.tracers) as span:
                span.set_attribute("seen", True)
                seen.tracer().start_span("work").end()
            batch.ack_all()
    span = seen.named(f"process {vibemq_queue}")
    assert len(span.links) == min(128, len(batch))
    assert {link.context.trace_id for link in span.links} == {trace_id(seen.named(f"send {vibemq_queue}"))}
    assert seen.named("work").parent == span.get_span_context()
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == len(batch)
    assert span.attributes["messaging.consumer.group.name"] == "readers"
