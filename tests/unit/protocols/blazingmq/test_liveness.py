"""Clients that say nothing, and how much time they get."""

import pytest

from tests.interop.blazingmq.model_sdk import WRITE, ModelSdk
from tests.unit.protocols.blazingmq.session_room import SessionRoom
from vibemq.protocols.blazingmq import BlazingmqSession, BlazingmqSettings
from vibemq.protocols.blazingmq.codec.control import encode_authentication
from vibemq.protocols.blazingmq.codec.events import (
    HEARTBEAT_REQ,
    HEARTBEAT_RSP,
    ControlCodec,
)
from vibemq.protocols.blazingmq.codec.messages import (
    AuthenticationRequest,
    ClientLanguage,
)
from vibemq.protocols.session import Authenticate
from vibemq.testing.session_conformance import NOW, SOMEBODY, context


def test_the_time_to_negotiate_counts_from_the_answer_to_the_login() -> None:
    sdk, session = ModelSdk(), BlazingmqSession(context(), BlazingmqSettings())
    login = AuthenticationRequest(mechanism="anonymous")
    session.receive_data(encode_authentication(ControlCodec.BER, login))
    (check,) = session.commands()
    assert isinstance(check, Authenticate)
    late = NOW + 60_000
    session.tick(late)
    session.authenticated(check.token, SOMEBODY)
    session.commands()
    session.tick(late + 4_999)
    assert not session.closing
    session.receive_data(sdk.hello())
    session.commands()
    session.tick(late + 10_000)
    assert not session.closing


def test_a_silent_client_is_asked_for_a_sign_of_life(room: SessionRoom) -> None:
    for _ in range(10):
        room.now += 30_000
        room.take()
        assert room.sdk.replies.pop() == HEARTBEAT_RSP
        room.say(HEARTBEAT_RSP)
    assert room.sdk.got.heartbeats == 10
    for _ in range(4):
        assert not room.session.closing
        room.now += 30_000
        room.take()
    assert room.session.closing


def test_a_java_client_is_never_sent_a_heartbeat() -> None:
    room = SessionRoom(ModelSdk(codec=ControlCodec.JSON, language=ClientLanguage.E_JAVA))
    assert room.session.next_deadline() is None
    room.now += 10_000_000
    room.take()
    assert not room.session.closing
    room.session.receive_data(HEARTBEAT_REQ)
    room.session.commands()
    assert room.session.data_to_send() == HEARTBEAT_RSP


@pytest.mark.parametrize("language", [ClientLanguage.E_CPP, ClientLanguage.E_JAVA])
def test_a_large_message_that_does_not_come_on_ends_the_connection(language: ClientLanguage) -> None:
    room = SessionRoom(ModelSdk(codec=ControlCodec.JSON, language=language))
    room.open(WRITE)
    room.say(room.sdk.post(0, bytes(2 << 20))[:1_000])
    assert room.session.next_deadline() == room.now + 30_000, "also if nothing comes any more"
    for _ in range(3):
        room.now += 29_000
        room.say(bytes(65_536))
    assert not room.session.closing
    room.now += 29_999
    room.say(bytes(100))
    assert not room.session.closing
    assert room.session.next_deadline() == room.now + 1
    room.now += 1
    room.take()
    assert room.session.closing
    assert len(room.sdk.got.last_words) == 1


def test_a_client_that_keeps_posting_while_a_flush_is_under_way_is_not_silent(room: SessionRoom) -> None:
    room.open(WRITE)
    room.flushing = True
    room.say(room.sdk.post(0, b"first"))
    deadline = room.session.next_deadline()
    assert deadline is not None
    room.now = deadline - 1
    room.say(room.sdk.post(0, b"kept back"))
    later = room.session.next_deadline()
    assert later is not None
    assert later > deadline
