"""What the server asks of the engine; written down here so that tests may stand in for it."""

from collections.abc import Sequence
from typing import Protocol

from vibemq.engine.pacing import Batch
from vibemq.engine.range_views import Readers
from vibemq.engine.settings import EngineSettings
from vibemq.engine.views import Survey
from vibemq.errors import VibeMQError
from vibemq.model.commands import Command
from vibemq.model.effects import Outcome, QueueInfo
from vibemq.model.runs import Run
from vibemq.model.stored import StoredState


class QueueEngine(Protocol):
    """The face of `vibemq.engine` that the server uses. Pure: every call returns what to keep and what to tell."""

    def configure(self, settings: EngineSettings) -> None: ...

    def restore(self, state: StoredState, now: int) -> Outcome: ...

    def handle(self, commands: Sequence[Command], now: int) -> Outcome: ...

    def advance(self, batch: Batch, now: int) -> Outcome: ...

    def committed(self, ticket: int, now: int) -> Outcome: ...

    def failed(self, ticket: int, now: int, error: VibeMQError) -> Outcome: ...

    def tick(self, now: int) -> Outcome: ...

    def next_deadline(self) -> int | None: ...

    def queue_info(self, name: str) -> QueueInfo | None: ...

    def queue_infos(self) -> list[QueueInfo]: ...

    def survey(self) -> Survey: ...

    @property
    def readers(self) -> Readers: ...

    def subscriptions(self, session: int) -> list[tuple[int, str]]: ...

    def waiting_runs(self, queue: str, limit: int, start: int = 0) -> list[Run]: ...
