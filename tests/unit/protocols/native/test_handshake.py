"""Connect, credentials, compression and extensions: what comes before the first command."""

import pytest

from tests.unit.protocols.native.native_peer import ALL, ROOT, Peer, admin, bulk, frame, plain
from vibemq.errors import AuthFailed, RemoteProtocolError
from vibemq.model import commands as c
from vibemq.protocols.native import NativeSession, NativeSettings
from vibemq.protocols.native.codec.compression import Compression
from vibemq.protocols.native.codec.frames import NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.json_check import JsonCheck
from vibemq.protocols.native.codec.wire import CommandType as T
from vibemq.protocols.native.codec.wire import encode_body
from vibemq.protocols.session import Authenticate, Principal, SessionLimits
from vibemq.testing.session_conformance import NOW, context


def test_connect_without_authentication() -> None:
    peer = plain()
    assert (peer.ack.type, peer.ack.id) == (T.CONNECT_ACK, "hello")
    assert peer.ack.headers == {"connectionId": "c" * 32, "serverVersion": "9.9.9"}
    assert peer.session.principal is ROOT


def test_credentials_are_passed_on_in_both_forms() -> None:
    for headers, expected in (
        ({"authUsername": "alice", "authPassword": "secret"}, ("alice", "secret", "")),
        ({"authToken": "my-token"}, ("", "", "my-token")),
    ):
        request = Peer(authentication=True).ask(T.CONNECT, "c", headers=headers)
        assert isinstance(request, Authenticate)
        assert (request.username, request.password, request.auth_token) == expected


@pytest.mark.parametrize(
    "headers", [{}, {"authUsername": "alice"}, {"authPassword": "x"}, {"authusername": "a", "authpassword": "b"}]
)
def test_missing_credentials_are_asked_for(headers) -> None:
    peer = Peer(authentication=True)
    assert list(peer.hear(frame(T.CONNECT, "c", headers=headers))) == []
    assert (peer.one().error_code, peer.session.closing) == ("AUTH_REQUIRED", False)


def test_a_refused_peer_may_try_again_but_not_for_ever() -> None:
    peer = Peer(authentication=True, auth_attempts_max=3)
    for attempt in range(3):
        assert not peer.session.closing
        request = peer.ask(T.CONNECT, f"c{attempt}", headers={"authToken": "x"})
        peer.session.refused(request.token, AuthFailed("wrong"))  # type: ignore[union-attr]
        message = peer.one()
        assert (message.id, message.error_code, message.error_message) == (f"c{attempt}", "AUTH_FAILED", "wrong")
    assert peer.session.closing


@pytest.mark.parametrize("headers", [{"authToken": "x"}, {"authToken": "x", "long": "x" * 20_000}, {}])
def test_no_second_refusal_follows_when_the_deadline_has_passed_meanwhile(headers: dict[str, str]) -> None:
    limits = SessionLimits(handshake_bytes_max=100_000)
    peer = Peer(authentication=True)
    peer.session = NativeSession(context(authentication=True, limits=limits), NativeSettings())
    for request in peer.hear(frame(T.CONNECT, "c", headers=headers)):
        peer.session.refused(request.token, AuthFailed("wrong"))  # type: ignore[union-attr]
    peer.session.receive_data(b"")
    peer.session.tick(NOW + limits.handshake_timeout_ms)
    assert not peer.session.commands()
    assert (peer.one().id, peer.session.closing) == ("c", True)


def test_nothing_is_read_while_credentials_are_checked() -> None:
    peer = Peer(authentication=True)
    request = peer.ask(T.CONNECT, "c", headers={"authToken": "x"})
    assert list(peer.hear(frame(T.PUBLISH, "m", "q", b"1"))) == []
    peer.session.authenticated(request.token, ROOT)  # type: ignore[union-attr]
    [publish] = peer.session.commands()
    assert isinstance(publish, c.Publish)


def test_a_stranger_cannot_fill_memory_while_its_credentials_are_checked() -> None:
    peer = Peer(authentication=True)
    request = peer.ask(T.CONNECT, "c", headers={"authToken": "x"})
    peer.hear(bytes(900))
    with pytest.raises(RemoteProtocolError, match="wait for ConnectAck"):
        peer.hear(bytes(200))
    assert peer.session.closing
    peer.session.authenticated(request.token, ROOT)  # type: ignore[union-attr]
    with pytest.raises(RemoteProtocolError):
        peer.session.commands()


def test_before_connect_only_ping_is_answered() -> None:
    peer = Peer()
    peer.hear(frame(T.PING, "p") + frame(T.PUBLISH, "m", "q", b"1") + frame(T.DISCONNECT, "d") + frame(T.ACK, "a"))
    pong, *errors = peer.frames()
    assert (pong.type, pong.id) == (T.PONG, "p")
    assert [(error.id, error.error_code) for error in errors] == [
        (message_id, "NOT_AUTHENTICATED") for message_id in ("m", "d", "a")
    ]
    assert not peer.session.closing


@pytest.mark.parametrize("kind", [T.PING, T.PUBLISH, T.CREATE_QUEUE])
def test_before_connect_no_long_payload_is_read(kind: T, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_check: JsonCheck, payload: bytes) -> bool:
        raise AssertionError(f"{len(payload)} bytes of a stranger were read")

    monkeypatch.setattr(JsonCheck, "is_json", read)
    peer = stranger()
    with pytest.raises(RemoteProtocolError, match="more than 1,024 values"):
        peer.hear(frame(kind, "p", "q", b"[" + b"[]," * 10_000 + b"[]]"))


def test_before_connect_a_payload_is_short_json() -> None:
    assert isinstance(stranger().ask(T.CONNECT, "c", payload=b'{"a":[1,2]}'), Authenticate)
    for payload in (b"[" + b"[]," * 2_000 + b"[]]", b"{x}"):
        peer = stranger()
        with pytest.raises(RemoteProtocolError, match="payload"):
            peer.hear(frame(T.CONNECT, "c", payload=payload))


def stranger() -> Peer:
    """May send frames as large as by default."""
    peer = Peer()
    peer.session = NativeSession(context(), NativeSettings())
    return peer


def test_before_connect_frames_are_small_and_plain() -> None:
    for data in (
        frame(T.PING, "x" * 1_001),
        encode_frame(encode_body(T.CONNECT, "c", headers={"authToken": "x" * 900}), Compression.GZIP, 0),
    ):
        peer = Peer()
        with pytest.raises(RemoteProtocolError):
            peer.hear(data)
        assert peer.session.closing
        assert peer.one().error_code == "INVALID_MESSAGE"


def test_compression_is_agreed_by_the_clients_order_and_starts_after_the_answer() -> None:
    peer = Peer(connect={"supported-compression": "zstd, GZIP, brotli"}, compression_threshold=0)
    assert peer.ack.headers["negotiated-compression"] == "gzip"
    peer.hear(frame(T.PING, "p" * 500))
    assert peer.session.data_to_send()[4] == Compression.GZIP
    only_gzip = Peer(connect={"supported-compression": "brotli"}, compressions=("gzip",))
    assert "negotiated-compression" not in only_gzip.ack.headers


@pytest.mark.parametrize(("extensions", "answer"), [("admin/1", T.ADMIN), ("admin/1,batch/1", T.ERROR)])
def test_an_answer_that_fits_only_while_it_is_compressed_is_for_peers_that_inflate_it(
    extensions: str, answer: T
) -> None:
    peer = Peer(connect={"supported-compression": "gzip", "supported-extensions": extensions})
    peer.reader = NativeFrameReader(body_bytes_max=2 << 20)
    told = peer.answer(peer.hear(admin("queue.list"))[0], ["q" * 1_048_576])
    assert told.type == answer


def test_compressed_frames_are_read_whatever_was_agreed() -> None:
    peer = plain()
    for how in (Compression.GZIP, Compression.BROTLI):
        body = encode_body(T.PUBLISH, "m" * 50, "q", b'"' + b"x" * 2_000 + b'"')
        [publish] = peer.hear(encode_frame(body, how))
        assert isinstance(publish, c.Publish)


def test_extensions_are_granted_by_name() -> None:
    assert bulk("batch/1, nonsense/9,settle/1").ack.headers["negotiated-extensions"] == "settle/1,batch/1"
    assert "negotiated-extensions" not in bulk("future/2").ack.headers


def test_a_failed_second_connect_leaves_the_session_as_it_was() -> None:
    peer = plain()
    request = peer.ask(T.CONNECT, "again", headers={"authToken": "x"})
    peer.session.refused(request.token, AuthFailed("wrong"))  # type: ignore[union-attr]
    assert (peer.one().error_code, peer.session.principal) == ("AUTH_FAILED", ROOT)
    request = peer.ask(T.CONNECT, "third", headers={"supported-extensions": ALL})
    peer.session.authenticated(request.token, Principal("other"))  # type: ignore[union-attr]
    assert "negotiated-extensions" not in peer.one().headers, "extensions are agreed once"
    assert peer.session.principal == Principal("other")


@pytest.mark.parametrize("is_right", [True, False])
def test_little_is_kept_of_a_peer_that_logs_in_anew(is_right: bool) -> None:
    """However long the check takes: it is not read meanwhile."""
    peer = Peer(authentication=True)
    for request in peer.hear(frame(T.CONNECT, "c", headers={"authToken": "x"})):
        peer.session.authenticated(request.token, ROOT)  # type: ignore[union-attr]
    request = peer.ask(T.CONNECT, "again", headers={"authToken": "x"})
    publish = frame(T.PUBLISH, "m", "q", b"1")
    few, rest = divmod(1_000, len(publish))
    peer.hear(publish * few)
    assert not peer.session.reads_nothing_more
    peer.hear(publish * (rest + 1))
    assert peer.session.reads_nothing_more
    if is_right:
        peer.session.authenticated(request.token, ROOT)  # type: ignore[union-attr]
    else:
        peer.session.refused(request.token, AuthFailed("wrong"))  # type: ignore[union-attr]
    assert not peer.session.reads_nothing_more
    [asked] = peer.session.commands()
    assert isinstance(asked, c.Publish)
    assert asked.rows.count == few + rest + 1
