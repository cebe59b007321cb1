"""Events that are broken, unknown or out of place."""

import pytest

from tests.interop.blazingmq.model_sdk import ModelSdk
from tests.unit.protocols.blazingmq.session_room import SessionRoom
from vibemq.errors import RemoteProtocolError
from vibemq.model.commands import (
    Settle,
)
from vibemq.protocols.blazingmq import BlazingmqSession, BlazingmqSettings
from vibemq.protocols.blazingmq.codec.events import (
    EventType,
    event,
)
from vibemq.testing.session_conformance import context


def test_confirms_before_a_broken_one_count(room: SessionRoom) -> None:
    room.open()
    consumer = room.configure()
    room.deliver(consumer, 1, b"a")
    broken = event(EventType.CONFIRM, (b"\x15\0\0\0",), 4)
    room.session.receive_data(room.sdk.confirm(0, room.sdk.got.pushes[0].guid) + broken)
    (settle,) = room.session.commands()
    assert isinstance(settle, Settle)
    assert settle.runs == [(1, 1)]
    with pytest.raises(RemoteProtocolError):
        room.session.commands()


def test_another_identity_or_an_event_before_it_ends_the_connection() -> None:
    for first in (ModelSdk().post(0, b"x"), b"\0\0\0\x08\x49\x02\0\0"):
        session = BlazingmqSession(context(), BlazingmqSettings())
        session.receive_data(first)
        with pytest.raises(RemoteProtocolError):
            session.commands()
        assert session.closing


def test_events_that_are_unknown_are_ignored_up_to_a_number(room: SessionRoom) -> None:
    unknown = b"\0\0\0\x08\x49\x02\0\0"
    room.say(unknown * 1_000)
    assert not room.session.closing
    with pytest.raises(RemoteProtocolError):
        room.say(unknown)
