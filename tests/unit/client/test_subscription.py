"""What a subscription does without a connection."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bench.guard.counting import instructions
from vibemq.client.address import ClientSettings
from vibemq.client.link import ClientLink
from vibemq.client.message import Message
from vibemq.client.receiving.options import SubscribeOptions
from vibemq.client.subscription import Subscription
from vibemq.errors import NotConnected
from vibemq.model.rows import Rows, pack_row
from vibemq.model.runs import Run, run_count
from vibemq.protocols.native.codec.extensions import DeliverMany

pytestmark = pytest.mark.anyio


async def test_whoever_watches_may_be_taken_away_at_any_moment() -> None:
    """By the thread that removes the subscription from an inbox."""
    told = []

    class Removed(Subscription[Any]):
        reads = 0

        def __getattribute__(self, name: str) -> Any:
            if name == "watch":
                self.reads += 1
                watch: Callable[[], None] | None = None if self.reads > 1 else lambda: told.append("changed")
                return watch
            return super().__getattribute__(name)

    Removed(ClientLink(ClientSettings(), now=0.0), SubscribeOptions(queue="q"), None).established(1)
    assert told == ["changed"]


def test_a_message_cannot_be_settled_when_the_loop_of_its_client_has_ended() -> None:
    loop = asyncio.new_event_loop()
    link = ClientLink(ClientSettings(), now=0.0, current_loop=lambda: loop)
    subscription: Subscription[Any] = Subscription(link, SubscribeOptions(queue="q"), None)
    rows = Rows.of([pack_row("m1", b""), pack_row("m2", b"")])
    subscription.deliver(DeliverMany(subscription.id, "q", 1, 0, rows))
    loop.close()
    first, second = subscription._untaken.batches[0]
    for settle in (first.ack, lambda: second.extend(5)):
        with pytest.raises(NotConnected, match="has ended"):
            settle()


FAR = range(0, 3 * 6_000, 3)
"""Sequences of messages far apart, each of which is handed out twice."""


@pytest.mark.parametrize(
    "runs",
    [
        [(sequence, sequence) for sequence in FAR[2_000:3_000]],
        [(sequence, sequence) for sequence in reversed(FAR[:4_000])],
        [(0, FAR[-1])],
        [(0, FAR[-1] // 3), (FAR[-1] // 2, 1 << 40)],
        [(sequence, sequence + 1_000_000) for sequence in range(1, 300_000_000, 2_000_000)],
    ],
    ids=["some", "many, backwards", "all", "two long ones", "long ones"],
)
async def test_many_messages_are_settled_without_a_look_at_every_pair(runs: list[Run]) -> None:
    subscription: Subscription[Any] = Subscription(
        ClientLink(ClientSettings(), now=0.0), SubscribeOptions(queue="q"), None
    )
    rows, again = Rows.of([b"row"] * len(FAR)), dict.fromkeys(FAR, 2)
    for acquired in ({}, again):
        delivered = DeliverMany(subscription.id, "q", 0, 1, rows, acquired=acquired, sequences=FAR, instants=FAR)
        subscription.deliver(delivered)
    assert subscription._held.newest.keys() == set(FAR)
    cost = sum(instructions(lambda: subscription._held._settle_newest(runs)).values())
    settled = {sequence for sequence in FAR if any(first <= sequence <= last for first, last in runs)}
    assert subscription._held.newest.keys() == set(FAR) - settled
    assert cost < 100 * (min(run_count(runs), len(FAR)) + len(runs))


async def test_what_was_extended_too_late_stays_lost() -> None:
    now = [1_000.0]
    options = SubscribeOptions(queue="q", ack_timeout=30, auto_extend=True)
    subscription: Subscription[Any] = Subscription(ClientLink(ClientSettings(), now=0.0), options, None, lambda: now[0])

    def deliver(sequence: int) -> Message[Any]:
        subscription.deliver(DeliverMany(subscription.id, "q", 0, sequence, Rows.of([b"row"]), acquired={}))
        return subscription.take_buffered()[0]

    def tick() -> bool:
        subscription.tick(now[0])
        return first.lost

    first = deliver(1)
    for now[0] in (1_010.0, 1_039.0, 1_068.0):
        assert not tick()
    now[0] = 1_098.0  # The broker has handed it to somebody else at this instant.
    assert first.lost
    second = deliver(2)
    assert tick()
    assert not second.lost
    now[0] = 1_120.0
    assert tick()
    assert not second.lost


@pytest.mark.parametrize("use", [iter, lambda it: iter(it.batches()), lambda it: it.__enter__()])
async def test_whoever_leaves_out_async_is_told_so(use: Callable[[Any], object]) -> None:
    subscription: Subscription[Any] = Subscription(
        ClientLink(ClientSettings(), now=0.0), SubscribeOptions(queue="q"), None
    )
    with pytest.raises(TypeError, match="`async with` and `async for`"):
        use(subscription)
