"""What the sessions of several protocols do alike, whatever their bytes mean. A session need not be one of these: the
contract is `vibemq.protocols.session.Session`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from vibemq.errors import RemoteProtocolError
from vibemq.model.runs import Run, runs_of
from vibemq.protocols.session import OptionalVerbs, Principal, Request, SessionContext

Settings = TypeVar("Settings")
State = TypeVar("State", bound="SharedState[Any]")


@dataclass(slots=True)
class SharedState(Generic[Settings]):
    """What the parts of one session share."""

    context: SessionContext
    settings: Settings
    now: int
    principal: Principal | None = None
    closing: bool = False
    failed: bool = False
    """The last answer is given or at least known; nothing more is read."""
    requests: list[Request] = field(default_factory=list)
    out: list[bytes] = field(default_factory=list)

    def ask(self, request: Request) -> None:
        self.requests.append(request)

    def send(self, data: bytes) -> None:
        self.out.append(data)

    def take_requests(self) -> list[Request]:
        requests, self.requests = self.requests, []
        return requests

    def take_bytes(self) -> bytes:
        parts, self.out = self.out, []
        return parts[0] if len(parts) == 1 else b"".join(parts)


LARGE_PROGRESS_BYTES = 65_536
"""Of a large message, what a client has to send within `limits.message_timeout_ms`."""


class LargeProgress:
    """Whether a client comes on with a large message: one that does not holds memory that others wait for."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._last: tuple[int, int] | None = None
        """When it has last come on by a piece worth counting, and what was left of it."""

    @property
    def deadline(self) -> int | None:
        return None if self._last is None else self._last[0] + self._timeout_ms

    def note(self, left: int, now: int) -> None:
        """So many bytes of a large message have not come, 0: none is under way. Whenever some have, or time has passed:
        else the deadline is not known."""
        if not left:
            self._last = None
        elif self._last is None or not 0 <= self._last[1] - left < LARGE_PROGRESS_BYTES:
            self._last = now, left

    def has_stalled(self, now: int, is_read: Callable[[], bool]) -> bool:
        """`is_read`: of the session's context. While nobody reads what comes, time does not count."""
        deadline = self.deadline
        if self._last is None or deadline is None or now < deadline:
            return False
        if not is_read():
            self._last = now, self._last[1]
            return False
        return True

    def error(self) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"less than {LARGE_PROGRESS_BYTES:,} B of a large message have come within {self._timeout_ms} ms"
            " (limits.message_timeout_ms); send it faster, or in smaller messages"
        )


class BaseSession(OptionalVerbs, Generic[State]):
    """The verbs of a session that need nothing but its state."""

    _state: State
    _broken: RemoteProtocolError | None = None
    """Why nothing more can be read of the stream."""

    def _take_requests(self) -> list[Request]:
        """What `commands` returns at its end. Raises what has broken the stream, once everything before it is told."""
        state = self._state
        requests = state.take_requests()
        if self._broken is not None and state.closing and not requests:
            raise self._broken
        return requests

    def data_to_send(self) -> bytes:
        return self._state.take_bytes()

    @property
    def closing(self) -> bool:
        return self._state.closing

    @property
    def principal(self) -> Principal | None:
        return self._state.principal


def runs_by_consumer(deliveries: Iterable[tuple[int, int, *tuple[Any, ...]]]) -> dict[int, list[Run]]:
    """Deliveries, each (consumer, sequence, …): what to settle or to extend of each consumer."""
    found: dict[int, list[int]] = {}
    for delivery in deliveries:
        found.setdefault(delivery[0], []).append(delivery[1])
    return {consumer: runs_of(sequences) for consumer, sequences in found.items()}


def emptied(table: dict[Any, Any], at_once: int) -> Iterator[None]:
    """Free what a table holds, in steps: for what a session has kept of very many queues or messages, once it has
    ended."""
    while table:
        for _ in range(min(len(table), at_once)):
            table.popitem()
        yield
