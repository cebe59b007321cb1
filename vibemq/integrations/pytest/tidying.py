"""No test finds what another one has left."""

import hashlib
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, Self

import vibemq.sync
from vibemq.errors import QueueExclusive, QueueNotFound
from vibemq.integrations.pytest.running import RunningBroker
from vibemq.model.options import QUEUE_NAME_UNITS_MAX

LETTERS_SHOWN = 10
PAGE = 1_000


class Tidying:
    """Removes what tests leave in a broker, and says what that was. A context manager, which holds a connection."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._client = vibemq.sync.connect(broker.url, name="vibemq tests: tidying")
        self._names = count(1)
        self._kept = self.queues()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def new_queue(self, test: str, options: dict[str, Any]) -> str:
        """Create a queue whose name says which test it is for.

        Raises:
            InvalidOptions: an option is unknown, or has no such value.
        """
        name = _queue_name(test, next(self._names))
        self._client.create_queue(name, **options)
        return name

    def queues(self) -> set[str]:
        """Names of those that exist now."""
        return {queue.name for queue in self._broker.queues()}

    def keep(self, queues: set[str]) -> None:
        """They are not removed after tests, as long as they exist."""
        self._kept |= queues

    def remove_the_rest(self) -> None:
        """Delete the queues that are not kept, and the dead letters of all that are no more."""
        queues = self.queues()
        # One that has been deleted and comes again is another one.
        self._kept &= queues
        for queue in queues - self._kept:
            # An exclusive one goes with its connection, which a fixture of more than one test has.
            with suppress(QueueExclusive, QueueNotFound):
                self._client.delete_queue(queue)
        for queue in self._with_letters() - self.queues():
            # Whoever has neither messages nor letters is not found.
            with suppress(QueueNotFound):
                while self._client.admin("dlq.purge", queue=queue, limit=PAGE)["count"]:
                    pass

    def _with_letters(self) -> set[str]:
        found: set[str] = set()
        after: int | None = 0
        while after is not None:
            page = self._client.admin("dlq.list", after=after, limit=PAGE)
            found |= {letter["queue"] for letter in page["letters"]}
            after = page["next"]
        return found

    def report(self) -> str:
        """What is in the queues, a line each, and their newest dead letters; empty when there is nothing."""
        return "\n".join(line for queue in self._broker.queues() for line in self._lines(queue))

    def _lines(self, queue: Any) -> list[str]:
        figures = {name: getattr(queue, name) for name in ("ready", "in_flight", "delayed", "dead")}
        if not any(figures.values()):
            return []
        lines = [f"{queue.name}: " + ", ".join(f"{n} {name}" for name, n in figures.items() if n)]
        if queue.dead:
            letters = self._client.admin("dlq.list", queue=queue.name, limit=LETTERS_SHOWN)["letters"]
            lines += [f"    dead {letter['id']}: {letter['reason']} {letter['error']}".rstrip() for letter in letters]
        return lines


def _queue_name(test: str, number: int) -> str:
    name = "".join(c if c.isalnum() and c.isascii() else "-" for c in test)
    room = QUEUE_NAME_UNITS_MAX - 30
    if len(name) > room:
        name = f"{name[:room]}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
    return f"{name}-{number}"
