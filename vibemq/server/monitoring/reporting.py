"""What the reports look at once the broker runs."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from vibemq.model.effects import QueueDepth
from vibemq.server.monitoring.snapshot import SurveyView


class _Engine(Protocol):
    def depth(self, name: str) -> Generator[None, None, QueueDepth] | None: ...

    def survey(self) -> SurveyView: ...


class _Connections(Protocol):
    def by_protocol(self) -> dict[str, int]: ...


@dataclass(frozen=True, slots=True)
class Running:
    """See `Observed`."""

    engine: _Engine
    connection_table: _Connections

    def depth(self, name: str) -> Generator[None, None, QueueDepth] | None:
        return self.engine.depth(name)

    def survey(self) -> SurveyView:
        return self.engine.survey()

    def connections(self) -> dict[str, int]:
        return self.connection_table.by_protocol()
