"""Every client of a program, without a change of its code: `instrument()`, and `opentelemetry-instrument`."""

from collections.abc import Collection
from typing import Any

from opentelemetry import metrics, trace

from vibemq.client.observing.hooks import add_to_every_client, remove_from_every_client
from vibemq.integrations.otel.hook import OpenTelemetryHook

_hooks: list[OpenTelemetryHook] = []


def instrument(
    *,
    link_only: bool = False,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> None:
    """Give every client that is made from now on an `OpenTelemetryHook`. Once is enough: further calls do nothing."""
    if not _hooks:
        hook = OpenTelemetryHook(link_only=link_only, tracer_provider=tracer_provider, meter_provider=meter_provider)
        _hooks.append(hook)
        add_to_every_client(hook)


def uninstrument() -> None:
    """Clients that are made from now on have no hook of `instrument`."""
    while _hooks:
        remove_from_every_client(_hooks.pop())


class VibeMQInstrumentor:
    """What `opentelemetry-instrument` loads: it has the shape of an instrumentor, and needs no package but the API."""

    def instrument(self, **options: Any) -> None:
        """`options`: as `instrument`; others are those of other instrumentors."""
        known = ("link_only", "tracer_provider", "meter_provider")
        instrument(**{name: value for name, value in options.items() if name in known})

    def uninstrument(self, **_: Any) -> None:
        uninstrument()

    def instrumentation_dependencies(self) -> Collection[str]:
        return ("vibemq",)
