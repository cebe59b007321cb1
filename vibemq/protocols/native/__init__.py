"""The native protocol: what VibeMQ's own clients and .NET's speak, on port 2925. Source: docs/spec/native.md."""

from vibemq.protocols.native.session import NativeSession
from vibemq.protocols.native.settings import NativeSettings
from vibemq.protocols.session import Plugin

PLUGIN = Plugin(name="native", settings=NativeSettings, create=NativeSession, port=2925)

__all__ = ["PLUGIN", "NativeSession", "NativeSettings"]
