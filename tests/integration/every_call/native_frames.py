"""A row for each frame that clients of the native protocol send."""

from collections.abc import Callable
from typing import Any

import orjson

from tests.integration.cursor_peer import rows_of
from tests.integration.every_call.peers import JOBS, LOG, MANY_ROWS, PLAIN_EXTENSIONS, Peer
from tests.integration.every_call.requests import addressed, asking, replied, requested
from tests.integration.every_call.world import Prepared, Row, World, admin, cursor
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body


def connected(world: World, attempt: int) -> Peer:
    return world.connect()


def consuming(count: int) -> Callable[[World, int], Peer]:
    def prepare(world: World, attempt: int) -> Peer:
        peer = world.connect()
        peer.take(world.new_queue(count), count)
        return peer

    return prepare


def sent(*bodies: bytes) -> Callable[[World, Peer], object]:
    def call(world: World, peer: Peer) -> None:
        for body in bodies:
            peer.send(body)
        peer.settled()

    return call


def asked(kind: CommandType, answer: CommandType, queue: str = "", payload: bytes = b"", **headers: str) -> Row:
    def call(world: World, attempt: int) -> bytes:
        world.peer.frame(kind, queue, payload, **headers)
        body = world.peer.until(answer)
        assert body[1] == answer, decode_body(body).error_message
        return body

    return call


def subscribed(world: World, peer: Peer) -> None:
    peer.take(JOBS, 10_000)


def unsubscribed(world: World, peer: Peer) -> None:
    peer.frame(CommandType.UNSUBSCRIBE, JOBS, subscription_id="s")
    peer.until(CommandType.UNSUBSCRIBE_ACK)


def left(world: World, peer: Peer) -> None:
    """A connection that holds very much ends."""
    peer.frame(CommandType.DISCONNECT)
    peer.close()
    world.peer.settled()


Holding = tuple[Peer, list[str]]
"""And the ids of the messages that it holds, of which no two are neighbours in the queue."""


def holding(count: int) -> Callable[[World, int], Holding]:
    def prepare(world: World, attempt: int) -> Holding:
        peer = world.connect(PLAIN_EXTENSIONS)
        return peer, peer.take_plain(world.new_queue(2 * count), 2 * count)[::2]

    return prepare


def spoken(kind: CommandType, **headers: str) -> Callable[[World, Holding], object]:
    """A frame for each message, all of them in one piece."""

    def call(world: World, holding: Holding) -> None:
        peer, ids = holding
        peer.send_all([encode_body(kind, message_id, headers=headers) for message_id in ids])
        peer.settled()

    return call


SCATTERED = [(sequence, sequence) for sequence in range(1, 10_000, 2)]
AS_MANY_AS_FIT = [(sequence, sequence) for sequence in range(1, 130_000, 2)]
"""Runs, into one frame."""
ANSWERS = {
    CommandType.CONNECT_ACK,
    CommandType.PONG,
    CommandType.PUBLISH_ACK,
    CommandType.SUBSCRIBE_ACK,
    CommandType.UNSUBSCRIBE_ACK,
    CommandType.DELIVER,
    CommandType.PUBLISH_MANY_ACK,
    CommandType.DELIVER_MANY,
    CommandType.DELIVER_SCATTERED,
    CommandType.SUBSCRIPTION_ENDED,
    CommandType.CURSOR_REPLY,
    CommandType.COLUMNS,
    CommandType.ERROR,
}
"""Types of frames that only the broker sends."""


def of_users(kind: CommandType, **fields: Any) -> Row:
    """A frame as .NET clients send it; `{}` in a field stands for the number of the attempt."""

    def call(world: World, attempt: int) -> bytes:
        filled = {name: v.format(attempt) if isinstance(v, str) else v for name, v in fields.items()}
        return asked(kind, kind, payload=orjson.dumps(filled))(world, attempt)  # type: ignore[return-value]

    return call


FRAME_ROWS: dict[CommandType, Row | Prepared] = {
    CommandType.CONNECT: connected,
    CommandType.DISCONNECT: (consuming(10_000), left),
    CommandType.PING: asked(CommandType.PING, CommandType.PONG),
    CommandType.PUBLISH: asked(CommandType.PUBLISH, CommandType.PUBLISH_ACK, JOBS, b'"x"'),
    CommandType.SUBSCRIBE: (connected, subscribed),
    CommandType.UNSUBSCRIBE: (consuming(10_000), unsubscribed),
    CommandType.ACK: (holding(5_000), spoken(CommandType.ACK)),
    CommandType.NACK: (holding(2_000), spoken(CommandType.NACK)),
    CommandType.EXTEND: (holding(2_000), spoken(CommandType.EXTEND)),
    CommandType.CREATE_QUEUE: lambda w, n: asked(CommandType.CREATE_QUEUE, CommandType.CREATE_QUEUE, f"made-{n}")(w, n),
    CommandType.DELETE_QUEUE: (
        lambda w, n: w.new_queue(1_000),
        lambda w, q: asked(CommandType.DELETE_QUEUE, CommandType.DELETE_QUEUE, q)(w, 0),
    ),
    CommandType.QUEUE_INFO: asked(CommandType.QUEUE_INFO, CommandType.QUEUE_INFO, LOG),
    CommandType.LIST_QUEUES: asked(CommandType.LIST_QUEUES, CommandType.LIST_QUEUES),
    CommandType.PUBLISH_MANY: lambda w, n: w.peer.publish(JOBS, rows_of(MANY_ROWS)),
    CommandType.SETTLE: (consuming(10_000), sent(extensions.settle("s", 0, AS_MANY_AS_FIT))),
    CommandType.EXTEND_MANY: (
        consuming(10_000),
        sent(extensions.extend_many("s", SCATTERED, ack_timeout_ms=90_000)),
    ),
    CommandType.FLOW: (
        consuming(10),
        sent(extensions.flow("s", capacity_messages=5, capacity_bytes=100, add_credit=0)),
    ),
    CommandType.REQUEST: (asking, requested),
    CommandType.RESPONSE: (addressed, replied),
    CommandType.ADMIN: admin("queue.info", queue="q1"),
    CommandType.CURSOR_REQUEST: cursor("group.offsets", LOG, group="g3"),
    CommandType.STAGE: lambda w, n: w.peer.stage(JOBS, rows_of(MANY_ROWS), app="other", version=n + 1, stage="s"),
    CommandType.ADMIN_CREATE_USER: of_users(CommandType.ADMIN_CREATE_USER, username="net-{}", password="secret"),
    CommandType.ADMIN_DELETE_USER: of_users(CommandType.ADMIN_DELETE_USER, username="holder-{}"),
    CommandType.ADMIN_CHANGE_PASSWORD: of_users(CommandType.ADMIN_CHANGE_PASSWORD, username="u5", newPassword="other"),
    CommandType.ADMIN_GRANT_PERMISSION: of_users(
        CommandType.ADMIN_GRANT_PERMISSION, username="u5", queuePattern="more.*", operations=["Publish"]
    ),
    CommandType.ADMIN_REVOKE_PERMISSION: of_users(
        CommandType.ADMIN_REVOKE_PERMISSION, username="u5", queuePattern="more.*"
    ),
    CommandType.ADMIN_LIST_USERS: asked(CommandType.ADMIN_LIST_USERS, CommandType.ADMIN_LIST_USERS),
    CommandType.ADMIN_GET_USER_PERMISSIONS: of_users(CommandType.ADMIN_GET_USER_PERMISSIONS, username="u5"),
}
