"""The native protocol: what VibeMQ's own clients and .NET's speak, on port 2925. Source: docs/spec/native.md.

The session is a broker's half, loaded when it is first asked for: a client borrows the codec and needs none of it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vibemq.protocols.native.session import NativeSession
    from vibemq.protocols.native.settings import NativeSettings
    from vibemq.protocols.session import ProtocolPlugin

    PLUGIN: ProtocolPlugin

__all__ = ["PLUGIN", "NativeSession", "NativeSettings"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vibemq.protocols.native.session import NativeSession
    from vibemq.protocols.native.settings import NativeSettings
    from vibemq.protocols.session import ProtocolPlugin

    plugin = ProtocolPlugin(name="native", settings=NativeSettings, create=NativeSession, port=2925)
    globals().update(PLUGIN=plugin, NativeSession=NativeSession, NativeSettings=NativeSettings)
    return globals()[name]
