"""VibeMQ: a durable queue service in one small process.

    async with vibemq.connect("vibemq://localhost") as mq: ...        the client; `vibemq.sync` is its blocking face

    async with vibemq.Broker(data_dir="data") as broker: ...           a broker inside this program

The names below are loaded when first used, so that `import vibemq` costs nothing. Type checkers read `__init__.pyi`.
"""

from importlib import import_module
from typing import Any

from vibemq._version import __version__

_HOMES = {
    "Broker": "vibemq.server.broker",
    "Client": "vibemq.client",
    "Message": "vibemq.client",
    "MessageBatch": "vibemq.client",
    "Outgoing": "vibemq.client",
    "PublishReport": "vibemq.client",
    "Publisher": "vibemq.client",
    "Receipt": "vibemq.client",
    "ReconnectPolicy": "vibemq.client",
    "Response": "vibemq.client",
    "Subscription": "vibemq.client",
    "connect": "vibemq.client",
}

__all__ = [
    "Broker",
    "Client",
    "Message",
    "MessageBatch",
    "Outgoing",
    "PublishReport",
    "Publisher",
    "Receipt",
    "ReconnectPolicy",
    "Response",
    "Subscription",
    "__version__",
    "connect",
    "errors",
    "sync",
]
_ROOMS = ("errors", "sync")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"vibemq.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'vibemq' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
