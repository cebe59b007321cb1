"""What is under way for a peer: batches that take more than one step, and what must come behind them."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from vibemq.engine import Batch
from vibemq.errors import StorageError, VibeMQError
from vibemq.model.commands import Command, Publish
from vibemq.model.rows import LargeRow
from vibemq.server.commit.storage_threads import Store
from vibemq.server.net.decider import Decider


class RefusedSession(Protocol):
    def refused(self, token: Any, error: VibeMQError) -> None: ...


class WorkingPeer(Protocol):
    """The peer, as its works see it."""

    @property
    def session(self) -> RefusedSession: ...

    @property
    def hears_answers(self) -> bool: ...

    @property
    def parted(self) -> bool: ...

    @property
    def wake(self) -> Callable[[], None]: ...

    def process(self) -> None: ...

    def give_up(self, what: str, error: BaseException | None = None) -> None: ...


class Prepared(Iterator[None]):
    """The place of a large message among the works of a peer, while it is being written ahead of its record."""

    def __init__(self, future: "asyncio.Future[None]") -> None:
        self.future = future
        self.then: Iterator[None] | None = None
        """Once it is written; None until the loop has told of that, which it does a turn later than the future."""

    def __next__(self) -> None:
        assert self.then is not None
        return next(self.then)


class PeerWorks:
    """In order: one begins when the one before it is done. The peer is an argument, so that nothing here refers to who
    refers to it."""

    def __init__(self, decider: Decider, store: Store, fatal: Callable[[BaseException], None]) -> None:
        self._decider = decider
        self._store = store
        self._fatal = fatal
        self.lined_up: deque[Iterator[None]] = deque()
        """Empty for most peers at all times."""
        self._decided_in = -1
        """The generation of the latest decision about what the peer has asked for that the journal has to keep."""

    @property
    def are_appended(self) -> bool:
        """Whether all that was decided about what the peer has asked for is in the journal."""
        return self._decided_in != self._decider.generation

    def decide(self, peer: WorkingPeer, commands: Sequence[Command], *, asked: bool = True) -> None:
        """Have it decided behind everything that was asked before: at once, but for what is long about it.

        Args:
            asked: by the peer, or it hears of it: nothing is written to the peer before it is appended.
        """
        batch = Batch(commands)
        if self.lined_up:
            self.lined_up.append(self._decider.steps(batch))
            return
        decided_in = self._decider.generation
        if self._decider.advance(batch) and asked:
            self._decided_in = decided_in
        if not batch.done:
            self.lined_up.append(self._decider.steps(batch))
            self._go_on_later(peer)

    def _go_on_later(self, peer: WorkingPeer) -> None:
        self._decider.go_on_later(self._go_on(peer))

    def pause(self, peer: WorkingPeer) -> None:
        """Others have their turn; then the peer is read on."""
        self.lined_up.append(iter(()))
        self._go_on_later(peer)

    def add(self, peer: WorkingPeer, work: Iterator[None]) -> None:
        """Begin with it as soon as everything before it is done."""
        self.lined_up.append(work)
        if len(self.lined_up) == 1:
            self._decider.go_on(self._go_on(peer))

    def prepare(
        self, peer: WorkingPeer, publish: Publish, row: LargeRow, refusal: Callable[[Publish], VibeMQError | None]
    ) -> bool:
        """Have a large message written ahead of its record, so that its commit is as short as everybody's. What comes
        behind it waits, and so does whatever the peer sends meanwhile. False: the provider does no such thing.

        `refusal`: why it may not be published any more, asked when it is written.
        """
        future = self._store.begin_prepare(row)
        if future is None:
            return False
        prepared = Prepared(future)
        self.lined_up.append(prepared)
        future.add_done_callback(lambda _: self._prepared(peer, prepared, publish, refusal))
        return True

    def _prepared(
        self,
        peer: WorkingPeer,
        prepared: Prepared,
        publish: Publish,
        refusal: Callable[[Publish], VibeMQError | None],
    ) -> None:
        if prepared.future.cancelled():
            return
        error = prepared.future.exception()
        if isinstance(error, StorageError):
            self._fatal(error)
            return
        prepared.then = iter(())
        if error is not None:
            peer.give_up("a large message could not be written", error)
        elif peer.hears_answers and (refused := refusal(publish)) is not None:
            peer.session.refused(publish.token, refused)
        elif peer.hears_answers:
            # Else its publisher has gone, or its login has ended, and it is told nothing.
            prepared.then = self._decider.steps(Batch([publish]))
        if self.lined_up[0] is prepared:
            self._decider.go_on(self._go_on(peer))

    def _go_on(self, peer: WorkingPeer) -> Iterator[None]:
        """What is lined up, step by step; then what was asked meanwhile."""
        while self.lined_up:
            first = self.lined_up[0]
            if isinstance(first, Prepared) and first.then is None:
                # It goes on when that is written.
                return
            try:
                more = next(first, self) is not self
            except Exception as error:
                more = False
                peer.give_up("a request could not be handled", error)
            self._decided_in = self._decider.generation
            if more:
                peer.wake()
                yield
            else:
                self.lined_up.popleft()
        if not peer.parted:
            peer.process()
