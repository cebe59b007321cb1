import sys
from importlib.metadata import entry_points
from types import FrameType

import pytest

import vibemq
from tests.unit.integrations.otel.test_hook import Seen
from vibemq.integrations.otel import instrument, uninstrument


def test_every_client_that_is_made_afterwards_is_traced(vibemq_url: str, vibemq_queue: str) -> None:
    seen = Seen()
    before = vibemq.connect(vibemq_url)
    instrument(tracer_provider=seen.tracers, meter_provider=seen.meters)
    try:
        instrument()
        with vibemq.sync.connect(vibemq_url) as mq:
            mq.publish(vibemq_queue, 1)
    finally:
        uninstrument()
    assert before.hooks is None
    assert vibemq.connect(vibemq_url).hooks is None
    assert [span.name for span in seen.spans()] == [f"send {vibemq_queue}"]


def test_opentelemetrys_agent_finds_it(vibemq_url: str) -> None:
    [found] = [point for point in entry_points(group="opentelemetry_instrumentor") if point.name == "vibemq"]
    instrumentor = found.load()()
    assert "vibemq" in instrumentor.instrumentation_dependencies()
    instrumentor.instrument(skip_dep_check=True)
    try:
        assert vibemq.connect(vibemq_url).hooks is not None
    finally:
        instrumentor.uninstrument()
    assert vibemq.connect(vibemq_url).hooks is None


@pytest.mark.anyio
async def test_a_client_without_hooks_has_none(vibemq_url: str) -> None:
    async with vibemq.connect(vibemq_url) as mq:
        assert mq.hooks is None
        assert mq._link.hooks is None


@pytest.mark.anyio
async def test_tracing_that_is_off_runs_and_allocates_nothing(vibemq_url: str, vibemq_queue: str) -> None:
    """Whatever the number of messages: no function of the hooks is called, so none makes anything."""
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and ("/vibemq/client/observing/" in file or "/vibemq/integrations/otel/" in file):
            called.append(frame.f_code.co_qualname)

    async with vibemq.connect(vibemq_url) as mq, mq.subscribe(vibemq_queue) as messages:
        await mq.publish(vibemq_queue, 0)
        sys.setprofile(note)
        try:
            await mq.publish(vibemq_queue, 1)
            await mq.publish(vibemq_queue, 2, wait=False)
            await mq.publish_many(vibemq_queue, range(3, 10))
            for _ in range(10):
                async with (await anext(messages)).process():
                    pass
        finally:
            sys.setprofile(None)
    assert called == []
