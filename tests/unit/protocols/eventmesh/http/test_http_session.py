"""One HTTP session of EventMesh without a server."""

import binascii
import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote_plus

import orjson
import pytest

from bench.guard.counting import instructions
from vibemq.errors import AuthFailed
from vibemq.model.commands import CreateQueue, Publish
from vibemq.model.effects import Published, Reply
from vibemq.protocols.eventmesh.http import EventMeshHttpSession, EventMeshHttpSettings
from vibemq.protocols.eventmesh.http.session import PIPELINED_BYTES_MAX
from vibemq.protocols.eventmesh.messages.json_scan import Steps
from vibemq.protocols.eventmesh.messages.large_json import LARGE_JSON_BYTES
from vibemq.protocols.session import Authenticate, Principal
from vibemq.testing.session_conformance import NOW, context

CHUNKED = b"transfer-encoding: chunked\r\n\r\n%x\r\ncontent=%s\r\n0\r\n\r\n"


def test_a_session_that_is_gone_frees_its_memory_at_once() -> None:
    session = EventMeshHttpSession.alone(context(), EventMeshHttpSettings())
    session.receive_data(b"GET /?code=104&topic=t&content=x HTTP/1.1\r\n\r\n")
    [login] = session.commands()
    assert isinstance(login, Authenticate)
    session.authenticated(login.token, Principal("anonymous", superuser=True))
    [publish] = session.commands()
    assert isinstance(publish, Publish)
    gone = weakref.ref(session)
    gc.disable()
    try:
        del session
        assert gone() is None
        publish.token(None)
    finally:
        gc.enable()


PUBLISH = b"GET /?code=104&topic=t&content=x HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("behind", [b"", PUBLISH[:9], PUBLISH])
def test_a_session_is_looked_at_after_an_answer_only_if_something_has_come_behind_its_request(behind: bytes) -> None:
    woken = list[None]()
    session = EventMeshHttpSession.alone(
        replace(context(), wake=lambda: woken.append(None)), EventMeshHttpSettings(keep_alive_ms=5_000)
    )
    session.receive_data(PUBLISH)
    [login] = session.commands()
    assert isinstance(login, Authenticate)
    session.authenticated(login.token, Principal("anonymous", superuser=True))
    [publish] = session.commands()
    assert isinstance(publish, Publish)
    if behind:
        session.receive_data(behind)
    assert not session.commands()
    session.apply([Reply(1, publish.token, Published("t", 1, 1))])
    assert session.data_to_send().startswith(b"HTTP/1.1 200 ")
    assert len(woken) == bool(behind)
    session.tick(NOW + 5_000)
    assert session.closing is not bool(behind)
    assert len(session.commands()) == (behind == PUBLISH)


def test_nothing_more_is_read_while_much_stands_behind_a_request_that_waits() -> None:
    """And who has sent only a part of the next one has its whole time for the rest, from the answer on."""
    session = EventMeshHttpSession.alone(context(), EventMeshHttpSettings(request_timeout_ms=5_000))
    session.receive_data(PUBLISH)
    [login] = session.commands()
    assert isinstance(login, Authenticate)
    session.authenticated(login.token, Principal("anonymous", superuser=True))
    [publish] = session.commands()
    assert isinstance(publish, Publish)
    part = b"POST /?code=104&topic=t HTTP/1.1\r\ncontent-length: 1000000\r\n\r\ncontent="
    session.receive_data(part.ljust(PIPELINED_BYTES_MAX, b"x"))
    assert not session.commands()
    assert not session.reads_nothing_more
    session.receive_data(b"x")
    assert not session.commands()
    assert (session.reads_nothing_more, session.unread, session.next_deadline()) == (True, False, None)
    session.tick(NOW + 60_000)
    session.apply([Reply(1, publish.token, Published("t", 1, 1))])
    assert not session.reads_nothing_more
    session.tick(NOW + 60_000)
    while session.commands() or session.unread:
        """It takes what there is of the body."""
    assert (session.closing, session.next_deadline()) == (False, NOW + 65_000)


def login_of(header_lines: str) -> Authenticate:
    session = session_of_a_stranger()
    session.receive_data(f"GET /?code=104&topic=t&content=x HTTP/1.1\r\n{header_lines}\r\n\r\n".encode())
    [login] = session.commands()
    assert isinstance(login, Authenticate)
    return login


@pytest.mark.parametrize(
    "given",
    ["Basic Content-Length\xf8: 19", "Basic YQ", "Basic /w==", "Basic", "Basic Og==", "Basic YW5uOg==", "Bearer ", ""],
)
def test_credentials_that_say_nothing_are_a_wrong_token(given: str) -> None:
    """Whoever has a certificate that would log in without any is not logged in by it."""
    login = login_of(f"authorization: {given}\r\nusername: ann")
    assert (login.username, login.password) == ("", "")
    assert login.auth_token.startswith("Authorization:")


def test_credentials_of_an_unknown_kind_are_a_wrong_token_unless_there_are_others() -> None:
    for header in ("username: ann", "env: test"):
        login = login_of(f"authorization: Digest a=b\r\n{header}")
        assert (login.username, login.password, login.auth_token) == ("", "", "Authorization: Digest a=b")
    login = login_of("authorization: Digest a=b\r\nusername: ann\r\npasswd: right")
    assert (login.username, login.password, login.auth_token) == ("ann", "right", "")


def test_a_name_alone_is_compared_with_the_certificate() -> None:
    login = login_of("username: ann")
    assert (login.username, login.password, login.auth_token) == ("ann", "", "")


@pytest.mark.parametrize("code", ["9" * 5_000, "0", "x"])
@pytest.mark.parametrize("head", ["GET /?topic=t HTTP/1.1\r\ncode: {}", "GET /?topic=t&code={} HTTP/1.1"])
def test_a_code_that_is_none_is_refused_however_long_it_is(head: str, code: str) -> None:
    session = EventMeshHttpSession.alone(context(), EventMeshHttpSettings())
    session.receive_data((head.format(code) + "\r\n\r\n").encode())
    [login] = session.commands()
    assert isinstance(login, Authenticate)
    session.authenticated(login.token, Principal("ann"))
    assert not session.commands()
    answer = session.data_to_send()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"requestCode" in answer
    assert not session.closing


def test_a_topic_that_is_asked_for_is_made_by_its_own_request() -> None:
    """So a refusal for want of a right is in the audit log."""
    session = EventMeshHttpSession.alone(context(), EventMeshHttpSettings())
    session.receive_data(b"GET /eventmesh/topic/create?topic=t HTTP/1.1\r\n\r\n")
    [login] = session.commands()
    assert isinstance(login, Authenticate)
    session.authenticated(login.token, Principal("ann"))
    [create] = session.commands()
    assert isinstance(create, CreateQueue)
    assert (create.queue, create.implied) == ("t", False)


LARGE = b"x" * 1_000_000
HEAD = (
    b"POST /?code=104&topic=t HTTP/1.1\r\nusername: ann\r\npasswd: secret\r\n"
    b"content-type: application/x-www-form-urlencoded\r\n"
)


def session_of_a_stranger() -> EventMeshHttpSession:
    return EventMeshHttpSession.alone(replace(context(), authentication=True), EventMeshHttpSettings())


@pytest.mark.parametrize(
    "body", [b"content-length: %d\r\n\r\ncontent=%s" % (len(LARGE) + 8, LARGE), CHUNKED % (len(LARGE) + 8, LARGE)]
)
def test_a_large_body_is_read_once_its_login_is_checked(body: bytes) -> None:
    session = session_of_a_stranger()
    session.receive_data(HEAD + body[:1_000])
    [login] = session.commands()
    assert isinstance(login, Authenticate)
    assert (session.reads_nothing_more, session.unread) == (True, False), "nothing more is read"
    assert session.commands() == []
    session.authenticated(login.token, Principal("ann", superuser=True))
    assert (session.reads_nothing_more, session.unread) == (False, False)
    session.receive_data(body[1_000:])
    found = list(session.commands())
    while session.unread:
        found += session.commands()
    [publish] = found
    assert isinstance(publish, Publish)
    assert len(publish.rows[0]) > len(LARGE)


def test_who_is_refused_sends_no_large_body() -> None:
    session = session_of_a_stranger()
    session.receive_data(HEAD + b"expect: 100-continue\r\ncontent-length: 1000000\r\n\r\n")
    [login] = session.commands()
    assert isinstance(login, Authenticate)
    session.refused(login.token, AuthFailed("no"))
    answer = session.data_to_send()
    assert b'"retCode":20' in answer
    assert b"connection: close" in answer
    assert b"100 Continue" not in answer
    assert session.closing


def test_a_head_of_lines_that_end_with_lf_alone_is_answered() -> None:
    session = session_of_a_stranger()
    session.receive_data(b"GET / HTTP/1.1\nhost: x\n\n")
    assert session.commands() == []
    assert session.data_to_send().startswith(b"HTTP/1.1 400 ")
    assert session.closing


def test_a_batch_is_read_and_its_topics_are_published_in_turns() -> None:
    session = EventMeshHttpSession.alone(context(), EventMeshHttpSettings())
    contents = orjson.dumps([{"topic": f"t{number % 100}", "msg": "x"} for number in range(3_000)])
    body = b"contents=" + quote_plus(contents).encode()
    head = b"POST /?code=102 HTTP/1.1\r\ncontent-type: application/x-www-form-urlencoded\r\n"
    session.receive_data(head + b"content-length: %d\r\n\r\n%s" % (len(body), body))
    found = list(session.commands())
    while session.unread:
        found += session.commands()
    [login] = found
    assert isinstance(login, Authenticate)
    session.authenticated(login.token, Principal("anonymous", superuser=True))
    turns, begun, published = 0, 0, 0
    commands = list(session.commands())
    while session.unread or commands:
        turns += 1
        assert len(commands) <= 32, "few topics at a time"
        begun += len(commands)
        published += sum(command.rows.count for command in commands if isinstance(command, Publish))
        session.apply([Reply(1, command.token, None) for command in commands if isinstance(command, Publish)])
        commands = list(session.commands())
    assert (begun, published) == (100, 3_000)
    assert turns > 3_000 // 40
    assert b'"retCode":0' in session.data_to_send()


def test_a_large_event_is_taken_apart_in_turns() -> None:
    session = EventMeshHttpSession.alone(context(), EventMeshHttpSettings())
    event = {"specversion": "1.0", "id": "e1", "source": "/", "type": "t", "data": [[]] * 100_000}
    for body, wanted in ((orjson.dumps(event), 1), (orjson.dumps(event)[:-1], 0)):
        head = b"POST /eventmesh/publish/orders HTTP/1.1\r\ncontent-type: application/cloudevents+json\r\n"
        session.receive_data(head + b"content-length: %d\r\n\r\n%s" % (len(body), body))
        turns, found = 0, list(session.commands())
        if isinstance(found[-1] if found else None, Authenticate):
            session.authenticated(found.pop().token, Principal("anonymous", superuser=True))
            found += session.commands()
        while session.unread:
            turns += 1
            found += session.commands()
        assert turns > 20
        assert [command.queue for command in found if isinstance(command, Publish)] == ["orders"] * wanted
        for command in found:
            assert isinstance(command, Publish)
            assert b"[[],[]," in command.rows[0]
            session.apply([Reply(command.session, command.token, Published("orders", 1, 1))])
        answer = session.data_to_send()
        assert (b'"retCode":0' in answer) == bool(wanted)


def test_requests_that_are_answered_at_once_leave_turns_to_others() -> None:
    """As a queue that keeps nothing answers: the driver asks again and again, until `unread` says that others wait."""
    session = EventMeshHttpSession.alone(context(), EventMeshHttpSettings())
    session.receive_data(b"GET /?code=104&topic=t&content=x HTTP/1.1\r\n\r\n" * 100)
    turns, published = 0, 0
    while published < 100:
        turns += 1
        session.tick(turns)
        while requests := session.commands():
            for request in requests:
                if isinstance(request, Authenticate):
                    session.authenticated(request.token, Principal("anonymous", superuser=True))
                elif isinstance(request, Publish):
                    published += 1
                    session.apply([Reply(request.session, request.token, Published("t", 1, 1))])
            if session.unread:
                break
    assert 10 < turns < 30
    assert session.data_to_send().count(b'"retCode":0') == 100


def junk(unit: bytes, size: int = 1_000_000) -> bytes:
    return b"[" + (unit + b",") * (size // (len(unit) + 1)) + b"1]"


def list_of(item: bytes, size: int = 1_000_000) -> bytes:
    return b"[" + b",".join([item] * (size // (len(item) + 1))) + b"]"


def event(data: bytes) -> bytes:
    return b'{"specversion":"1.0","id":"1","source":"/","type":"t","subject":"t","data":%b}' % data


def members(value: bytes) -> bytes:
    """Fewer than a form may have."""
    return b",".join(b'"%d":%b' % (number, value) for number in range(60))


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * depth + b"]" * depth + b"}"


EVENTS = b"application/cloudevents-batch+json"
HEARTBEATS = b"/?code=203&clientType=SUB&consumerGroup=g"

BODIES = {
    "a posted object": (b"/eventmesh/publish/t", b"application/json", b'{"a":' + junk(b"[]") + b"}", b'"retCode":0'),
    "a posted list": (b"/eventmesh/publish/t", b"application/json", junk(b"[]"), b"must be a JSON object"),
    "a posted lie": (b"/eventmesh/publish/t", b"application/json", b'{"a":' + junk(b"{}"), b"the value has no end"),
    "a field": (b"/?code=104", b"application/json", b'{"topic":"t","content":%b}' % junk(b"1"), b'"retCode":0'),
    "escapes": (b"/?code=104&topic=t", b"", b"content=" + b"%41" * 500_000, b'"retCode":0'),
    "broken escapes": (b"/?code=104&topic=t", b"", b"content=" + b"%zz" * 300_000, b'"retCode":0'),
    "an event": (
        b"/?code=104",
        b"",
        b'content={"specversion":"1.0","id":"1","source":"/","type":"t","subject":"t","data":%b}' % junk(b"[]"),
        b'"retCode":0',
    ),
    "a batch": (b"/?code=102", b"", b"contents=" + junk(b'{"topic":"t","msg":"x"}'), b"a JSON list of 1 to 10,000"),
    "a batch of texts": (b"/?code=102", b"", b'contents=[{"topic":"t","msg":%b}]' % junk(b'""'), b'"retCode":0'),
    "events": (
        b"/",
        b"application/cloudevents-batch+json",
        b'[{"specversion":"1.0","id":"1","source":"/","type":"t","subject":"t","data":%b}]' % junk(b"[]"),
        b'"retCode":0',
    ),
    "heartbeats": (b"/?code=203&clientType=SUB&consumerGroup=g", b"", b"heartbeatEntities=" + junk(b"[]"), b"a topic"),
    "topics": (b"/?code=206&url=http%3A//x&consumerGroup=g", b"", b"topic=" + junk(b"[]"), b"more JSON than is read"),
    "properties": (b"/?code=104&topic=t&content=c", b"", b"extFields=" + junk(b"[]"), b"more JSON than is read"),
    "posted, 1,000 levels": (b"/eventmesh/publish/t", b"application/json", nested(1_000), b'"retCode":0'),
    "posted, 3,000 levels": (b"/eventmesh/publish/t", b"application/json", nested(3_000), b"depth limit exceeded"),
    "posted, 100,000 levels": (b"/eventmesh/publish/t", b"application/json", nested(100_000), b'"retCode":0'),
    "events of numbers": (b"/", EVENTS, list_of(event(junk(b"1", 120_000))), b'"retCode":0'),
    "events of escapes": (b"/", EVENTS, list_of(event(b'"%b"' % (rb"\u00e9" * 20_000))), b'"retCode":0'),
    "posted events of numbers": (
        b"/eventmesh/publish/t",
        EVENTS,
        list_of(event(junk(b"1", 120_000)).replace(b'"subject":"t",', b"")),
        b'"retCode":0',
    ),
    "a batch of numbers": (
        b"/?code=102",
        b"",
        b"contents=" + list_of(b'{"topic":"t","msg":%b}' % junk(b"1", 120_000)),
        b'"retCode":0',
    ),
    "a batch in a text": (
        b"/?code=102",
        b"",
        b"contents=" + orjson.dumps('[{"topic":"t","msg":"%s"}]' % ("[]," * 6_000)),
        b'"retCode":0',
    ),
    "a batch in JSON": (
        b"/?code=102",
        b"application/json",
        b'{"contents":%b}' % list_of(b'{"topic":"t","msg":%b}' % junk(b"1", 16_000)),
        b'"retCode":0',
    ),
    "heartbeats of numbers": (
        HEARTBEATS,
        b"",
        b"heartbeatEntities=" + list_of(b'{"topic":"t","url":"u","x":%b}' % junk(b"1", 8_000)),
        b'"retCode":0',
    ),
    "small heartbeats": (
        HEARTBEATS,
        b"",
        b"heartbeatEntities=" + list_of(b'{"topic":"t","url":"u"}', 200_000),
        b'"retCode":0',
    ),
    "members": (
        b"/?code=104",
        b"application/json",
        b'{"topic":"t","content":"x",%b}' % members(junk(b"1", 16_000)),
        b'"retCode":0',
    ),
    "escaped members": (
        b"/?code=104",
        b"application/json",
        b'{"topic":"t","content":"x",%b}' % members(b'"%b"' % (rb"\u00e9" * 2_700)),
        b'"retCode":0',
    ),
    "fields": (
        b"/?code=104&topic=t",
        b"",
        b"content=x&" + b"&".join(b"%d=%b" % (number, b"%41" * 5_000) for number in range(60)),
        b'"retCode":0',
    ),
}


AT_ONCE = ("topics", "properties", "a posted list")
"""Large ones that are refused without being read."""


class BytesRead:
    """What is done in C, which the count of instructions does not show: bytes of JSON read and written, of escapes
    decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.items = 0
        for module, name, of_result in ((orjson, "loads", False), (orjson, "dumps", True), (binascii, "a2b_qp", False)):
            monkeypatch.setattr(module, name, self._counted(getattr(module, name), of_result))

    def _counted(self, work: Callable[..., Any], of_result: bool) -> Callable[..., Any]:
        def counted(value: Any, *more: Any) -> Any:
            result = work(value, *more)
            self.count += len(result if of_result else value)
            self.items += 1
            return result

        return counted


@pytest.mark.parametrize("what", BODIES)
def test_a_large_body_is_read_in_turns(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it holds: between them others are served."""
    path, kind, body, wanted = BODIES[what]
    session = EventMeshHttpSession(context(), EventMeshHttpSettings(), Nobody())
    head = b"POST %b HTTP/1.1\r\ncontent-type: %b\r\nprotocoltype: %b\r\ncontent-length: %d\r\n\r\n"
    form = b"cloudevents" if what == "an event" else b"eventmeshmessage"
    session.receive_data(head % (path, kind or b"application/x-www-form-urlencoded", form, len(body)) + body)
    turns, most, answer = 0, 0, b""
    read, most_bytes, most_items = BytesRead(monkeypatch), 0, 0

    def turn() -> None:
        for command in session.commands():
            if isinstance(command, Authenticate):
                session.authenticated(command.token, Principal("anonymous", superuser=True))
            elif isinstance(command, Publish):
                session.apply([Reply(command.session, command.token, Published("t", 1, 1))])

    while not answer:
        turns += 1
        read.count = read.items = 0
        most = max(most, sum(instructions(turn).values()) if turns < 25 else 0)
        if turns >= 25:
            turn()
        most_bytes, most_items = max(most_bytes, read.count), max(most_items, read.items)
        answer = session.data_to_send()
    assert wanted in answer
    assert turns > (3 if len(body) > LARGE_JSON_BYTES and what not in AT_ONCE else 1)
    assert most < 100_000
    assert most_bytes < 400_000
    assert most_items < 400


class Nobody:
    """Nobody is subscribed."""

    def subscribe(self, *_: Any) -> None: ...

    def unsubscribe(self, *_: Any) -> None: ...

    def heard(self, *_: Any) -> None: ...

    def topics_of(self, principal: Principal) -> Steps[list[str]]:
        yield from ()
        return []
