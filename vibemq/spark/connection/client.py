"""Requests that survive a broker's restart. Blocking, pipelined, for one thread; dials with the first request.

    ask(request) → Ticket         sent at once; many may be on their way
    answer(ticket) → Reply        waits; dials again and sends again as often as it takes, up to `retryTimeout`

Whatever is asked must be harmless when it is asked twice; every verb of cursor/1 is.
"""

import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from vibemq.spark.connection import wire
from vibemq.spark.connection.link import DIAL_TIMEOUT_S, Link
from vibemq.spark.errors import ConnectionLost, Refused, Unreachable
from vibemq.spark.options import SourceOptions

PAUSE_FIRST_S, PAUSE_MOST_S = 0.05, 2.0
DIAL_LEAST_S = 1.0
"""For an attempt, however little of `retryTimeout` is left."""
NOTICE_AFTER_S = 2.0
PAGE_QUEUES = 100
VERBS_AT_ONCE = 32
"""As many as the broker carries out for one connection at a time; it refuses more."""


class Ticket:
    """A request that is on its way, or answered."""

    __slots__ = ("answer", "frame", "id", "patience")

    def __init__(self, request_id: str, frame: wire.Frame) -> None:
        self.id = request_id
        self.frame = frame
        self.answer: wire.WireReply | None = None
        self.patience: Patience | None = None


class Patience:
    """Growing, random pauses until a deadline."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000
        self._began = time.monotonic()
        self._pause_s = PAUSE_FIRST_S
        self._noticed = False

    @property
    def left_s(self) -> float:
        return self._timeout_s - (time.monotonic() - self._began)

    def wait(self, why: str, give_up: Callable[[str], Exception]) -> None:
        """Pause; raises what `give_up` makes when the time is over."""
        left = self.left_s
        waited = self._timeout_s - left
        if left <= 0:
            raise give_up(f"after {self._timeout_s:g} s (retryTimeout)")
        if waited > NOTICE_AFTER_S and not self._noticed:
            self._noticed = True
            print(f"vibemq: {why}; trying for {left:.0f} s more", file=sys.stderr, flush=True)  # noqa: T201
        # Half of each pause is random, so that tasks do not come back all at once.
        time.sleep(min(left, self._pause_s * random.uniform(0.5, 1)))  # noqa: S311
        self._pause_s = min(2 * self._pause_s, PAUSE_MOST_S)


class BrokerClient:
    """See the module."""

    def __init__(self, settings: SourceOptions) -> None:
        self._settings = settings
        self._link: Link | None = None
        self._pid = os.getpid()
        self._waiting: dict[str, Ticket] = {}
        self._next_id = 0
        self._next_endpoint = 0
        self._patience: Patience | None = None
        self._lists_in_pages = False
        """All names together are more than a frame takes."""

    # -- verbs ------------------------------------------------------------------------------------------------------

    def call(self, verb: str, queue: str, arguments: Mapping[str, Any], *, patient: bool = True) -> dict[str, Any]:
        """One verb of cursor/1 and its result. Raises Refused, Unreachable; without patience after one attempt."""
        self._make_room(patient)
        ticket = self.ask(lambda request_id: wire.cursor_request(request_id, queue, verb, arguments), patient=patient)
        return self.json(ticket, patient=patient)

    def json(self, ticket: Ticket, *, patient: bool = True) -> dict[str, Any]:
        """The result of a verb that was asked before."""
        found: dict[str, Any] = wire.json_payload(self.answer(ticket, patient=patient))
        return found

    def ask_verb(self, verb: str, queue: str, arguments: Mapping[str, Any], *, patient: bool = True) -> Ticket:
        """Send; with as many on their way as there may be, an answer is read first."""
        self._make_room(patient)
        return self.ask(lambda request_id: wire.cursor_request(request_id, queue, verb, arguments), patient=patient)

    def list_queues(self, prefix: str = "") -> list[str]:
        """Names of the queues that begin so, and perhaps of others."""
        if not self._lists_in_pages:
            try:
                return self._all_queues()
            except Refused as error:
                if error.code != "MESSAGE_TOO_LARGE":
                    raise
                self._lists_in_pages = True
        return self._queues_in_pages(prefix)

    # -- requests ---------------------------------------------------------------------------------------------------

    def ask(self, make: Callable[[str], wire.Frame], *, patient: bool = True) -> Ticket:
        """Send; `make` gets the request's id. Raises Unreachable, Refused (at login)."""
        self._leave_after_fork()
        self._next_id += 1
        ticket = Ticket(f"{self._next_id}", make(f"{self._next_id}"))
        while self._link is None:
            try:
                self._connect()
            except ConnectionLost as lost:
                self._wait(lost, patient)
        self._patience = None
        self._waiting[ticket.id] = ticket
        try:
            self._link.send(ticket.frame)
        except ConnectionLost:
            self._drop()  # `answer` dials, and sends it again.
        return ticket

    def answer(self, ticket: Ticket, *, patient: bool = True) -> wire.WireReply:
        """Raises Refused for an Error that does not pass, Unreachable."""
        while True:
            try:
                self._receive_until(ticket)
            except ConnectionLost as lost:
                self._drop()
                self._wait(lost, patient, ticket)
                continue
            self._patience = None
            answer = ticket.answer
            assert answer is not None
            if answer.kind != wire.ERROR:
                return answer
            self._refused(ticket, Refused(*wire.error(answer)), patient)

    def forget(self, ticket: Ticket) -> None:
        """Its answer is not wanted any more."""
        self._waiting.pop(ticket.id, None)

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    def freshen(self) -> None:
        """Hang up if the peer has, or has sent what nobody asked for."""
        self._leave_after_fork()
        if self._link is not None and not self._link.is_quiet:
            self._drop()

    def close(self) -> None:
        self._waiting.clear()
        self._drop()

    # -- inside -----------------------------------------------------------------------------------------------------

    def _all_queues(self) -> list[str]:
        ticket = self.ask(lambda request_id: wire.plain(wire.LIST_QUEUES, request_id))
        return sorted(wire.json_payload(self.answer(ticket)) or ())

    def _queues_in_pages(self, prefix: str) -> list[str]:
        found: list[str] = []
        after: str | None = prefix[:-1]
        while after is not None and (not found or found[-1][: len(prefix)] <= prefix):
            arguments = {"after": after, "limit": PAGE_QUEUES}
            ticket = self.ask(lambda request_id, page=arguments: wire.admin_request(request_id, "queue.list", page))  # type: ignore[misc]
            page = wire.json_payload(self.answer(ticket))
            found += [queue["name"] for queue in page["queues"]]
            after = page["next"]
        return found

    def _make_room(self, patient: bool) -> None:
        self._leave_after_fork()
        while len(self._waiting) >= VERBS_AT_ONCE:
            try:
                self._receive()
            except ConnectionLost as lost:
                self._drop()
                self._wait(lost, patient)

    def _receive_until(self, ticket: Ticket) -> None:
        while ticket.answer is None:
            self._receive()

    def _receive(self) -> None:
        """One answer, to whatever was asked."""
        if self._link is None:
            self._connect()
        assert self._link is not None
        answer = self._link.receive()
        asked = self._waiting.pop(answer.id, None)
        if asked is not None:
            asked.answer = answer
        elif answer.kind == wire.ERROR and not answer.id.isdigit():
            # About the stream itself: what follows is the end of the connection.
            code, sentence = wire.error(answer)
            if code == "INVALID_MESSAGE":
                # Sent again, it would be refused again.
                self.close()
                advice = "the broker cannot read this request; is frameBytes larger than its limits.body_bytes_max?"
                raise Refused(code, sentence, advice)
            raise ConnectionLost(f"the broker ended the connection: {sentence}")

    def _refused(self, ticket: Ticket, error: Refused, patient: bool) -> None:
        """Send it once more after a pause, or raise."""
        if not (error.is_for_now and patient):
            raise error
        if ticket.patience is None:
            ticket.patience = Patience(self._settings.retry_timeout_ms)
        ticket.patience.wait(str(error), lambda after: Refused(error.code, error.sentence, f"gave up {after}"))
        ticket.answer = None
        self._waiting[ticket.id] = ticket
        if self._link is not None:
            try:
                self._link.send(ticket.frame)
            except ConnectionLost:
                self._drop()

    def _connect(self) -> None:
        """One attempt, at the next of the endpoints after a failure; sends everything that waits.

        Raises:
            ConnectionLost: nobody answers.
            Refused: the broker does not let us in.
        """
        endpoints = self._settings.endpoint
        if self._patience is None:
            self._patience = Patience(self._settings.retry_timeout_ms)
        timeout_s = max(DIAL_LEAST_S, min(DIAL_TIMEOUT_S, self._patience.left_s))
        try:
            self._link = Link(endpoints[self._next_endpoint % len(endpoints)], self._settings, timeout_s)
            for ticket in self._waiting.values():
                self._link.send(ticket.frame)
        except (ConnectionLost, Refused) as error:
            self._drop()
            self._next_endpoint += 1
            if isinstance(error, Refused) and error.is_for_now:
                raise ConnectionLost(str(error)) from None
            if isinstance(error, Refused):
                self._patience = None
            raise

    def _wait(self, lost: ConnectionLost, patient: bool, ticket: Ticket | None = None) -> None:
        where = ", ".join(f"{host}:{port}" for host, port, _ in self._settings.endpoint)
        said = f"cannot reach the broker at {where}: {lost}"
        try:
            if not patient:
                raise Unreachable(said)
            if self._patience is None:
                self._patience = Patience(self._settings.retry_timeout_ms)
            self._patience.wait(said, lambda after: Unreachable(f"{said}; gave up {after}"))
        except Unreachable:
            self._patience = None  # The next request has all of its time.
            if ticket is not None:
                self.forget(ticket)
            raise

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _leave_after_fork(self) -> None:
        """The socket is the parent's."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self.close()
