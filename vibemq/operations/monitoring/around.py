"""What a running broker is made of: its checks, its settings with the origin of each, and its listeners."""

from typing import Any, Protocol

from vibemq.operations.arguments import Arguments
from vibemq.operations.registry import Caller, Operation


class Surroundings(Protocol):
    """See `vibemq.server.around`."""

    async def checks(self) -> list[dict[str, Any]]:
        """Each with `name`, `level` (ok, warn, fail), `text` and `remedy`."""

    async def listeners(self) -> list[dict[str, Any]]: ...

    def settings(self) -> list[dict[str, Any]]:
        """Each with `name`, `value`, `origin` and `when`; secrets have the value "set"."""


class AroundBroker:
    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings

    async def checks(self, caller: Caller, wanted: Arguments) -> dict[str, Any]:
        return {"checks": await self._surroundings.checks()}

    async def settings(self, caller: Caller, wanted: Arguments) -> dict[str, Any]:
        return {"settings": self._surroundings.settings()}

    async def listeners(self, caller: Caller, wanted: Arguments) -> dict[str, Any]:
        return {"listeners": await self._surroundings.listeners()}


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "broker.checks",
        "What should be mended about the broker and its machine, each with a remedy.",
        Arguments,
        AroundBroker,
        task=AroundBroker.checks,
    ),
    Operation(
        "broker.settings",
        "Every setting, where its value comes from, and what makes a change of it count; secrets are told as set.",
        Arguments,
        AroundBroker,
        task=AroundBroker.settings,
    ),
    Operation(
        "listeners.list",
        "Where the broker listens: protocol, address, TLS, the certificate's last day, connections, refusals.",
        Arguments,
        AroundBroker,
        task=AroundBroker.listeners,
    ),
]
