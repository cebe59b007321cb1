"""The consumers of a queue: who they are, what they hold, and whether they still settle."""

from collections.abc import Callable, Generator
from typing import Any

from pydantic import Field

from vibemq.model.effects import ConsumerFigures
from vibemq.operations.arguments import Arguments, Limit, QueueName, Whole, page_size
from vibemq.operations.contracts import EngineQuestions, InstantSource, Peers
from vibemq.operations.monitoring.turns import in_slices, sort_steps
from vibemq.operations.registry import Caller, Operation

PAGE_CONSUMERS = 100


class ConsumerListArguments(Arguments):
    queue: QueueName = Field(description="Name of the queue.")
    after: Whole | None = Field(None, description="Go on there: `next` of the page before.")
    limit: Limit = None


class Consumers:
    def __init__(self, engine: EngineQuestions, peers: Peers, clock: InstantSource) -> None:
        self._readers = engine.readers
        self._peers = peers
        self._clock = clock

    async def page(self, caller: Caller, wanted: ConsumerListArguments) -> dict[str, Any]:
        """By group, in each those who hold most first. Raises QueueNotFound."""
        found: list[ConsumerFigures] = []
        await in_slices(_steps(self._readers.consumers(wanted.queue), found.extend))
        ordered: list[ConsumerFigures] = []
        await in_slices(sort_steps(found, lambda one: (one.group, -one.in_flight, one.session, one.number), ordered))
        first = wanted.after or 0
        last = first + page_size(wanted.limit, PAGE_CONSUMERS)
        return {
            "consumers": [self._shown(one) for one in ordered[first:last]],
            "next": last if last < len(ordered) else None,
        }

    def _shown(self, one: ConsumerFigures) -> dict[str, Any]:
        """A consumer whose deadline is known holds its oldest message since an ack timeout before that; an extension
        counts as a new hand-out. `prefetch` counts messages."""
        peer = self._peers.peer(one.session)
        held = one.deadline and one.ack_timeout_ms
        return {
            "consumer": one.number,
            "connection": None if peer is None else peer.connection_id,
            "client": None if peer is None else peer.client_name or None,
            "user": None if peer is None or peer.principal is None else peer.principal.name,
            "protocol": None if peer is None else peer.protocol,
            "group": one.group,
            "active": one.active,
            "prefetch": one.prefetch,
            "in_flight": one.in_flight,
            "oldest_held_ms": max(0, self._clock.now() - one.deadline + one.ack_timeout_ms) if held else None,
            "last_ack_at": one.settled_at or None,
        }


def _steps(
    finding: Generator[None, None, list[ConsumerFigures]], take: Callable[[list[ConsumerFigures]], None]
) -> Generator[None, None, None]:
    take((yield from finding))


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "consumer.list",
        "The consumers of a queue: their connections, what they hold and since when.",
        ConsumerListArguments,
        Consumers,
        task=Consumers.page,
    ),
]
