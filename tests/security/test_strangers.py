"""S1, S4, S18: what peers get who have not logged in."""

import socket
from contextlib import ExitStack

import pytest

from tests.integration.access import connected
from tests.integration.conditions import resident_mib
from tests.integration.cursor_peer import Refusal
from tests.interop.omq import VERSION
from tests.security.target import Target, everything, heard
from vibemq.protocols.native.codec.compression import Compression, compress
from vibemq.protocols.native.codec.frames import HEADER
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body

pytestmark = pytest.mark.xdist_group("security")

STRANGERS = 400
FIRST_FRAME_MAX = 65_536
GROWTH_MIB_MAX = 64
BOMB = compress(bytes(64 << 20), Compression.BROTLI)
SAID_BY_THE_SERVER = {"CONNECT_ACK", "PONG", "PUBLISH_ACK", "SUBSCRIBE_ACK", "UNSUBSCRIBE_ACK", "DELIVER", "ERROR"}


def test_strangers_cost_little_memory(target: Target) -> None:
    before = resident_mib(target.pid)
    with ExitStack() as stack:
        strangers = [stack.enter_context(target.dial()) for _ in range(STRANGERS)]
        for number, peer in enumerate(strangers):
            # Half of them announce more than may be said before a login.
            peer.sendall(HEADER.pack(FIRST_FRAME_MAX if number % 2 else 0xFFFFFFFF, 0) + bytes(FIRST_FRAME_MAX // 2))
        with connected(target.port, "root") as root:
            assert root.admin("user.self")["user"] == "root", "who logs in gets in beside them"
        assert resident_mib(target.pid) - before < GROWTH_MIB_MAX
        for peer in strangers:
            everything(peer)  # until each is hung up on


@pytest.mark.parametrize(
    "data",
    [
        HEADER.pack(0xFFFFFFFF, 0),
        HEADER.pack(len(BOMB), Compression.BROTLI) + BOMB,
        HEADER.pack(FIRST_FRAME_MAX + 1, 0),
        HEADER.pack(8, 77) + bytes(8),
    ],
    ids=["4 GiB", "bomb", "too long", "unknown flag"],
)
def test_a_stranger_with_a_bomb_is_hung_up_on(target: Target, data: bytes) -> None:
    before = resident_mib(target.pid)
    with target.dial() as peer:
        peer.sendall(data)
        [error] = heard(peer)
    assert (error.type, error.error_code) == (CommandType.ERROR, "INVALID_MESSAGE")
    assert resident_mib(target.pid) - before < 16


def test_no_frame_is_carried_out_before_the_login(target: Target) -> None:
    with connected(target.port, "root") as root:
        queues, users = root.admin("queue.list"), root.admin("user.list")
        payload = b'{"username": "eve", "password": "x", "verb": "user.add", "arguments": {"user": "eve"}}'
        for kind in CommandType:
            if kind in (CommandType.CONNECT, CommandType.PING):
                continue
            answers = target.say(encode_body(kind, "x", "a.stranger", payload, headers={"subscriptionId": "s"}))
            assert {answer.type for answer in answers} <= {CommandType.ERROR}, kind
            codes = {answer.error_code for answer in answers}
            assert codes <= {"NOT_AUTHENTICATED", "INVALID_MESSAGE"}, (kind, codes)
            assert codes or kind.name in SAID_BY_THE_SERVER | {"SETTLE", "EXTEND_MANY", "FLOW"}, kind
        assert (root.admin("queue.list"), root.admin("user.list")) == (queues, users)


@pytest.mark.parametrize("word", [b"(Subscribe a.q From_current)", b"(Ack 1)", b"(Unsubscribe a.q)", b"(Nonsense)"])
def test_no_word_is_carried_out_before_connect(target: Target, word: bytes) -> None:
    assert b"Connect comes first" in target.say_omq(word + b"\n(Connect 1 root:pw)\n")


def test_a_second_login_that_fails_gives_nothing(target: Target) -> None:
    with connected(target.port, "publish") as peer:
        for credentials in ({"authUsername": "root", "authPassword": "wrong"}, {"authToken": "wrong"}, {}):
            peer.send(encode_body(CommandType.CONNECT, "again", headers=credentials))
            assert decode_body(peer.receive()).type == CommandType.ERROR
            assert peer.admin("user.self")["user"] == "publish"
            with pytest.raises(Refusal, match="NOT_AUTHORIZED"):
                peer.admin("user.list")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authUsername": "root"},
        {"authPassword": "pw"},
        {"authUsername": "anonymous", "authPassword": "anonymous"},
        {"authUsername": "token", "authPassword": "token"},
        {"authToken": "token"},
        {"authToken": "vmq_"},
        {"authUsername": "root", "authPassword": "\0pw"},
    ],
)
def test_no_protocol_lets_a_nameless_peer_in(target: Target, headers: dict[str, str]) -> None:
    assert target.refused_login(headers).startswith("AUTH_")
    name, secret = headers.get("authUsername", ""), headers.get("authPassword", "") or headers.get("authToken", "")
    said = f'(Connect 1 "{name}{":" if secret else ""}{secret}")'.replace("\0", "\\000").encode()
    with target.dial(target.omq_port, source=target.elsewhere()) as peer:
        peer.sendall(VERSION + said + b"\n(Subscribe a.q From_current)\n")
        peer.shutdown(socket.SHUT_WR)
        answer = everything(peer)
    assert b"(topic" not in answer
    assert b"known here" in answer or b"credentials" in answer or b"invalid id" in answer, answer
