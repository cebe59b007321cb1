"""What a subscription was delivered and the program has not been given: batches, and the rest of those that it is in.

Threads take from it without a lock. A signal's handler may come in between at any point, use the subscription as well,
wait, or raise. So everything moves in one step of the interpreter, from where it is into a list of the thread that
takes it, and a thread that is interrupted puts it back.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import length_hint
from typing import Generic, TypeVar

from vibemq.client.message import Message, MessageBatch, batch_of

T = TypeVar("T")


class UntakenMessages(Generic[T]):
    """In the order in which they came; what has begun comes first."""

    def __init__(self) -> None:
        self._batches: deque[MessageBatch[T]] = deque()
        self._begun: deque[Iterator[Message[T]]] = deque()
        """Each is shared by everybody who iterates; one that is there twice does no harm."""

    def __bool__(self) -> bool:
        """False for sure only when there is nothing."""
        return bool(self._batches or self._begun)

    def __len__(self) -> int:
        """Messages of batches that have not begun."""
        return sum(map(len, list(self._batches)))  # A copy: threads take batches out at any time.

    def add(self, batch: MessageBatch[T]) -> None:
        self._batches.append(batch)

    def begin(self, *, begun_only: bool = False) -> Iterator[Message[T]] | None:
        """What an iteration goes on with: messages that nobody has taken. They stay here until somebody does."""
        rest = self._rest()
        if rest is not None or begun_only:
            return rest
        taken: list[MessageBatch[T]] = []
        try:
            self._move_next(taken)
            if taken:
                rest = iter(taken[0].messages)
                self._begun.append(rest)
            return rest
        except BaseException:
            if rest is not None:
                self._begun.appendleft(rest)
            else:
                self._batches.extendleft(taken)
            raise

    def take_batch(self, *, begun_only: bool = False) -> MessageBatch[T] | None:
        """The rest of one that has begun, or the one that came next."""
        left: list[Message[T]] = []
        taken: list[MessageBatch[T]] = []
        try:
            while (rest := self._rest()) is not None:
                left.extend(rest)
                if left:
                    return batch_of(left)
            if not begun_only:
                self._move_next(taken)
            return taken[0] if taken else None
        except BaseException:
            if left:
                self._begun.appendleft(iter(left))
            self._batches.extendleft(taken)
            raise

    def put_back(self, given: Message[T] | MessageBatch[T]) -> None:
        """By a thread that was interrupted before the program had it."""
        self._begun.appendleft(iter([given] if isinstance(given, Message) else given.messages))

    def take_begun(self) -> list[Message[T]]:
        """The rest of every batch that has begun."""
        left: list[Message[T]] = []
        while (rest := self._rest()) is not None:
            left.extend(rest)
        return left

    def take_batches(self) -> list[MessageBatch[T]]:
        """Those that have not begun."""
        taken: list[MessageBatch[T]] = []
        while self._batches:
            self._move_next(taken)
        return taken

    def clear(self) -> None:
        """Also for the iterations that are in it."""
        self.take_begun()
        self._batches.clear()

    def _rest(self) -> Iterator[Message[T]] | None:
        """The first one that has messages left."""
        begun = self._begun
        while begun:
            try:
                rest = begun[0]
                if length_hint(rest):
                    return rest
                begun.remove(rest)
            except (IndexError, ValueError):
                continue  # Another thread has put it away.
        return None

    def _move_next(self, taken: list[MessageBatch[T]]) -> None:
        """Nothing, when there is none."""
        try:
            taken.extend(islice(iter(self._batches.popleft, None), 1))
        except IndexError:  # `suppress` would cost more than all the rest
            pass
