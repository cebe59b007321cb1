"""The line of one group: its bound where nothing is acknowledged, and messages that wait for another URL."""

from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any, cast

from vibemq.errors import OutboundError, VibeMQError
from vibemq.model.commands import SetCapacity, Settle, Settlement
from vibemq.model.effects import Deliver
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import Slice
from vibemq.protocols.eventmesh.http.push.groups import WINDOW_BYTES, WINDOW_MESSAGES, PushGroup, PushTools
from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.push.lanes import REST_MS
from vibemq.protocols.eventmesh.http.push.slots import PushSlots
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.session import HttpAnswer, HttpCalls, Services
from vibemq.testing.session_conformance import NOW, context

ONE, OTHER = "http://192.0.2.1/", "http://192.0.2.2/"
DONE, RETRY = HttpAnswer(200, {}, b'{"retCode": 1}'), HttpAnswer(200, {}, b'{"retCode": 2}')


class _Called:
    def __init__(self, url: str, content: str) -> None:
        self.url, self.content = url, content

    def __await__(self) -> Generator["_Called", HttpAnswer, HttpAnswer]:
        return (yield self)


class Pushing:
    """A group whose pushes are answered when the test says so."""

    stopping = False

    def __init__(self, *urls: str) -> None:
        self.now = NOW
        self.session = InnerSession(context(), None, parted=lambda reason: None)
        tools = PushTools(
            cast(Services, self),
            cast(HttpCalls, self),
            EventMeshHttpSettings(push_concurrency=1),
            PushSlots(48, 16, self.session.call_soon),
        )
        self.group = PushGroup("t", self.session, tools)
        self.group.consumer = self.session.consumer(self.group.deliver, lambda error: None)
        for url in urls:
            self.group.add(url, sync=False)
        self.last = 0
        self.called: dict[_Called, Coroutine[Any, HttpAnswer, None]] = {}

    @property
    def outbound(self) -> "Pushing":
        return self

    async def __aenter__(self) -> None:
        """A slot is there."""

    async def __aexit__(self, *_: object) -> None:
        """It is given back."""

    def see_through(self, work: Callable[..., Coroutine[Any, HttpAnswer, None]], *arguments: Any) -> None:
        self._go_on(work(*arguments), None)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, owner: str) -> HttpAnswer:
        return await _Called(url, body.decode())

    def _go_on(self, work: Coroutine[Any, HttpAnswer, None], answer: HttpAnswer | VibeMQError | None) -> None:
        try:
            called = work.throw(answer) if isinstance(answer, VibeMQError) else work.send(cast(HttpAnswer, answer))
        except StopIteration:
            return
        self.called[cast(_Called, called)] = work

    def answer(self, url: str, answer: HttpAnswer | VibeMQError) -> None:
        [called] = [called for called in self.called if called.url == url]
        self._go_on(self.called.pop(called), answer)

    def pushed(self, url: str) -> str:
        """What the URL has not answered yet."""
        [content] = [called.content for called in self.called if called.url == url]
        return content

    def deliver(self, *bodies: bytes, settled: bool = False) -> None:
        rows = [pack_row(f"m{number}", body) for number, body in enumerate(bodies, self.last + 1)]
        piece = Slice(self.last + 1, 0, Rows.of(rows))
        runs = [(self.last + 1, self.last + len(rows))]
        self.last += len(rows)
        self.redeliver(piece, runs, settled=settled)

    def redeliver(self, piece: Slice, runs: list[tuple[int, int]], *, settled: bool = False) -> None:
        deliver = Deliver(self.session.number, self.group.consumer, "t", 1, 1, runs, settled=settled)
        self.session.deliver(deliver, [piece])

    def asked(self, kind: type[Any]) -> list[Any]:
        requests: list[Any] = []
        while more := self.session.commands():
            requests += more
        return [request for request in requests if isinstance(request, kind)]


def test_what_a_queue_forgets_at_once_is_bounded_by_the_line() -> None:
    """Its window bounds nothing: what is handed out is settled."""
    pushing = Pushing(ONE)
    pushing.deliver(*[b"1"] * (WINDOW_MESSAGES + 9), settled=True)
    [full] = pushing.asked(SetCapacity)
    assert full.capacity_messages == 0
    pushing.deliver(b"1", settled=True)
    assert not pushing.asked(SetCapacity), "it is said once"
    while len(pushing.group._line) > WINDOW_MESSAGES // 2:
        assert not pushing.asked(SetCapacity)
        pushing.answer(ONE, DONE)
    pushing.answer(ONE, DONE)
    [room] = pushing.asked(SetCapacity)
    assert (room.capacity_messages, room.capacity_bytes) == (WINDOW_MESSAGES, WINDOW_BYTES)


def test_also_by_its_bytes() -> None:
    pushing = Pushing(ONE)
    pushing.deliver(b"1", b"2" * WINDOW_BYTES, settled=True)
    assert [asked.capacity_messages for asked in pushing.asked(SetCapacity)] == [0]
    pushing.answer(ONE, DONE)
    assert [asked.capacity_messages for asked in pushing.asked(SetCapacity)] == [WINDOW_MESSAGES]


def test_the_window_bounds_what_is_acknowledged() -> None:
    pushing = Pushing(ONE)
    pushing.deliver(*[b"1"] * WINDOW_MESSAGES)
    assert not pushing.asked(SetCapacity)


def test_what_is_larger_than_a_message_of_the_protocol_is_turned_down() -> None:
    """A publisher of another protocol may send 256 MiB, which would be encoded in one piece."""
    pushing = Pushing(ONE)
    largest = context().limits.body_bytes_max
    pushing.deliver(b"x" * 2 * largest)
    [refused] = pushing.asked(Settle)
    assert (refused.verb, refused.runs) == (Settlement.REJECT, [(1, 1)])
    assert refused.reason == f"too large for EventMesh: its messages have at most {largest:,} bytes"
    pushing.deliver(b"x" * largest)
    assert len(pushing.pushed(ONE)) > largest
    pushing.answer(ONE, DONE)
    pushing.deliver(b"x" * 2 * largest, settled=True)
    assert not pushing.called
    assert [settled.verb for settled in pushing.asked(Settle)] == [Settlement.ACK]


def test_a_message_that_waits_for_another_url_lets_others_pass() -> None:
    pushing = Pushing(ONE, OTHER)
    pushing.deliver(b'"bad"', b'"slow"')
    pushing.answer(ONE, RETRY)
    [retried] = pushing.asked(Settle)
    assert retried.verb is Settlement.RETRY
    pushing.redeliver(Slice(1, 0, Rows.of([pack_row("m1", b'"bad"')])), [(1, 1)])
    assert [called.url for called in pushing.called] == [OTHER], "it has failed at the one that is free"
    pushing.deliver(b'"next"')
    assert "next" in pushing.pushed(ONE)
    pushing.answer(OTHER, DONE)
    assert "bad" in pushing.pushed(OTHER)


def test_a_url_rests_from_the_end_of_the_push_that_it_has_not_answered() -> None:
    """However long that took, and although the session has had no turn meanwhile."""
    pushing = Pushing(ONE)
    pushing.deliver(b'"1"', b'"2"')
    pushing.now += 5_000
    pushing.answer(ONE, OutboundError("no answer"))
    assert not pushing.called
    [retried, given_back] = pushing.asked(Settle)
    assert (retried.verb, retried.delay_ms, given_back.verb) == (Settlement.RETRY, REST_MS, Settlement.RELEASE)
    pushing.session.tick(pushing.now + REST_MS)
    assert not pushing.asked(SetCapacity)
    pushing.session.tick(pushing.now + REST_MS + 1)
    [awake] = pushing.asked(SetCapacity)
    assert awake.capacity_messages == WINDOW_MESSAGES


def test_a_new_url_does_not_wait_for_those_that_rest() -> None:
    pushing = Pushing(ONE)
    pushing.deliver(b'"1"', b'"2"')
    pushing.answer(ONE, OutboundError("no answer"))
    assert [asked.capacity_messages for asked in pushing.asked(SetCapacity)] == [0]
    pushing.group.add(OTHER, sync=False)
    assert [asked.capacity_messages for asked in pushing.asked(SetCapacity)] == [WINDOW_MESSAGES]
    pushing.redeliver(Slice(2, 0, Rows.of([pack_row("m2", b'"2"')])), [(2, 2)])
    assert "2" in pushing.pushed(OTHER)


def test_the_end_of_a_pause_that_is_over_ends_no_other() -> None:
    pushing = Pushing(ONE)
    pushing.deliver(b'"1"', b'"2"')
    pushing.answer(ONE, OutboundError("no answer"))
    pushing.group.add(OTHER, sync=False)
    pushing.group.remove(ONE)
    pushing.now += 1_000
    pushing.deliver(b'"3"', b'"4"')
    pushing.answer(OTHER, OutboundError("no answer"))
    pushing.asked(SetCapacity)
    pushing.session.tick(NOW + REST_MS + 1)
    assert not pushing.asked(SetCapacity), "the URL that is left rests for longer"
    pushing.session.tick(pushing.now + REST_MS + 1)
    assert [asked.capacity_messages for asked in pushing.asked(SetCapacity)] == [WINDOW_MESSAGES]
