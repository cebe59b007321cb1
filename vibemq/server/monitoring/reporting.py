"""What the reports look at once the broker runs, and the operators' verbs that take no arguments."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from vibemq.server.monitoring.health import Report
from vibemq.server.monitoring.snapshot import Survey
from vibemq.storage.interface import IStorageProvider, StorageStats


class _Engine(Protocol):
    def survey(self) -> Survey: ...


class _Described(Protocol):
    def described(self) -> dict[str, Any]: ...


class _Connections(Protocol):
    def by_protocol(self) -> dict[str, int]: ...


@dataclass(frozen=True, slots=True)
class Running:
    """See `Observed`."""

    engine: _Engine
    roster: _Connections

    def survey(self) -> Survey:
        return self.engine.survey()

    def connections(self) -> dict[str, int]:
        return self.roster.by_protocol()


class OperatorReports:
    """Answers are JSON-ready."""

    def __init__(
        self,
        report: Report,
        *,
        data_dir: Path,
        provider: IStorageProvider,
        stats: Callable[[], Awaitable[StorageStats]],
        connections: Iterable[_Described],
    ) -> None:
        self._report = report
        self._place = {"data_dir": str(data_dir.absolute()), "provider": provider.name}
        self._stats = stats
        self._connections = connections

    async def info(self) -> dict[str, Any]:
        return self._report.info() | self._place | {"storage": asdict(await self._stats())}

    async def metrics(self) -> dict[str, Any]:
        return self._report.json_metrics(await self._report.snapshots.latest())

    async def connections(self) -> list[dict[str, Any]]:
        return [connection.described() for connection in self._connections]

    def verbs(self) -> Mapping[str, Callable[[], Awaitable[Any]]]:
        """By the name an operator uses."""
        return {"broker.info": self.info, "broker.metrics": self.metrics, "connections.list": self.connections}
