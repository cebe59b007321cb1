"""Promises that every protocol's session keeps, as a suite over a `Dialect`: what the suite must be able to say in a
protocol's own bytes. Call `check_session(dialect)`; it raises AssertionError with a sentence.

    tests/conformance/test_sessions.py runs it for the protocols of this package; an outside plug-in may do the same.
"""

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from vibemq.errors import (
    AuthFailed,
    NoReply,
    QueueFull,
    RemoteProtocolError,
    RequesterGone,
    RequestFailed,
    VibeMQError,
)
from vibemq.model.commands import (
    CloseSession,
    Command,
    DescribeQueue,
    Publish,
    Respond,
    SharedCapacity,
    Stage,
    Subscribe,
)
from vibemq.model.effects import Deliver, Published, Reply, Responded, Subscribed
from vibemq.model.options import QueueOptions
from vibemq.model.records import MessageExtra
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.model.staged_batch import unpack_staged_batch
from vibemq.model.stored import Slice
from vibemq.protocols.session import (
    Authenticate,
    Goodbye,
    OperationRequest,
    Principal,
    Request,
    Session,
    SessionContext,
    SessionLimits,
)

NOW = 1_700_000_000_000
SESSION = 7
QUEUE = "orders"
SOMEBODY = Principal("somebody", superuser=True)


def context(
    *, authentication: bool = False, limits: SessionLimits | None = None, queue_defaults: QueueOptions | None = None
) -> SessionContext:
    """A context with numbered ids, the same in every run."""
    numbers = count(1)
    return SessionContext(
        session=SESSION,
        connection_id="c" * 32,
        server_version="9.9.9",
        authentication=authentication,
        limits=limits or SessionLimits(),
        queue_defaults=queue_defaults or QueueOptions(),
        now=NOW,
        new_id=lambda: f"{next(numbers):032x}",
    )


@dataclass(frozen=True)
class Dialect:
    """How to say things in one protocol. Bytes are as a peer sends them."""

    name: str
    create: Callable[[SessionContext], Session]
    hello: bytes
    """The whole handshake of a peer with valid credentials, if the protocol has any, and what has to be said before
    QUEUE can be published to or consumed from."""
    publish: Callable[[str, bytes], bytes] | None
    """(message id, JSON payload) -> a publish to QUEUE; None: a protocol that only delivers."""
    subscribe: Callable[[], bytes]
    """Consume from QUEUE."""
    broken: Sequence[bytes] = ()
    """After the handshake, what no session can read on from."""
    has_goodbye: bool = True
    """Whether the protocol can tell its peer that the broker stops."""
    on_wire: Callable[[bytes], bytes] = bytes
    """A delivered payload as the peer sees it, where it stands within other text."""
    publishes_alone: bool = False
    """Whether each message is a command of its own."""
    timed: Mapping[str, Callable[[str, int, int], bytes]] = field(default_factory=dict)
    """Every way to publish with times relative to now: (message id, delay in ms, ttl in ms) -> bytes, one message."""
    keep_alive: Callable[[int], bytes] | None = None
    """(instant) -> what a peer says that has nothing to say; None: any publish will do."""
    silence_ms: int | None = 120_000
    """How long a peer may be silent; None: for ever, since the protocol gives it nothing to say."""
    request: Callable[[str, bytes], bytes] | None = None
    """(request id, JSON payload) -> a message to QUEUE whose sender waits for a reply, for 2 s; None: the protocol has
    no requests."""
    respond: Callable[[str, str, bytes], bytes] | None = None
    """(id, address, JSON payload) -> a reply."""
    share: Callable[[str, str, int], bytes] | None = None
    """(subscription id, share, messages) -> consume from QUEUE, with a capacity that is shared; None: the protocol has
    no shared capacities."""


@dataclass
class Talk:
    """A session with a server's manners: answers Authenticate, gathers commands and bytes."""

    session: Session
    asked: list[Request] = field(default_factory=list)
    now: int = NOW
    sent: bytearray = field(default_factory=bytearray)

    def hear(self, data: bytes) -> list[Request]:
        """Give the session bytes; return the engine commands and admin requests that came of them."""
        self.session.receive_data(data)
        self.session.tick(self.now)
        heard: list[Request] = []
        while (requests := self.session.commands()) or self.session.unread:
            for request in requests:
                if isinstance(request, Authenticate):
                    self.session.authenticated(request.token, SOMEBODY)
                elif isinstance(request, DescribeQueue):
                    # A session may look at a queue before it subscribes; nobody says what it is.
                    self.session.apply([Reply(SESSION, request.token, None)])
                else:
                    heard.append(request)
        self.sent += self.session.data_to_send()
        self.asked += heard
        return heard

    def tell(self, request: Any, result: Any) -> bytes:
        self.session.apply([Reply(SESSION, request.token, result)])
        return self.session.data_to_send()


def talk(dialect: Dialect) -> Talk:
    """A session after its handshake."""
    started = Talk(dialect.create(context()))
    if dialect.hello:
        for request in started.hear(dialect.hello):
            started.tell(request, Published(QUEUE, 0, 0) if isinstance(request, Publish) else None)
    started.asked.clear()
    started.sent.clear()
    return started


def check_session(dialect: Dialect) -> None:
    """Every promise of `vibemq.protocols.session.Session` that can be put without knowing the protocol."""
    for check in (
        check_silent_until_spoken_to,
        check_handshake,
        check_refused_handshake,
        check_publish,
        check_publish_refused,
        check_deliver,
        check_deliver_rows_far_apart,
        check_deliver_in_another_order,
        check_any_cut_is_the_same,
        check_broken_stream,
        check_garbage,
        check_end_of_stream,
        check_handshake_deadline,
        check_relative_times_on_a_busy_connection,
        check_silence_counts_from_the_last_word,
        check_request,
        check_respond,
        check_share,
        check_shutdown,
        check_fail,
    ):
        check(dialect)


def check_silent_until_spoken_to(dialect: Dialect) -> None:
    session = dialect.create(context())
    assert session.data_to_send() == b"", "a session speaks before its peer does"
    assert list(session.commands()) == []
    assert not session.closing


def check_handshake(dialect: Dialect) -> None:
    if not dialect.hello:
        return
    session = dialect.create(context(authentication=True))
    assert _principal(session) is None
    session.receive_data(dialect.hello)
    requests = list(session.commands())
    assert [type(request) for request in requests] == [Authenticate], "a handshake asks for its credentials' check"
    assert list(session.commands()) == [], "nothing more is read before the credentials are checked"
    request = requests[0]
    assert isinstance(request, Authenticate)
    session.authenticated(request.token, SOMEBODY)
    assert _principal(session) == SOMEBODY
    assert session.data_to_send(), "the peer is told that it is welcome"
    assert session.data_to_send() == b"", "bytes are handed out once"


def _principal(session: Session) -> Principal | None:
    return session.principal


def check_refused_handshake(dialect: Dialect) -> None:
    if not dialect.hello:
        return
    session = dialect.create(context(authentication=True))
    session.receive_data(dialect.hello)
    for request in session.commands():
        assert isinstance(request, Authenticate)
        session.refused(request.token, AuthFailed("wrong password"))
    assert session.principal is None
    assert session.data_to_send(), "the peer is told that its credentials are refused"


def check_publish(dialect: Dialect) -> None:
    if dialect.publish is None:
        return
    talking = talk(dialect)
    payloads = {f"m{number}": b'{"n":%d}' % number for number in range(20)}
    commands = talking.hear(b"".join(itertools.starmap(dialect.publish, payloads.items())))
    rows = [RowView(row) for command in commands if isinstance(command, Publish) for row in command.rows]
    assert len(rows) == len(payloads), "every message becomes one row"
    assert [view.payload for view in rows] == list(payloads.values()), "payloads pass through unchanged, in order"
    if not dialect.publishes_alone:
        assert len(commands) == 1, "messages of one read to one queue become one command"
    for command in commands:
        assert isinstance(command, Publish)
        assert (command.session, command.queue) == (SESSION, QUEUE)
        assert talking.tell(command, Published(QUEUE, 1, command.rows.count)), "a publish is confirmed"


def check_publish_refused(dialect: Dialect) -> None:
    if dialect.publish is None:
        return
    talking = talk(dialect)
    publish = dialect.publish("m1", b"1")
    accepted = _answers(talk(dialect), publish, None)
    refused = _answers(talking, publish, QueueFull(QUEUE, "10 messages"))
    assert refused, "a refused publish is answered"
    assert refused != accepted, "a refused publish is never confirmed"
    assert not talking.session.closing, "a full queue does not end the connection"


def _answers(talking: Talk, publish: bytes, error: QueueFull | None) -> bytes:
    answers = b""
    for command in talking.hear(publish):
        answers += talking.tell(command, error or Published(QUEUE, 1, 1))
    return answers


def check_deliver(dialect: Dialect) -> None:
    talking = talk(dialect)
    commands = talking.hear(dialect.subscribe())
    assert [type(command) for command in commands] == [Subscribe], "a subscription is one command"
    command = commands[0]
    assert isinstance(command, Subscribe)
    assert (command.session, command.queue) == (SESSION, QUEUE)
    talking.tell(command, Subscribed(QUEUE, "", command.consumer, 1))
    payload = b'"delivered payload"'
    piece = Slice(41, NOW, Rows.of([pack_row("id-41", payload), pack_row("id-42", payload)]))
    talking.session.deliver(Deliver(SESSION, command.consumer, QUEUE, 1, 0, [(41, 42)], {42: 2}), [piece])
    assert talking.session.data_to_send().count(dialect.on_wire(payload)) == 2, "payloads are delivered unchanged"


def check_deliver_rows_far_apart(dialect: Dialect) -> None:
    talking = talk(dialect)
    (command,) = talking.hear(dialect.subscribe())
    assert isinstance(command, Subscribe)
    talking.tell(command, Subscribed(QUEUE, "", command.consumer, 1))
    rows = [pack_row(f"id-{number}", b'"payload %d"' % number) for number in range(1, 6)]
    pieces = [
        Slice(41, NOW, Rows.of(rows[:1])),
        Slice(1 << 40, NOW - 9, Rows.of(rows[1:3])),
        Slice((1 << 40) + 5, NOW, Rows.of(rows[3:])),
    ]
    runs = [(piece.first_sequence, piece.first_sequence + piece.rows.count - 1) for piece in pieces]
    talking.session.deliver(Deliver(SESSION, command.consumer, QUEUE, 1, 0, runs, {1 << 40: 2}), pieces)
    sent = talking.session.data_to_send()
    places = [sent.find(dialect.on_wire(b'"payload %d"' % number)) for number in range(1, 6)]
    assert -1 not in places, "every payload is delivered unchanged"
    assert places == sorted(places), "messages are delivered in order"


def check_deliver_in_another_order(dialect: Dialect) -> None:
    """The runs of a delivery do not ascend where priorities or due times set the order."""
    order = [(50, 52), (1 << 40, 1 << 40), (7, 7), (90, 91), (3, 5), (60, 60)]
    numbers = [number for first, last in order for number in range(first, last + 1)]
    for cut in range(1, len(order)):
        talking = talk(dialect)
        (command,) = talking.hear(dialect.subscribe())
        assert isinstance(command, Subscribe)
        talking.tell(command, Subscribed(QUEUE, "", command.consumer, 1))
        deliver = Deliver(SESSION, command.consumer, QUEUE, 1, 0, order, {7: 2, 50: 3}, failed={7: 1})
        pieces = [
            Slice(first, NOW, Rows.of([pack_row(f"id-{n}", b'"payload %d"' % n) for n in range(first, last + 1)]))
            for first, last in order
        ]
        sent = b""
        for some in (pieces[:cut], pieces[cut:]):
            talking.session.deliver(deliver, some)
            sent += talking.session.data_to_send()
        places = [sent.find(dialect.on_wire(b'"payload %d"' % number)) for number in numbers]
        assert -1 not in places, "every payload is delivered unchanged"
        assert places == sorted(places), "messages are delivered in the order in which they are handed out"


def check_any_cut_is_the_same(dialect: Dialect) -> None:
    publish = dialect.publish or (lambda message_id, payload: b"")
    stream = publish("a", b"1") + dialect.subscribe() + publish("b", b"[2]")
    whole, pieces = talk(dialect), talk(dialect)
    whole.hear(stream)
    for at in range(len(stream)):
        pieces.hear(stream[at : at + 1])
    assert list(map(_outline, pieces.asked)) == list(map(_outline, whole.asked)), "cutting the stream changes it"
    assert pieces.sent == whole.sent


def _outline(request: Request) -> tuple[Any, ...]:
    """What a request asks for, without its token."""
    if isinstance(request, Publish):
        return "publish", request.queue, list(request.rows)
    if isinstance(request, Subscribe):
        return "subscribe", request.queue, request.consumer, request.capacity_messages
    return (type(request).__name__,)


def check_broken_stream(dialect: Dialect) -> None:
    for broken in dialect.broken:
        session = talk(dialect).session
        request = dialect.publish("before", b"1") if dialect.publish else dialect.subscribe()
        session.receive_data(request + broken)
        before = list(session.commands())
        kind = Publish if dialect.publish else Subscribe
        assert [type(request) for request in before] == [kind], "what came before the broken bytes still counts"
        # Where answers must keep the order of the requests, the last word waits for them.
        session.apply([Reply(SESSION, _token(command), _accepted(command)) for command in before])
        try:
            session.commands()
        except RemoteProtocolError:
            assert session.closing
        else:
            raise AssertionError(f"{dialect.name} reads on after {broken[:20]!r}")


def _token(request: Request) -> Any:
    return getattr(request, "token", None)


def _accepted(command: Request) -> Published | Subscribed:
    if isinstance(command, Publish):
        return Published(QUEUE, 1, command.rows.count)
    assert isinstance(command, Subscribe)
    return Subscribed(QUEUE, "", command.consumer, 1)


def check_garbage(dialect: Dialect) -> None:
    source = random.Random(20_240_229)  # noqa: S311  # the same garbage every time, nothing secret
    for number in range(200):
        session = talk(dialect).session if number % 2 else dialect.create(context())
        try:
            for _ in range(4):
                session.receive_data(source.randbytes(source.choice((1, 9, 200, 5_000))))
                for request in session.commands():
                    assert isinstance(request, Command | Authenticate | OperationRequest | Goodbye)
                    assert not isinstance(request, CloseSession)
                    if isinstance(request, Authenticate):
                        session.refused(request.token, AuthFailed("no"))
        except RemoteProtocolError:
            assert session.closing
        session.data_to_send()


def check_end_of_stream(dialect: Dialect) -> None:
    talking = talk(dialect)
    talking.session.receive_data(b"")
    assert list(talking.session.commands()) == []
    assert talking.session.closing, "after the end of the stream the connection can only be closed"


def check_handshake_deadline(dialect: Dialect) -> None:
    limits = SessionLimits()
    session = dialect.create(context(authentication=True))
    deadline = session.next_deadline()
    assert deadline is not None, "a silent stranger is waited for without end"
    assert deadline <= NOW + limits.handshake_timeout_ms
    session.tick(NOW + limits.handshake_timeout_ms)
    assert session.closing, "a silent stranger is sent away"
    assert session.next_deadline() is None, "a closing session asks for no more ticks"


BUSY_MS = 150_000


def check_relative_times_on_a_busy_connection(dialect: Dialect) -> None:
    """A connection without a pause lives between two deadlines; its clock goes on all the same."""
    talking = talk(dialect)
    for step in range(0, BUSY_MS, 1_000):
        talking.now = NOW + step
        for way, publish in dialect.timed.items():
            extras = [
                extra for request in talking.hear(publish(f"m{step}", 5_000, 9_000)) for extra in _extras(request)
            ]
            wanted = [(talking.now + 5_000, talking.now + 9_000)]
            found = [(extra.deliver_at, extra.expires_at) for extra in extras]
            assert found == wanted, f"{way}: delay and ttl count from the read, {step} ms after the first"
        if not dialect.timed:
            talking.hear(_word(dialect, talking.now))
        assert not talking.session.closing, f"a busy connection is no silent one, after {step} ms"


def _extras(request: Request) -> list[MessageExtra]:
    if isinstance(request, Publish):
        return list((request.extras or {}).values())
    assert isinstance(request, Stage), f"a publish becomes {request}"
    return [extra for row in request.rows for extra in (unpack_staged_batch(row)[2] or {}).values()]


def _word(dialect: Dialect, now: int) -> bytes:
    if dialect.keep_alive is not None:
        return dialect.keep_alive(now)
    assert dialect.publish is not None
    return dialect.publish(f"word-{now}", b"1")


def check_silence_counts_from_the_last_word(dialect: Dialect) -> None:
    """Neither earlier nor later, wherever the deadlines before it were; a late read is not the peer's silence."""
    if dialect.silence_ms is None:
        assert talk(dialect).session.next_deadline() is None, "a peer that may be silent is waited for"
        return
    for last in (0, 1, 59_000, dialect.silence_ms - 1, dialect.silence_ms + 30_000):
        talking = talk(dialect)
        talking.now += last
        talking.hear(_word(dialect, talking.now))
        assert not talking.session.closing, "what has arrived was said in time, however late it is read"
        closed = _silent_until_closed(talking.session, talking.now)
        assert closed - talking.now == dialect.silence_ms, (
            f"a word after {last} ms, closed {closed - talking.now} later"
        )


def _silent_until_closed(session: Session, now: int) -> int:
    for _ in range(10_000):
        deadline = session.next_deadline()
        assert deadline is not None, "a silent peer is waited for without end"
        now = max(now, deadline)
        session.tick(now)
        list(session.commands())
        if session.closing:
            return now
    raise AssertionError("a silent peer is never sent away")


def check_request(dialect: Dialect) -> None:
    """A request is a publish of one message that says where its reply goes; it has one answer, whatever happens."""
    if dialect.request is None:
        return
    results: list[Rows | VibeMQError] = [
        Rows.of([pack_row("r", b'{"answer":1}')]),
        NoReply("nobody has replied"),
        RequestFailed("it was rejected"),
    ]
    addresses: set[str] = set()
    for number, result in enumerate(results):
        talking = talk(dialect)
        [command] = talking.hear(dialect.request(f"ask{number}", b'{"a":1}'))
        assert isinstance(command, Publish), f"a request became {command}"
        requester = command.requester
        assert requester is not None, "a request does not say who waits for its reply"
        assert command.rows.count == 1, "a request is more than one message"
        assert requester.timeout_ms == 2_000, "a request waits for another time than its peer said"
        headers = RowView(command.rows[0]).headers
        assert headers["reply-to"] == requester.address, "the message does not say where its reply goes"
        assert len(requester.address) >= 32, "the address of a reply can be guessed"
        addresses.add(requester.address)
        assert talking.tell(command, Published(QUEUE, 1, 1)) == b"", "a request is answered before there is an answer"
        talking.session.apply([Responded(SESSION, requester.token, result)])
        told = talking.session.data_to_send()
        words = b"answer" if isinstance(result, Rows) else result.code.encode()
        assert words in told, f"the requester is not told {result!r}"
        assert f"ask{number}".encode() in told, "the answer does not name its request"
        late = talking.tell(command, Published(QUEUE, 0, 1, {0: QueueFull(QUEUE, "max_messages 1")}))
        assert late == b"", "a request is answered twice"
    talking = talk(dialect)
    [command] = talking.hear(dialect.request("refused", b"1"))
    told = talking.tell(command, Published(QUEUE, 0, 1, {0: QueueFull(QUEUE, "max_messages 1")}))
    assert b"QUEUE_FULL" in told, "a request that was not accepted has no answer"


def check_respond(dialect: Dialect) -> None:
    """A reply goes to the address that it names; its sender hears whether somebody waited."""
    if dialect.respond is None:
        return
    for result in (None, RequesterGone("nobody waits")):
        talking = talk(dialect)
        [command] = talking.hear(dialect.respond("r1", "a" * 32, b'{"answer":1}'))
        assert isinstance(command, Respond), f"a reply became {command}"
        assert command.address == "a" * 32, "a reply goes elsewhere"
        assert RowView(command.rows[0]).payload == b'{"answer":1}', "a reply says something else"
        told = talking.tell(command, result)
        assert b"r1" in told, "the sender of a reply is not told what became of it"
        assert (b"REQUESTER_GONE" in told) == (result is not None), "the sender of a reply is told the contrary"


def check_share(dialect: Dialect) -> None:
    """Subscriptions that name a share ask for the share's capacity, and for none of their own."""
    if dialect.share is None:
        return
    talking = talk(dialect)
    for number in (1, 2):
        [command] = talking.hear(dialect.share(f"s{number}", "worker", 4))
        assert isinstance(command, Subscribe), f"a subscription became {command}"
        assert command.share == SharedCapacity("worker", 4), "a subscription does not say with whom it shares"
        assert command.capacity_messages is None, "a subscription of a share has a capacity of its own"


def check_fail(dialect: Dialect) -> None:
    """A fault of the broker ends this one connection, and its peer is told."""
    talking = talk(dialect)
    talking.session.fail(VibeMQError("the broker's log says why"))
    assert talking.session.data_to_send(), "the peer is told"
    assert talking.session.closing
    talking.session.fail(VibeMQError("again"))
    assert talking.session.data_to_send() == b"", "once"
    fresh = dialect.create(context())
    fresh.fail(VibeMQError("before the first byte"))
    assert fresh.closing


def check_shutdown(dialect: Dialect) -> None:
    talking = talk(dialect)
    talking.session.shutdown("server_shutdown")
    assert bool(talking.session.data_to_send()) == dialect.has_goodbye
