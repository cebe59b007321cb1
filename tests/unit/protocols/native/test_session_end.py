"""One connection: time, its end, and what comes in one piece."""

import pytest

from tests.unit.protocols.native.native_peer import ALL, ROOT, Peer, frame, plain
from vibemq.errors import AuthFailed, NotAuthorized, QueueFull
from vibemq.model import commands as c
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType as T
from vibemq.protocols.native.frame_parser import READ_UNITS
from vibemq.protocols.session import Authenticate, Goodbye, Request, SessionLimits
from vibemq.testing.session_conformance import NOW


def test_a_silent_peer_is_closed_and_one_that_pings_is_not() -> None:
    peer = plain()
    idle_ms = SessionLimits().idle_timeout_ms
    assert peer.session.next_deadline() is not None
    peer.session.tick(NOW)
    peer.hear(frame(T.PING, "p"))
    peer.session.tick(NOW + idle_ms)
    assert not peer.session.closing
    assert peer.session.next_deadline() == NOW + 2 * idle_ms
    peer.frames()
    peer.session.tick(NOW + 2 * idle_ms)
    assert peer.session.closing
    goodbye = peer.one()
    assert (goodbye.type, goodbye.headers) == (T.DISCONNECT, {"reason": "idle_timeout"})


def test_a_peer_that_is_not_read_is_not_silent() -> None:
    peer = plain()
    idle_ms = SessionLimits().idle_timeout_ms
    peer.session.tick(NOW)
    peer.is_read = False
    peer.session.tick(NOW + idle_ms)
    assert not peer.session.closing
    assert peer.session.next_deadline() == NOW + 2 * idle_ms
    peer.is_read = True
    peer.session.tick(NOW + 2 * idle_ms)
    assert peer.session.closing


def test_a_large_frame_that_is_not_read_has_not_stalled() -> None:
    most = 8 << 20
    peer = Peer(connect={"supported-extensions": ALL, "max-body-bytes": str(most)})
    wait_ms = SessionLimits().message_timeout_ms
    whole = encode_frame(
        extensions.publish_many("r", "q", Rows.of([pack_row("m", bytes(4 << 20))])), body_bytes_max=most
    )
    assert list(peer.hear(whole[:100_000])) == []
    peer.session.tick(NOW)
    peer.is_read = False
    peer.session.tick(NOW + wait_ms)
    assert not peer.session.closing
    peer.is_read = True
    peer.session.tick(NOW + 2 * wait_ms - 1)
    assert not peer.session.closing
    peer.session.tick(NOW + 2 * wait_ms)
    assert peer.session.closing


def test_the_handshake_deadline_does_not_count_our_own_check() -> None:
    peer = Peer(authentication=True)
    request = peer.ask(T.CONNECT, "c", headers={"authToken": "x"})
    peer.session.tick(NOW + 60_000)
    assert not peer.session.closing
    peer.session.refused(request.token, AuthFailed("no"))  # type: ignore[union-attr]
    peer.session.tick(NOW + 60_000)
    assert peer.session.closing


def test_disconnect_is_a_goodbye_and_nothing_after_it_counts() -> None:
    peer = plain()
    requests = peer.hear(frame(T.PUBLISH, "m", "q", b"1") + frame(T.DISCONNECT, "d") + frame(T.PUBLISH, "n", "q", b"1"))
    assert [type(request) for request in requests] == [c.Publish, Goodbye]
    assert list(peer.hear(frame(T.PING, "p"))) == []


def test_shutdown_says_why() -> None:
    peer = plain()
    peer.session.shutdown("server_shutdown")
    goodbye = peer.one()
    assert (goodbye.type, goodbye.headers) == (T.DISCONNECT, {"reason": "server_shutdown"})
    stranger = Peer()
    stranger.session.shutdown("server_shutdown")
    assert stranger.one().error_code == "SHUTTING_DOWN", "anything but an error would pass for a ConnectAck"


def test_a_connection_turned_away_is_told_before_it_speaks() -> None:
    peer = Peer()
    peer.session.refused(None, QueueFull("q", "x"))
    assert (peer.one().type, peer.session.closing) == (T.ERROR, True)
    known = plain()
    known.session.refused(None, NotAuthorized("no"))
    assert (known.frames(), known.session.closing) == ([], False)


def pieces_of(peer: Peer, data: bytes) -> list[list[Request]]:
    """What each `commands` returns for bytes that come together."""
    pieces = [list(peer.hear(data))]
    while peer.session.unread:
        pieces.append(list(peer.session.commands()))
    assert list(peer.session.commands()) == []
    return pieces


def test_frames_that_come_together_are_read_in_pieces() -> None:
    peer = Peer(connect={"supported-extensions": ALL})
    names = [f"q{number:04}" for number in range(1_000)]
    pieces = pieces_of(peer, b"".join(frame(T.DELETE_QUEUE, "d", name) for name in names))
    assert max(map(len, pieces)) == READ_UNITS
    assert [request.queue for piece in pieces for request in piece] == names  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [T.ADMIN, T.CREATE_QUEUE, T.CURSOR_REQUEST, T.SUBSCRIBE])
def test_requests_that_are_more_work_are_read_in_smaller_pieces(kind: T) -> None:
    peer = Peer(connect={"supported-extensions": f"{ALL},cursor/1"})
    by_name = kind in (T.ADMIN, T.CURSOR_REQUEST)
    payload = b'{"verb": "queue.create", "arguments": {"queue": "q"}}' if by_name else b"{}"
    pieces = pieces_of(peer, b"".join(frame(kind, f"c{number}", "q", payload) for number in range(300)))
    assert sum(map(len, pieces)) == 300
    assert max(map(len, pieces)) * 5 <= READ_UNITS


def test_frames_that_ask_for_nothing_are_read_in_pieces_too() -> None:
    peer = Peer(connect={"supported-extensions": ALL})
    pieces = pieces_of(peer, frame(T.PING, "p") * 1_000)
    assert len(pieces) > 1_000 // READ_UNITS
    assert len(peer.frames()) == 1_000


def test_plain_publishes_and_acks_that_come_together_are_read_in_pieces() -> None:
    peer = Peer(connect={})
    publishes = [frame(T.PUBLISH, f"m{number:04}", "orders", b'"x"') for number in range(5_000)]
    pieces = pieces_of(peer, b"".join(publishes))
    assert len(pieces) > 5
    assert [row for piece in pieces for asked in piece for row in asked.rows] == [  # type: ignore[union-attr]
        pack_row(f"m{number:04}", b'"x"') for number in range(5_000)
    ]
    assert len(pieces_of(peer, frame(T.ACK, "m0001") * 5_000)) > 3


def test_the_end_of_the_stream_comes_behind_all_that_was_said() -> None:
    peer = Peer(connect={"supported-extensions": ALL})
    peer.session.receive_data(frame(T.DELETE_QUEUE, "d", "orders") * 200)
    peer.session.receive_data(b"")
    assert len(peer.session.commands()) == READ_UNITS
    assert peer.session.unread
    assert not peer.session.closing
    assert len(peer.session.commands()) == 200 - READ_UNITS
    assert peer.session.closing


def test_who_has_said_what_is_not_read_yet_is_not_silent() -> None:
    peer = Peer(connect={"supported-extensions": ALL})
    peer.hear(frame(T.DELETE_QUEUE, "d", "orders") * 200)
    assert peer.session.unread
    for minutes in range(1, 60):
        peer.session.tick(NOW + minutes * 600_000)
    assert not peer.session.closing
    peer.session.commands()
    peer.session.tick(NOW + 60 * 600_000)
    assert peer.session.closing


def test_nothing_is_unread_behind_a_connect_that_is_not_answered() -> None:
    peer = Peer()
    peer.session.receive_data(frame(T.PING, "p") * (READ_UNITS - 1) + frame(T.CONNECT, "c") + frame(T.PING, "p"))
    [request] = peer.session.commands()
    assert isinstance(request, Authenticate)
    assert not peer.session.unread
    peer.session.authenticated(request.token, ROOT)
    assert peer.session.unread, "thousands of Connects would be answered in one turn"
    assert not peer.session.commands()
    assert not peer.session.unread
