"""The consumers of a queue: who they are, what they hold, and whether they still settle."""

from collections.abc import Callable, Generator, Iterator
from typing import Any

from pydantic import Field

from vibemq.model.effects import ConsumerFigures
from vibemq.operations.arguments import Arguments, Limit, QueueName, Text, Whole, page_size
from vibemq.operations.contracts import EngineQuestions, InstantSource, Peers
from vibemq.operations.monitoring.turns import in_slices, sort_steps
from vibemq.operations.registry import Caller, Operation

PAGE_CONSUMERS = 100


class ConsumerListArguments(Arguments):
    queue: QueueName = Field(description="Name of the queue.")
    after: Whole | None = Field(None, description="Go on there: `next` of the page before.")
    limit: Limit = None


class OfConnectionArguments(Arguments):
    connection_id: Text = Field(description="Of the connection, as connections.list shows it.")
    user: Text | None = Field(
        None, description="Only if the connection is of this user; who is no superuser gives the own name."
    )
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
        shown: list[dict[str, Any]] = []
        await in_slices(map(shown.append, map(self._shown, ordered[first:last])))
        return {
            "consumers": shown,
            "next": last if last < len(ordered) else None,
        }

    async def of_connection(self, caller: Caller, wanted: OfConnectionArguments) -> dict[str, Any]:
        """In the order of their subscriptions; none when there is no such connection."""
        numbers: list[int] = []
        await in_slices(_numbers(self._peers, wanted, numbers))
        first, size = wanted.after or 0, page_size(wanted.limit, PAGE_CONSUMERS)
        found = self._readers.consumers_of_session(numbers[0], first, size + 1) if numbers else []
        return {
            "consumers": [{"queue": one.queue} | self._shown(one) for one in found[:size]],
            "next": first + size if len(found) > size else None,
        }

    def _shown(self, one: ConsumerFigures) -> dict[str, Any]:
        """A consumer whose deadline is known holds its oldest message since an ack timeout before that; an extension
        counts as a new hand-out. Without an ack timeout nobody knows: no instant is kept of a hand-out that does not
        end. `prefetch` counts messages."""
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
            "ack_timeout_ms": one.ack_timeout_ms or None,
            "oldest_held_ms": max(0, self._clock.now() - one.deadline + one.ack_timeout_ms) if held else None,
            "last_ack_at": one.settled_at or None,
        }


def _numbers(peers: Peers, wanted: OfConnectionArguments, into: list[int]) -> Iterator[None]:
    for peer in peers.peers():
        if peer.connection_id == wanted.connection_id:
            if wanted.user is None or (peer.principal is not None and peer.principal.name == wanted.user):
                into.append(peer.number)
            return
        yield


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
    Operation(
        "connections.consumers",
        "What a connection consumes: its consumers, of which queues, and what they hold; none of one that is gone.",
        OfConnectionArguments,
        Consumers,
        task=Consumers.of_connection,
        logged=True,
    ),
]
