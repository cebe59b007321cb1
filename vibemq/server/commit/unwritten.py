"""What has been decided and is not appended yet: which rows, and who waits until they can be read.

The engine hands out and describes messages as soon as it has decided them. Their rows can be read once they are
appended, and a read that comes before finds nothing, as if they were gone.
"""

import asyncio
from collections.abc import Sequence

from vibemq.model.records import MessagesAdded, Record, StageMoved
from vibemq.model.runs import Run

Rows = dict[int, int]
"""The lowest sequence without a row, by queue id: a queue's rows are appended in ascending order."""
Waits = list[asyncio.Future[None]]


class Unwritten:
    """Filled by the committer. `gathered` is for the next append; `begun` is being appended."""

    def __init__(self) -> None:
        self._gathered: Rows = {}
        self._begun: Rows = {}
        self._pending = False
        """Something is gathered, with or without rows."""
        self._appending = False
        self._waits_gathered: Waits = []
        self._waits_begun: Waits = []

    def gather(self, records: Sequence[Record]) -> int:
        """Returns the bytes of their rows."""
        self._pending = True
        size = 0
        for record in records:
            if type(record) is MessagesAdded:
                self._gathered.setdefault(record.queue_id, record.first_sequence)
                size += record.rows.size
            elif type(record) is StageMoved:
                self._gathered.setdefault(record.queue_id, record.first_sequence)
        return size

    def begin(self) -> None:
        """Everything gathered is being appended now."""
        self._begun, self._gathered = self._gathered, {}
        self._appending, self._pending = True, False
        self._waits_begun += self._waits_gathered
        self._waits_gathered = []

    def refuse(self) -> None:
        """What is being appended, and what is gathered, will not be. Before the `end`, some of it may be gathered
        again: then whoever waits goes on waiting."""
        self._begun, self._gathered = {}, {}
        self._pending = False
        self._waits_gathered = self._waits_begun + self._waits_gathered
        self._waits_begun = []

    def end(self) -> None:
        """The append has ended, well or not."""
        self._begun = {}
        self._appending = False
        _let_go(self._waits_begun)
        if not self._pending:
            _let_go(self._waits_gathered)

    @property
    def rows(self) -> bool:
        """Whether any row is still to be written."""
        return bool(self._gathered or self._begun)

    def names(self, queue_id: int, runs: Sequence[Run]) -> bool:
        """Whether rows of the runs are still to be written."""
        lowest = self._begun.get(queue_id) or self._gathered.get(queue_id)
        return lowest is not None and any(last >= lowest for _, last in runs)

    async def written(self, queue_id: int | None = None, runs: Sequence[Run] = ()) -> None:
        """Return when the rows of the runs, or everything decided so far, is appended or refused."""
        wait = self.begin_wait(queue_id, runs)
        if wait is not None:
            await wait

    def begin_wait(self, queue_id: int | None = None, runs: Sequence[Run] = ()) -> "asyncio.Future[None] | None":
        """The same for who does not await; None: it is so already."""
        if queue_id is not None and not self.names(queue_id, runs):
            return None
        if not (self._pending or self._appending):
            return None
        wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waits_gathered if self._pending else self._waits_begun).append(wait)
        return wait


def _let_go(waits: Waits) -> None:
    for wait in waits:
        if not wait.done():
            wait.set_result(None)
    waits.clear()
