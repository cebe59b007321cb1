"""The doors of a crowded broker, and what a row is.

A row is given the world and the number of the attempt, and returns when its call has been answered, or when an answer
that comes behind it has.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.every_call.peers import BODY, EXTENSIONS, LOG, OmqPeer, Peer
from vibemq.model.records import tag_of
from vibemq.model.rows import Rows, pack_row


class World:
    """A broker's doors."""

    def __init__(
        self,
        native: int,
        omq: int,
        http: str,
        folder: Path,
        is_quiet: Callable[[], bool],
        forget_the_picture: Callable[[], None],
    ) -> None:
        """
        Args:
            is_quiet: nobody but `peer` is connected, and nothing is left to do for those who were.
            forget_the_picture: of all queues, which calls share: each attempt takes it anew.
        """
        self.is_quiet = is_quiet
        self.forget_the_picture = forget_the_picture
        self.native, self.omq, self.http, self.folder = native, omq, http, folder
        self.peer = Peer(native)
        self._others: list[Peer | OmqPeer] = []
        """Peers of the last attempt."""
        self._drafts = 0

    def connect(self, extensions: str = EXTENSIONS) -> Peer:
        peer = Peer(self.native, extensions)
        self._others.append(peer)
        return peer

    def connect_omq(self) -> OmqPeer:
        peer = OmqPeer(self.omq)
        self._others.append(peer)
        return peer

    def hang_up(self) -> None:
        for peer in self._others:
            peer.close()
        self._others.clear()

    def close(self) -> None:
        self.hang_up()
        self.peer.close()

    def new_queue(self, messages: int = 0, **options: Any) -> str:
        self._drafts += 1
        name = f"draft-{self._drafts}"
        self.peer.admin("queue.create", queue=name, options=options)
        for first in range(0, messages, 1_000):
            numbers = range(first, min(first + 1_000, messages))
            self.peer.publish(name, Rows.of([pack_row(f"m{number:05}", BODY) for number in numbers]))
        return name

    def new_scattered_queue(self) -> str:
        """One message of two is gone, and some are delayed."""
        name = self.new_queue(5_000)
        self.peer.admin("queue.remove", queue=name, runs=[[s, s] for s in range(1, 5_000, 2)])
        return name

    def new_large_message(self) -> str:
        name = self.new_queue()
        self.peer.publish(name, Rows.of([pack_row("large", b"x" * 900_000)]))
        return name

    def epoch(self, group: str) -> int:
        return int(self.peer.ask("group.join", LOG, group=group)["epoch"])

    def planned(self, number: int) -> tuple[int, dict[str, Any]]:
        """The epoch of a reader, and what it calls the batch that it has planned."""
        epoch, group = self.epoch(f"enter-{number}"), f"enter-{number}"
        self.peer.ask("group.plan", LOG, group=group, epoch=epoch, tag="t", end="e")
        return epoch, {"group": group, "tag": "t", "end": tag_of("e"), "query": group, "batch": number}


Row = Callable[[World, int], object]
Prepared = tuple[Callable[[World, int], Any], Callable[[World, Any], object]]
"""What has to be there before the call, which is given it."""


def admin(name: str, **arguments: Any) -> Row:
    return lambda world, attempt: world.peer.admin(name, **arguments)


def cursor(name: str, queue: str, **arguments: Any) -> Row:
    return lambda world, attempt: world.peer.ask(name, queue, **arguments)


def prepare(row: Row | Prepared, world: World, attempt: int) -> Callable[[], object]:
    """Make what the call needs, and return the call."""
    if not isinstance(row, tuple):
        return lambda: row(world, attempt)
    before, call = row
    made = before(world, attempt)
    return lambda: call(world, made)
