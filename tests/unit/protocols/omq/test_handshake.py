"""Who may come in: the version, Connect and credentials. Numbers: the decisions of docs/spec/omq.md."""

from dataclasses import replace

import pytest

from tests.unit.protocols.omq.world import (
    NOW,
    SECOND,
    VERSION_ONE,
    Refuser,
    World,
    context,
    start,
    subscribed,
    unsubscribed,
)
from vibemq.errors import (
    AuthFailed,
    ConnectionLimit,
    RateLimited,
    RemoteProtocolError,
    VibeMQError,
)
from vibemq.protocols.omq import OmqSession, OmqSettings
from vibemq.protocols.omq.frames import (
    ACCEPTED,
    REFUSED,
    error_frame,
)
from vibemq.protocols.session import Authenticate, Principal

# -- 2, 3: handshake ---------------------------------------------------------------------------------------------------


def test_version_one_is_answered_with_the_same_eight_bytes() -> None:
    assert start(VERSION_ONE).data_to_send() == VERSION_ONE == ACCEPTED


@pytest.mark.parametrize(
    "version", [b"\0" * 8, b"\0\0\0\0\0\0\0\2", b"\xff" * 8, b"(Connect", b"GET / HT", b"\x80" + b"\0" * 6 + b"\1"]
)
@pytest.mark.parametrize("more", [b"", b"(Connect 1 alice)(Subscribe orders From_current)"])
def test_other_versions_are_refused_with_minus_one_and_nothing_else(version: bytes, more: bytes) -> None:
    talk = start(version + more)
    assert list(talk.commands()) == []
    assert talk.closing
    talk.receive_data(b"(Connect 1 alice)")
    assert list(talk.commands()) == []
    talk.tick(NOW + 60_000)
    talk.shutdown("test")
    assert talk.data_to_send() == REFUSED == b"\xff" * 8


def test_what_follows_the_version_in_the_same_segment_is_read(world: World) -> None:
    client = world.connect(hello=VERSION_ONE + b"(Connect 1 alice)\n(Subscribe orders From_current)\n")
    assert client.frames() == [subscribed(1, "orders")]


def test_one_byte_per_segment_is_the_same(world: World) -> None:
    client = world.connect(hello=b"")
    for byte in VERSION_ONE + b"(Connect 1 alice)\n(Subscribe orders From_current)\n(Unsubscribe orders)\n":
        client.say(bytes((byte,)))
    assert client.frames() == [subscribed(1, "orders"), unsubscribed(1, "orders")]


@pytest.mark.parametrize("data", [b"", b"\0\0\0"])
def test_who_shows_no_version_in_time_is_closed_without_a_word(data: bytes) -> None:
    talk = start(data) if data else OmqSession(context(), OmqSettings())
    assert talk.next_deadline() == NOW + 5_000
    talk.tick(NOW + 4_999)
    assert not talk.closing
    talk.tick(NOW + 5_000)
    assert talk.closing
    assert talk.data_to_send() == b""
    assert talk.next_deadline() is None


def test_an_end_of_stream_within_the_version_is_no_error() -> None:
    talk = start(b"\0\0\0")
    talk.receive_data(b"")
    assert list(talk.commands()) == []
    assert talk.closing
    assert talk.data_to_send() == b""


def test_who_does_not_connect_in_time_is_told(world: World) -> None:
    client = world.connect(hello=VERSION_ONE)
    world.advance(5_000)
    assert client.error() == "not connected: no Connect within 5000 ms"
    assert client.gone


def test_a_connection_turned_away_is_told_why_and_not_that_its_version_is_unknown() -> None:
    talk = OmqSession(context(), OmqSettings())
    talk.refused(None, ConnectionLimit("try again later"))
    assert talk.closing
    assert talk.data_to_send() == ACCEPTED + error_frame("too many connections: try again later")
    talk.receive_data(VERSION_ONE + b"(Connect 1 alice)")
    assert list(talk.commands()) == []
    assert talk.data_to_send() == b""


# -- 4: Connect --------------------------------------------------------------------------------------------------------


def test_connect_has_no_answer_but_a_ping_at_once(world: World) -> None:
    client = world.connect()
    assert client.frames() == []
    world.advance(1)
    assert client.pings() == [SECOND]


@pytest.mark.parametrize(
    "first",
    [b"(Subscribe orders From_current)", b"(Ack 1)", b"(Unsubscribe a)", b"(Nonsense)", b"hello ", b"\xef\xbb\xbf("],
)
def test_anything_else_before_connect_ends_the_connection(world: World, first: bytes) -> None:
    client = world.connect(hello=VERSION_ONE + first + b"(Connect 1 alice)")
    assert client.error() == "not connected: Connect comes first"
    assert client.gone


@pytest.mark.parametrize(
    "first", [b"(Connect One alice:s3cret)", b"(Connect 1)", b"(Connect 1 (alice))", b"(connect alice:s3cret 1)"]
)
def test_a_connect_with_wrong_arguments_is_told_what_they_are(world: World, first: bytes) -> None:
    client = world.connect(hello=VERSION_ONE + first + b"(Connect 1 alice)")
    text = client.error()
    assert text == "malformed command: write (Connect 1 NAME): version 1, and one atom for the id"
    assert client.gone


def test_a_second_connect_is_an_error_and_the_connection_stays(world: World) -> None:
    client = world.connect()
    client.say(b"(Connect 1 alice)")
    assert client.error().startswith("already connected: ")
    client.say(b"(Subscribe orders From_current)")
    assert client.frames() == [subscribed(1, "orders")]


@pytest.mark.parametrize("version", [b"2", b"0", b"-1"])
def test_connect_repeats_the_version_of_the_handshake(world: World, version: bytes) -> None:
    client = world.connect(hello=VERSION_ONE + b"(Connect %b alice)" % version)
    assert client.error().startswith("version mismatch: ")
    assert client.gone


@pytest.mark.parametrize("name", [b'""', b'"\\255"', b"x" * 256])
def test_an_id_is_up_to_255_bytes_of_utf8(world: World, name: bytes) -> None:
    client = world.connect(hello=VERSION_ONE + b"(Connect 1 %b)" % name)
    assert client.error().startswith("invalid id: ")
    assert client.gone


def test_ids_of_any_script_and_of_the_greatest_length_are_taken(world: World) -> None:
    for name in (b'"\\195\\169"', b"x" * 255, b"a:b:c"):
        client = world.connect(hello=VERSION_ONE + b"(Connect 1 %b)(Subscribe orders From_current)" % name)
        assert client.frames() == [subscribed(1, "orders")]


@pytest.mark.parametrize(
    ("name", "shown"),
    [(b"alice", "alice"), (b"alice:s3cret", "alice"), (b'"a\\nb"', "a b"), (b'"\\195\\169"', "é"), (b":s3cret", "")],
)
def test_operators_see_who_it_is_without_the_secret(world: World, name: bytes, shown: str) -> None:
    client = world.connect(hello=VERSION_ONE)
    assert client.session.client_name == ""
    client.say(b"(Connect 1 %b)" % name)
    assert client.session.client_name == shown


# -- section 5: authentication ----------------------------------------------------------------------------------------


def log_in(name: bytes, refuser: Refuser) -> tuple[OmqSession, bytes]:
    talk = start(VERSION_ONE + b"(Connect 1 %b)(Subscribe orders From_current)" % name, authentication=True)
    while requests := [request for request in talk.commands() if isinstance(request, Authenticate)]:
        assert list(talk.commands()) == [], "nothing is read before the answer"
        for request in requests:
            refuser.answer(talk, request)
    return talk, talk.data_to_send()[8:]


@pytest.mark.parametrize(
    ("name", "users", "token", "principal"),
    [
        (b"alice:secret", {}, "secret", "token"),
        (b":secret", {}, "secret", "token"),
        (b"alice:secret", {"alice": "secret"}, None, "alice"),
        (b"alice:secret", {"alice": "secret"}, "other", "alice"),
        (b"alice:other", {"alice": "secret"}, "other", "token"),
        (b'"alice:s:e c"', {"alice": "s:e c"}, None, "alice"),
    ],
)
def test_the_id_carries_the_credentials(name: bytes, users: dict[str, str], token: str | None, principal: str) -> None:
    talk, _ = log_in(name, Refuser(users, token))
    assert talk.principal is not None
    assert talk.principal.name == principal


@pytest.mark.parametrize("name", [b"alice", b"alice:", b"alice:wrong", b":wrong", b"bob:secret"])
@pytest.mark.parametrize("token", [None, "shared"])
def test_wrong_credentials_end_the_connection(name: bytes, token: str | None) -> None:
    talk, sent = log_in(name, Refuser({"alice": "secret"}, token))
    assert talk.principal is None
    assert talk.closing
    assert sent[4:].startswith(b"\0authentication failed: ")
    assert b"wrong" not in sent
    assert sent.count(b"authentication failed") == 1


def test_credentials_are_tried_once() -> None:
    refuser = Refuser({"alice": "secret"}, "shared")
    log_in(b"alice:wrong", refuser)
    assert refuser.asked == 1


def test_commands_sent_ahead_wait_for_the_credentials() -> None:
    talk = start(VERSION_ONE + b"(Connect 1 a:b)(Subscribe orders From_curr", authentication=True)
    [request] = talk.commands()
    assert isinstance(request, Authenticate)
    talk.receive_data(b"ent)(Ack 5)(Uns")
    talk.receive_data(b"ubscribe orders)")
    assert list(talk.commands()) == []
    assert talk.next_deadline() is None, "the client has done its part"
    talk.authenticated(request.token, Principal("a"))
    assert [type(command).__name__ for command in talk.commands()] == ["Subscribe"]


def test_not_everything_is_kept_while_credentials_are_checked() -> None:
    talk = start(VERSION_ONE + b"(Connect 1 a:b)", authentication=True)
    assert len(talk.commands()) == 1
    with pytest.raises(RemoteProtocolError):  # noqa: PT012
        for _ in range(1000):
            talk.receive_data(b"(Ack 1)" * 1000)
            list(talk.commands())
    assert talk.closing


def test_without_authentication_any_id_will_do(world: World) -> None:
    client = world.connect(hello=VERSION_ONE + b"(Connect 1 alice:token)(Subscribe orders From_current)")
    assert client.frames() == [subscribed(1, "orders")]
    assert client.session.principal == Principal("anonymous", superuser=True)


def test_a_failed_login_hides_what_was_wrong() -> None:
    talk = start(VERSION_ONE + b"(Connect 1 alice:s3cret)", authentication=True)
    [request] = talk.commands()
    assert isinstance(request, Authenticate)
    talk.refused(request.token, AuthFailed("user name or password is wrong"))
    sent = talk.data_to_send()
    assert b"authentication failed" in sent
    assert b"s3cret" not in sent
    assert b"password" not in sent


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RateLimited("too many logins; try again"), "rate limited: too many logins; try again"),
        (AuthFailed("too many failed attempts; try again in 5 s", 5.0), "authentication failed: too many failed"),
        (VibeMQError("its log has the reason"), "server error: its log has the reason"),
    ],
)
def test_a_client_is_told_that_its_credentials_were_not_looked_at(error: VibeMQError, text: str) -> None:
    talk = start(VERSION_ONE + b"(Connect 1 alice:s3cret)", authentication=True)
    [request] = talk.commands()
    talk.refused(request.token, error)
    assert talk.data_to_send()[13:].decode().startswith(text)
    assert talk.closing


def test_a_client_is_told_why_its_certificate_does_not_count() -> None:
    talk = OmqSession(replace(context(authentication=True), certified=True), OmqSettings())
    talk.receive_data(VERSION_ONE + b"(Connect 1 alice)")
    [request] = talk.commands()
    talk.refused(request.token, AuthFailed("the certificate stands for several users"))
    assert talk.data_to_send()[13:] == b"authentication failed: the certificate stands for several users"


def test_a_name_with_an_empty_secret_is_not_logged_in_by_a_certificate() -> None:
    """As of `alice:$TOKEN` where the variable is not set."""
    talk = OmqSession(replace(context(authentication=True), certified=True), OmqSettings())
    talk.receive_data(VERSION_ONE + b"(Connect 1 alice:)")
    assert not talk.commands()
    assert talk.closing
    assert b"connect with the id NAME:TOKEN" in talk.data_to_send()
