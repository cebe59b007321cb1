"""BlazingMQ's protocol, as its C++, Python and Java SDKs speak it. Source: docs/spec/blazingmq.md."""

from vibemq.protocols.blazingmq.session import BlazingmqSession
from vibemq.protocols.blazingmq.settings import BlazingmqSettings
from vibemq.protocols.session import ProtocolPlugin

PLUGIN = ProtocolPlugin(
    name="blazingmq", settings=BlazingmqSettings, create=BlazingmqSession, port=30114, peers_await_tcp_acks=True
)

__all__ = ["PLUGIN", "BlazingmqSession", "BlazingmqSettings"]
