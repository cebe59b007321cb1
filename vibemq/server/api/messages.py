"""Queues and messages, for requests over HTTP that are more than one operation."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from vibemq.model.effects import QueueHead
from vibemq.model.options import QueueOptions
from vibemq.model.records import MessagesAdded, StageMoved
from vibemq.operations.contracts import ReaderQuestions
from vibemq.operations.dead_letters.letters import DeadLetters
from vibemq.operations.reading.bodies import MessageBodies
from vibemq.server.api.downloads import Download, Downloads
from vibemq.server.commit.message_taps import MessageTaps
from vibemq.server.net.connections import ConnectionTable
from vibemq.server.net.operation_runner import OperationRunner
from vibemq.web.api.services import Asker


class ApiMessages:
    """See `vibemq.web.api.services.MessageServices`."""

    def __init__(
        self, runner: OperationRunner, readers: ReaderQuestions, taps: MessageTaps, table: ConnectionTable
    ) -> None:
        self._runner = runner
        self._readers = readers
        self._taps = taps
        self._table = table
        self._downloads = Downloads(table.large_turns)

    def options(self, queue: str) -> QueueOptions:
        return self._readers.options(queue)

    def tail(self, queue: str) -> QueueHead:
        return self._readers.queue(queue)

    def tap(self, queue_id: int, seen: Callable[[MessagesAdded | StageMoved], None]) -> Callable[[], None]:
        return self._taps.add(queue_id, seen)

    def consumers(self, session: int) -> Collection[int]:
        return self._readers.session_consumers(session)

    async def body(self, asker: Asker, arguments: Mapping[str, Any]) -> Download:
        return await self._read(asker, "message.show", arguments)

    async def letter_body(self, asker: Asker, arguments: Mapping[str, Any]) -> Download:
        return await self._read(asker, "dlq.show", arguments)

    async def _read(self, asker: Asker, operation: str, arguments: Mapping[str, Any]) -> Download:
        # Who is refused does not wait for the downloads of others; a right may go while one waits.
        self._runner.admit_for(asker, asker.principal, operation, arguments)
        async with self._downloads.uncounted:
            call = self._runner.admit_for(asker, asker.principal, operation, arguments)
            bodies: MessageBodies | DeadLetters = call.service
            found = self._downloads.counted(await bodies.body(call.arguments))  # type: ignore[arg-type]  # of these
        self._runner.note_read(asker, call)
        return found

    @property
    def body_bytes_max(self) -> int:
        return self._table.limits.body_bytes_max
