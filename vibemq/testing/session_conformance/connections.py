"""Handshakes, silence, broken streams, and how a connection ends."""

import random
from typing import Any

from vibemq.errors import (
    AuthFailed,
    RemoteProtocolError,
    VibeMQError,
)
from vibemq.model.commands import (
    CloseSession,
    Command,
    Publish,
    Subscribe,
)
from vibemq.model.effects import Published, Reply, Subscribed
from vibemq.protocols.session import (
    Authenticate,
    Goodbye,
    OperationRequest,
    OptionalVerbs,
    Principal,
    Request,
    Session,
    SessionLimits,
)
from vibemq.testing.session_conformance.dialect import NOW, QUEUE, SESSION, SOMEBODY, Dialect, context, last_word, talk


def check_has_every_member(dialect: Dialect) -> None:
    session = dialect.create(context())
    for declaring, where in ((OptionalVerbs, "inherit vibemq.protocols.session.OptionalVerbs"), (Session, "write it")):
        for name, declared in vars(declaring).items():
            if not name.startswith("_"):
                assert hasattr(session, name), f"a session has no {name}, which the broker asks for: {where}"
                is_method = callable(getattr(session, name))
                kind = "method" if callable(declared) else "property"
                assert is_method == callable(declared), f"{name} of a session must be a {kind}"


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


def check_silence_counts_from_the_last_word(dialect: Dialect) -> None:
    """Neither earlier nor later, wherever the deadlines before it were; a late read is not the peer's silence."""
    if dialect.silence_ms is None:
        assert talk(dialect).session.next_deadline() is None, "a peer that may be silent is waited for"
        return
    for last in (0, 1, 59_000, dialect.silence_ms - 1, dialect.silence_ms + 30_000):
        talking = talk(dialect)
        talking.now += last
        talking.hear(last_word(dialect, talking.now))
        assert not talking.session.closing, "what has arrived was said in time, however late it is read"
        closed = _silent_until_closed(talking.session, talking.now)
        assert closed - talking.now == dialect.silence_ms, (
            f"a word after {last} ms, closed {closed - talking.now} later"
        )


def check_who_is_not_read_is_not_silent(dialect: Dialect) -> None:
    """What such a peer has said waits in the kernel, until the broker has less to do."""
    if dialect.silence_ms is None:
        return
    read = False
    talking = talk(dialect, lambda: read)
    end = talking.now + 10 * dialect.silence_ms
    for _ in range(10_000):
        if talking.now >= end:
            break
        deadline = talking.session.next_deadline()
        assert deadline is not None
        talking.now = max(talking.now, deadline)
        talking.session.tick(talking.now)
        list(talking.session.commands())
        assert not talking.session.closing, "nobody knows whether a peer that is not read is silent"
    else:
        raise AssertionError("a peer that is not read is looked at again and again in one instant")
    read = True
    assert _silent_until_closed(talking.session, talking.now) <= talking.now + dialect.silence_ms


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
