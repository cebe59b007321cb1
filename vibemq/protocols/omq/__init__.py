"""The OCaml message queue's protocol: S-expressions one way, binary frames the other. Source: docs/spec/omq.md."""

from vibemq.protocols.omq.session import OmqSession
from vibemq.protocols.omq.settings import OmqSettings
from vibemq.protocols.session import ProtocolPlugin

PLUGIN = ProtocolPlugin(name="omq", settings=OmqSettings, create=OmqSession, port=7460)

__all__ = ["PLUGIN", "OmqSession", "OmqSettings"]
