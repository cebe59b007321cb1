"""Very many requests that wait for their replies, over the native protocol."""

from tests.integration.every_call.peers import BODY, EXTENSIONS, Peer
from tests.integration.every_call.world import World
from vibemq.model.rows import RowView, pack_row
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.wire import CommandType, encode_body

REQUESTS = 5_000
Asking = tuple[Peer, str]
"""And the queue of its requests."""


def asking(world: World, attempt: int) -> Asking:
    return world.connect(f"{EXTENSIONS},{extensions.REQUEST_EXTENSION}"), world.new_queue()


def requested(world: World, asking: Asking) -> Asking:
    """Very many requests wait for their replies."""
    peer, queue = asking
    row = pack_row("m", BODY)
    peer.send_all([extensions.request(f"r{number}", queue, row, 600_000) for number in range(REQUESTS)])
    peer.settled()
    return asking


def having_requested(world: World, attempt: int) -> Asking:
    return requested(world, asking(world, attempt))


def addressed(world: World, attempt: int) -> tuple[Peer, list[str]]:
    """The addresses to which replies may go."""
    peer, queue = having_requested(world, attempt)
    peer.send(encode_body(CommandType.SUBSCRIBE, "s", queue, b"", {"prefetch": str(REQUESTS)}))
    addresses: list[str] = []
    while len(addresses) < REQUESTS:
        rows = extensions.parse_deliver_many(peer.until(CommandType.DELIVER_MANY)).rows
        addresses += [RowView(row).headers["reply-to"] for row in rows]
    return peer, addresses


def replied(world: World, addressed: tuple[Peer, list[str]]) -> None:
    peer, addresses = addressed
    row = pack_row("m", BODY)
    peer.send_all([extensions.response(f"a{number}", address, row) for number, address in enumerate(addresses)])
    for _ in addresses:
        peer.until(CommandType.RESPONSE)


def purged(world: World, asking: Asking) -> None:
    peer, queue = asking
    world.peer.admin("queue.purge", queue=queue)
    told_of_errors(peer)


def deleted(world: World, asking: Asking) -> None:
    peer, queue = asking
    world.peer.admin("queue.delete", queue=queue)
    told_of_errors(peer)


def told_of_errors(peer: Peer) -> None:
    for _ in range(REQUESTS):
        assert peer.until(CommandType.ERROR)


def given_up(world: World, asking: Asking) -> None:
    asking[0].close()
    world.peer.settled()
