"""Requests of subscribers that name several topics: worked through in turns of the loop, and always answered.

A step may be done at once or when the engine has decided; some are under way together. The first that fails ends the
exchange, and so does its deadline, whatever has become of the steps.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

from vibemq.errors import RequestFailed, VibeMQError
from vibemq.model.runs import END
from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.state import Done

STEPS_AT_ONCE = 25
"""About a millisecond."""
STEPS_TOGETHER = 64
"""That wait for the engine; those that are kept in one commit are as fast as one."""
EXCHANGE_TIMEOUT_MS = 30_000

T = TypeVar("T")


class HubExchange(Generic[T]):
    """Args:
    step: (item, told): begin with one of them; `told` once, when it is done or why not.
    done: told once.
    """

    def __init__(self, items: Iterable[T], step: Callable[[T, Done], None], done: Done) -> None:
        self._left = deque(items)
        self._step = step
        self._done: Done | None = done
        self._under_way = 0
        self._going = False
        self.until = 0
        self.forget: Callable[[HubExchange[Any]], None] = _nothing

    def go_on(self, session: InnerSession) -> None:
        """Steps that are done at once come back here: they are counted, and the loop below goes on."""
        if self._going or self._done is None:
            return
        self._going = True
        steps = 0
        try:
            while self._done is not None and self._left and self._under_way < STEPS_TOGETHER:
                if steps == STEPS_AT_ONCE:
                    session.call_soon(partial(self.go_on, session))
                    return
                steps += 1
                self._under_way += 1
                self._step(self._left.popleft(), partial(self._told, session))
        finally:
            self._going = False
        if not (self._left or self._under_way):
            self.end(None)

    def _told(self, session: InnerSession, error: VibeMQError | None) -> None:
        self._under_way -= 1
        if error is not None:
            self.end(error)
        else:
            self.go_on(session)

    def end(self, error: VibeMQError | None) -> None:
        done, self._done = self._done, None
        self._left.clear()
        if done is not None:
            self.forget(self)
            done(error)


class Exchanges:
    """All that are under way, in the order of their deadlines.

    Args:
        session: the one that keeps the time now.
    """

    def __init__(self, session: Callable[[], InnerSession]) -> None:
        self._session = session
        self._open: dict[HubExchange[Any], None] = {}
        self._watching = False

    def begin(self, exchange: HubExchange[Any]) -> None:
        exchange.until = END
        exchange.forget = self._forget
        self._open[exchange] = None
        # Another session asks. The time of this one, which may have had nothing to do, is right in its own turn alone.
        self._session().call_soon(partial(self._go_on, exchange))

    def _go_on(self, exchange: HubExchange[Any]) -> None:
        if exchange in self._open:
            session = self._session()
            exchange.until = session.now + EXCHANGE_TIMEOUT_MS
            self._watch()
            exchange.go_on(session)

    def _forget(self, exchange: HubExchange[Any]) -> None:
        self._open.pop(exchange, None)

    def _watch(self) -> None:
        if self._watching or not self._open:
            return
        until = next(iter(self._open)).until
        # One that has not begun is watched when it does.
        if until < END:
            self._watching = True
            self._session().call_at(until, self._look)

    def _look(self) -> None:
        self._watching = False
        while self._open and (first := next(iter(self._open))).until <= self._session().now:
            first.end(RequestFailed("the broker has not done it in time; ask again"))
        self._watch()

    def fail_all(self, why: VibeMQError) -> None:
        for exchange in list(self._open):
            exchange.end(why)


def _nothing(*_: object) -> None:
    """It was never begun."""
