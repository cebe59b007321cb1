"""The broker itself and its store."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import Field

from vibemq.errors import InvalidPayload
from vibemq.operations.arguments import Arguments, Text
from vibemq.operations.contracts import BrokerReport, Store
from vibemq.operations.registry import Caller, Operation


class BackupArguments(Arguments):
    target: Text = Field(description="An absolute path of a new or empty folder on the broker's machine.")


class BrokerOperations:
    def __init__(self, store: Store, report: BrokerReport, place: Mapping[str, Any]) -> None:
        """`place`: where the data is, for broker.info."""
        self._store = store
        self._report = report
        self._place = place

    async def info(self, caller: Caller, wanted: Arguments) -> dict[str, Any]:
        stats = await self._store.call(self._store.provider.stats)
        return {**self._report.info(), **self._place, "storage": asdict(stats)}

    async def metrics(self, caller: Caller, wanted: Arguments) -> dict[str, Any]:
        return dict(await self._report.latest_metrics())

    async def backup(self, caller: Caller, wanted: BackupArguments) -> dict[str, Any]:
        target = Path(wanted.target)
        if not target.is_absolute():
            raise InvalidPayload("argument target must be an absolute path on the broker's machine")
        await self._store.aside(self._store.provider.backup, target)
        return {}


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "broker.info",
        "Version, uptime, data directory, alarms and storage of the broker.",
        Arguments,
        BrokerOperations,
        task=BrokerOperations.info,
        logged=True,
    ),
    Operation(
        "broker.metrics",
        "Counters of the broker.",
        Arguments,
        BrokerOperations,
        task=BrokerOperations.metrics,
        logged=True,
    ),
    Operation(
        "storage.backup",
        "Write a consistent copy of the store while the broker serves.",
        BackupArguments,
        BrokerOperations,
        task=BrokerOperations.backup,
        scans=True,
        logged=True,
    ),
]
