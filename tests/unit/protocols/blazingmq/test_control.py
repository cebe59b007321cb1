"""Openings of queues, and what they are refused for."""

import pytest

from tests.interop.blazingmq.model_sdk import READ, WRITE
from tests.unit.protocols.blazingmq.session_room import QUEUE, URI, SessionRoom
from vibemq.errors import Blocked, InvalidOptions, QueueNotFound
from vibemq.model.commands import (
    CreateQueue,
    Publish,
)
from vibemq.model.effects import Published
from vibemq.model.options import DeliveryMode
from vibemq.protocols.blazingmq import BlazingmqSettings
from vibemq.protocols.blazingmq.codec.acks import AckStatus
from vibemq.protocols.blazingmq.codec.messages import (
    OpenQueueResponse,
    RequestStatus,
    StatusCategory,
)
from vibemq.protocols.blazingmq.settings import Domain


def test_opening_makes_the_queue_with_the_groups_of_its_applications() -> None:
    room = SessionRoom(mode="fanout", app_ids=("foo", "bar"))
    room.say(room.sdk.open(URI, 0, flags=WRITE)[1])
    create = room.next(CreateQueue)
    assert (create.queue, tuple(create.groups)) == (QUEUE, ("foo", "bar"))
    probe = room.next(Publish)
    assert (probe.rows.count, probe.create) == (0, False)
    room.answer(create)
    assert not room.sdk.queues[0].open
    room.answer(probe, Published(QUEUE, 0, 0))
    assert room.sdk.queues[0].open


@pytest.mark.parametrize(
    ("mode", "flags", "read_by"),
    [
        ("priority", READ, DeliveryMode.ROUND_ROBIN),
        ("priority", READ | WRITE, DeliveryMode.ROUND_ROBIN),
        ("priority", WRITE, None),
        ("fanout", WRITE, DeliveryMode.FAN_OUT_WITH_ACK),
    ],
)
def test_a_queue_has_to_be_of_the_mode_that_it_is_read_by(mode: str, flags: int, read_by: DeliveryMode | None) -> None:
    room = SessionRoom(mode=mode, app_ids=("foo",) if mode == "fanout" else ())
    room.say(room.sdk.open(URI, 0, flags=flags)[1])
    assert room.next(CreateQueue).mode is read_by


def test_a_queue_that_cannot_be_made_is_not_open(room: SessionRoom) -> None:
    r_id, request = room.sdk.open(URI, 0)
    room.say(request)
    room.answer(room.next(CreateQueue), InvalidOptions("no"))
    room.answer(room.next(Publish), QueueNotFound(QUEUE))
    answer = room.sdk.got.responses[r_id]
    assert isinstance(answer, RequestStatus)
    assert answer.category is StatusCategory.E_INVALID_ARGUMENT
    room.say(room.sdk.post(0, b"dropped"))
    assert not room.asked


@pytest.mark.parametrize("q_id", [0x8000_0000, 0xFFFF_FFF5, 0xFFFF_FFFF])
def test_a_q_id_that_no_message_can_carry_is_refused(room: SessionRoom, q_id: int) -> None:
    r_id, request = room.sdk.open(URI, q_id)
    room.say(request)
    answer = room.sdk.got.responses[r_id]
    assert isinstance(answer, RequestStatus)
    assert answer.category is StatusCategory.E_INVALID_ARGUMENT


def test_an_application_is_read_once_in_a_queue() -> None:
    room = SessionRoom(mode="fanout", app_ids=("foo",))
    asked = [room.sdk.open(URI, 0, flags=READ, sub_id=sub_id, app_id="foo") for sub_id in (1, 2)]
    room.say(b"".join(request for _, request in asked))
    room.answer_all()
    second = room.sdk.got.responses[asked[1][0]]
    assert isinstance(second, RequestStatus)
    assert second.category is StatusCategory.E_INVALID_ARGUMENT


def test_a_connection_has_so_many_readers_and_writers() -> None:
    room = SessionRoom()
    room.session._state.settings = BlazingmqSettings(domains={"d": Domain()}, queues_max=3)
    asked = [room.sdk.open(f"{URI}{number}", number, flags=flags) for number, flags in enumerate((WRITE, 6, READ))]
    room.say(b"".join(request for _, request in asked))
    room.answer_all()
    assert [isinstance(room.sdk.got.responses[r_id], RequestStatus) for r_id, _ in asked] == [False, False, True]
    room.say(room.sdk.close(0, flags=WRITE)[1])
    room.answer_all()
    r_id, request = room.sdk.open(f"{URI}2", 2, flags=READ)
    room.say(request)
    room.answer_all()
    assert not isinstance(room.sdk.got.responses[r_id], RequestStatus)


def test_a_queue_is_opened_while_the_broker_takes_no_messages_whose_acks_say_so(room: SessionRoom) -> None:
    r_id, request = room.sdk.open(URI, 0, flags=WRITE)
    room.say(request)
    room.answer(room.next(CreateQueue))
    room.answer(room.next(Publish), Blocked("the disk is nearly full"))
    assert isinstance(room.sdk.got.responses[r_id], OpenQueueResponse)
    room.say(room.sdk.post(0, b"refused"))
    room.answer(room.next(Publish), Blocked("the disk is nearly full"))
    assert [status for _, status in room.sdk.got.acks] == [AckStatus.NOT_READY]
