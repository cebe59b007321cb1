"""A row for each command of the OCaml message queue."""

from tests.integration.every_call.peers import OmqPeer
from tests.integration.every_call.world import Prepared, Row, World
from vibemq.protocols.omq.frames import MessageFrame, Ping, UnsubscribedFrame

OMQ_MESSAGES = 10_000
"""As many as a subscription may have before an Ack settles them."""
Told = tuple[OmqPeer, str]
"""And a queue that is full of messages."""


def omq_told(world: World, attempt: int) -> Told:
    return world.connect_omq(), world.new_queue(OMQ_MESSAGES)


def omq_holding(world: World, attempt: int) -> Told:
    """Subscribed, and every message is there."""
    peer, queue = omq_told(world, attempt)
    omq_subscribed(world, (peer, queue))
    return peer, queue


def omq_subscribed(world: World, told: Told) -> None:
    peer, queue = told
    peer.say(b"(Subscribe %b From_current)\n" % queue.encode())
    peer.until(MessageFrame, OMQ_MESSAGES)


def omq_unsubscribed(world: World, told: Told) -> None:
    peer, queue = told
    peer.say(b"(Unsubscribe %b)\n" % queue.encode())
    peer.until(UnsubscribedFrame)


def omq_pinged(world: World, attempt: int) -> tuple[OmqPeer, int]:
    """Holding all of a queue, and a ping behind the messages whose Ack settles them."""
    peer, _ = omq_holding(world, attempt)
    ping = peer.until(Ping)
    assert isinstance(ping, Ping)
    return peer, ping.second


def omq_acked(world: World, pinged: tuple[OmqPeer, int]) -> None:
    """And as many more commands as are read together, which settle nothing."""
    peer, second = pinged
    peer.say(b"(Ack %d)\n" % second + b"(Ack 1)\n" * 20_000)
    peer.settled()


OMQ_ROWS: dict[str, Row | Prepared] = {
    "Connect": lambda w, n: w.connect_omq(),
    "OmqSubscribe": (omq_told, omq_subscribed),
    "OmqUnsubscribe": (omq_holding, omq_unsubscribed),
    "Ack": (omq_pinged, omq_acked),
}
