"""BlazingMQ's protocol, as its C++, Python and Java SDKs speak it. Source: docs/spec/blazingmq.md."""

from collections.abc import Callable

from vibemq.protocols.blazingmq.domain_use import DomainUse
from vibemq.protocols.blazingmq.session import BlazingmqSession
from vibemq.protocols.blazingmq.settings import BlazingmqSettings
from vibemq.protocols.session import ProtocolPlugin, Services, SessionContext


async def _start(
    services: Services, settings: BlazingmqSettings
) -> Callable[[SessionContext, BlazingmqSettings], BlazingmqSession]:
    use = DomainUse()
    return lambda context, settings: BlazingmqSession(context, settings, use)


PLUGIN = ProtocolPlugin(
    name="blazingmq",
    settings=BlazingmqSettings,
    create=BlazingmqSession,
    port=30114,
    peers_await_tcp_acks=True,
    start=_start,
    durabilities=BlazingmqSettings.named_durabilities,
)

__all__ = ["PLUGIN", "BlazingmqSession", "BlazingmqSettings"]
