"""What a subscription does without a connection."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bench.guard.counting import instructions
from vibemq.client.address import ClientSettings
from vibemq.client.link import ClientLink
from vibemq.client.message import Message
from vibemq.client.protocol import ClientProtocol
from vibemq.client.receiving.held import forget
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
    cost = sum(instructions(lambda: forget(subscription._held.newest, runs)).values())
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


class Told(ClientProtocol):
    """Notes what the broker is told of ack timeouts: in ms, of which messages."""

    def __init__(self) -> None:
        super().__init__(ClientSettings())
        self.extended: list[tuple[int, list[Run]]] = []

    def extend(self, subscription: str, runs: Sequence[Run], ack_timeout_ms: int) -> bytes:
        self.extended.append((ack_timeout_ms, list(runs)))
        return b""


class ExtendedMessages:
    """Messages 1 to 3, for 30 s each, which the client extends by itself; and the clock of both."""

    def __init__(self) -> None:
        self.now = 1_000.0
        options = SubscribeOptions(queue="q", ack_timeout=30, auto_extend=True)
        link = ClientLink(ClientSettings(), now=0.0)
        self.subscription: Subscription[Any] = Subscription(link, options, None, lambda: self.now)
        self.messages = self.deliver({})

    def deliver(self, acquired: dict[int, int]) -> list[Message[Any]]:
        rows = Rows.of([b"row"] * 3)
        self.subscription.deliver(DeliverMany(self.subscription.id, "q", 1, 0, rows, acquired=acquired))
        return self.subscription.take_buffered()

    def told_after(self, seconds: float) -> list[tuple[int, list[Run]]]:
        """What the broker is told after a tick."""
        self.now += seconds
        self.subscription.tick(self.now)
        protocol = Told()
        list(self.subscription.take_frames(protocol))
        return protocol.extended


ALL = (30_000, [(1, 3)])


@pytest.mark.parametrize("ticks", [0, 1])
async def test_what_the_program_has_extended_for_longer_keeps_that(ticks: int) -> None:
    held = ExtendedMessages()
    first, second, _ = held.messages
    for _ in range(ticks):
        assert held.told_after(10) == [ALL]
    second.extend(600)
    assert held.told_after(10) == [(600_000, [(2, 2)]), (30_000, [(1, 1), (3, 3)])]
    first.ack()
    held.told_after(0)
    for _ in range(55):
        assert held.told_after(10)[-1] == (30_000, [(3, 3)])
    assert not second.lost
    assert held.told_after(10) == [(30_000, [(2, 3)])]


async def test_what_has_no_limit_is_never_given_one() -> None:
    held = ExtendedMessages()
    for message in held.messages:
        message.extend(0)
    assert held.told_after(10) == [(0, [(number, number)]) for number in (1, 2, 3)]
    for _ in range(100):
        assert held.told_after(10) == []
    assert not held.messages[0].lost


@pytest.mark.parametrize("shorter", [5, None], ids=["for less", "as the subscription"])
async def test_the_programs_latest_extension_is_the_one_that_counts(shorter: int | None) -> None:
    held = ExtendedMessages()
    held.messages[0].extend(600)
    held.messages[0].extend(shorter)
    assert held.told_after(10)[-1] == ALL


async def test_what_came_again_is_extended_like_the_others() -> None:
    held = ExtendedMessages()
    held.messages[0].extend(600)
    held.deliver({1: 2})
    assert held.told_after(10)[-1] == ALL


async def test_what_was_extended_and_is_not_held_leaves_nothing_behind() -> None:
    held = ExtendedMessages()
    first, second, _ = held.messages
    first.extend(600)
    first.ack()
    held.told_after(10)
    held.subscription.extend(second._delivery, [(1, 2)], 600_000)
    assert held.subscription._held.deadlines.keys() == {2}


@pytest.mark.parametrize("use", [iter, lambda it: iter(it.batches()), lambda it: it.__enter__()])
async def test_whoever_leaves_out_async_is_told_so(use: Callable[[Any], object]) -> None:
    subscription: Subscription[Any] = Subscription(
        ClientLink(ClientSettings(), now=0.0), SubscribeOptions(queue="q"), None
    )
    with pytest.raises(TypeError, match="`async with` and `async for`"):
        use(subscription)
