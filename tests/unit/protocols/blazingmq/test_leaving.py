"""Closes and disconnects, and what comes before their answers."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.interop.blazingmq.model_sdk import READ, WRITE, ModelSdk
from tests.unit.protocols.blazingmq.session_room import QUEUE, URI, SessionRoom
from vibemq.errors import NotAuthorized, QueueFull, QueueNotFound
from vibemq.model.commands import (
    CreateQueue,
    Publish,
    Settle,
    Settlement,
    Subscribe,
    Unsubscribe,
)
from vibemq.model.effects import ConsumerEnded, Published, Reply
from vibemq.protocols.blazingmq.codec.events import HEARTBEAT_REQ
from vibemq.protocols.blazingmq.codec.messages import (
    RequestStatus,
)
from vibemq.protocols.blazingmq.codec.put import build_puts, put_message
from vibemq.protocols.blazingmq.leaving import RETURNED_AT_ONCE
from vibemq.protocols.blazingmq.session import MESSAGES_AT_ONCE
from vibemq.protocols.session import Goodbye, Request
from vibemq.testing.session_conformance import NOW, SESSION


def test_a_close_answers_the_configures_that_wait_first(room: SessionRoom) -> None:
    room.open()
    room.configure()
    asked = [room.sdk.configure(0), room.sdk.configure(0), room.sdk.close(0)]
    room.say(b"".join(request for _, request in asked))
    room.answer_all()
    responses = list(room.sdk.got.responses.items())[-3:]
    assert [r_id for r_id, _ in responses] == [r_id for r_id, _ in asked]
    assert [isinstance(answer, RequestStatus) for _, answer in responses] == [True, True, False]
    assert not room.session._state.queues


def test_closing_gives_back_what_is_held_before_it_is_answered(room: SessionRoom) -> None:
    room.open()
    consumer = room.configure()
    room.deliver(consumer, 1, b"a", b"b")
    r_id, request = room.sdk.close(0)
    room.say(request)
    unsubscribe = room.next(Unsubscribe)
    room.deliver(consumer, 3, b"on its way")
    assert room.pushed == [b"a", b"b"]
    assert room.next(Settle).runs == [(3, 3)]
    room.answer(unsubscribe)
    release = room.next(Settle)
    assert (release.verb, release.runs) == (Settlement.RELEASE, [(1, 2)])
    assert r_id not in room.sdk.got.responses
    room.answer(release)
    assert r_id in room.sdk.got.responses
    assert not room.session._state.consumers


@pytest.mark.parametrize("leave", [lambda sdk: sdk.close(0), lambda sdk: sdk.disconnect()])
def test_acks_come_before_the_last_answer(room: SessionRoom, leave: Callable[[ModelSdk], tuple[int, bytes]]) -> None:
    room.open()
    room.say(room.sdk.post(0, b"a", b"b"))
    publish = room.next(Publish)
    r_id, request = leave(room.sdk)
    room.say(request)
    room.answer_all()
    assert r_id not in room.sdk.got.responses
    room.answer(publish, Published(QUEUE, 1, 2, {1: QueueFull(QUEUE, "max_bytes 1", "bytes")}))
    assert [status for _, status in room.sdk.got.acks] == [0, 2]
    assert r_id in room.sdk.got.responses


@pytest.mark.parametrize("flags", [WRITE, READ | WRITE])
def test_a_close_behind_an_open_that_is_refused_leaves_nothing_counted(flags: int) -> None:
    """Each writer was counted off twice: for the domain's limits there were four billion of them."""
    room = SessionRoom(max_producers=1)
    opening, first = room.sdk.open(URI, 0, flags=flags)
    closing, close = room.sdk.close(0, flags=flags)
    room.say(first + close)
    room.answer(room.next(CreateQueue), NotAuthorized("may not create"))
    room.answer(room.next(Publish), NotAuthorized("may not publish"))
    room.answer_all()
    assert room.sdk.got.responses.keys() >= {opening, closing}
    state = room.session._state
    assert (state.handles, state.queues) == (0, {})
    assert state.use._all.open_queues == 0
    room.open(WRITE)
    assert state.handles == 1


def test_an_open_that_is_refused_while_its_client_leaves() -> None:
    room = SessionRoom()
    for number in range(2 * MESSAGES_AT_ONCE):
        room.say(room.sdk.open(f"bmq://d/q{number}", number, flags=READ)[1])
        room.answer_all()
    leaving, disconnect = room.sdk.disconnect()
    room.session.receive_data(room.sdk.open(URI, 9_999, flags=READ)[1] + disconnect)
    room.session.tick(NOW)
    room.asked += room.session.commands()
    room.answer(room.next(CreateQueue), QueueFull(QUEUE, "max_queues", "queues"))
    room.answer_all()
    assert leaving in room.sdk.got.responses


def test_an_open_behind_the_close_of_its_queue_waits_for_the_answer(room: SessionRoom) -> None:
    room.open()
    room.say(room.sdk.post(0, b"before"))
    put = room.next(Publish)
    closing, close = room.sdk.close(0)
    opening, again = room.sdk.open(URI, 0)
    behind = put_message(0, room.sdk.guid(), b"behind")
    room.sdk.unacked[behind.guid] = behind
    room.say(close + again + build_puts([behind]))
    room.answer_all()
    assert not room.sdk.got.responses.keys() & {closing, opening}
    assert not room.session.unread
    assert room.session.next_deadline() != NOW
    room.session.apply([Reply(SESSION, put.token, Published(QUEUE, 1, 1))])
    assert room.session.next_deadline() == NOW
    room.take()
    assert closing in room.sdk.got.responses
    assert opening not in room.sdk.got.responses
    assert isinstance(room.asked[0], CreateQueue)
    room.answer_all()
    assert opening in room.sdk.got.responses
    assert [status for _, status in room.sdk.got.acks] == [0, 0]
    room.configure()


def test_a_disconnect_does_not_overtake_a_close(room: SessionRoom) -> None:
    room.open()
    consumer = room.configure()
    room.deliver(consumer, 1, b"a")
    closing, request = room.sdk.close(0)
    room.say(request)
    leaving, request = room.sdk.disconnect()
    room.say(request)
    room.answer(room.next(Unsubscribe))
    release = room.next(Settle)
    room.answer(room.next(Unsubscribe))
    assert leaving not in room.sdk.got.responses
    room.answer(release)
    assert {closing, leaving} <= room.sdk.got.responses.keys()


def test_a_disconnect_is_clean_and_nothing_is_taken_behind_it(room: SessionRoom) -> None:
    room.open()
    room.say(room.sdk.disconnect()[1] + room.sdk.post(0, b"late", ack=False))
    room.answer(room.next(Unsubscribe))
    assert room.next(Goodbye)
    assert room.sdk.over
    assert not room.asked


def test_a_disconnect_ends_some_streams_in_each_turn() -> None:
    room = SessionRoom()
    for q_id in range(400):
        room.say(room.sdk.open(f"{URI}{q_id}", q_id, flags=READ)[1])
        room.answer_all()
    room.session.receive_data(room.sdk.disconnect()[1])
    asked = []
    while (requests := room.session.commands()) or room.session.unread:
        asked.append(len(requests))
        room.asked += requests
    assert sum(asked) == 400
    assert max(asked) <= 150
    room.answer_all()
    assert room.sdk.over


def test_a_client_that_is_lost_behind_its_disconnect_has_left(room: SessionRoom) -> None:
    """However many of its streams have not been ended."""
    room.open()
    room.configure()
    assert not room.session.has_left
    room.say(room.sdk.disconnect()[1])
    assert room.next(Unsubscribe), "which is not answered"
    assert room.session.has_left


def turn(room: SessionRoom) -> list[Request]:
    """All that a driver takes in one turn of the loop: until nothing is unread, or for as long as nothing comes."""
    asked: list[Request] = []
    while requests := room.session.commands():
        asked += requests
        if room.session.unread:
            break
    room.asked += asked
    return asked


def goes_on(room: SessionRoom) -> bool:
    return room.session.unread or room.session.next_deadline() == room.now


def runs_in(requests: Sequence[Request]) -> list[tuple[int, int]]:
    return [run for request in requests if isinstance(request, Settle) for run in request.runs]


@pytest.mark.parametrize("behind", [False, True], ids=["alone", "with an open behind it"])
def test_very_many_messages_are_given_back_in_turns_the_oldest_first(room: SessionRoom, behind: bool) -> None:
    room.open()
    consumer = room.configure()
    count = 3 * RETURNED_AT_ONCE + 5
    for first in range(1, count, RETURNED_AT_ONCE):
        room.deliver(consumer, first, *[b"x"] * min(RETURNED_AT_ONCE, count + 1 - first))
    r_id, request = room.sdk.close(0)
    again, opening = room.sdk.open(URI, 0)
    room.say(request + (opening if behind else b""))
    room.session.apply([Reply(SESSION, room.next(Unsubscribe).token, None)])
    assert room.session.next_deadline() == room.now
    returned = []
    while goes_on(room):
        runs = runs_in(turn(room))
        returned += runs
        assert sum(last + 1 - first for first, last in runs) <= 2 * RETURNED_AT_ONCE
        assert r_id not in room.sdk.got.responses
    ends = [last for _, last in returned]
    assert returned == list(zip([1, *(last + 1 for last in ends)], [*ends], strict=False))
    assert ends[-1] == count
    room.answer_all()
    assert r_id in room.sdk.got.responses
    assert (again in room.sdk.got.responses) is behind


def test_two_closes_of_very_many_messages_with_an_open_behind_them_are_all_answered() -> None:
    """The open waits for one close, while the messages of the other are given back, or only freed."""
    room, count = SessionRoom(), 3 * RETURNED_AT_ONCE
    for q_id, uri in enumerate([f"{URI}a", f"{URI}b"]):
        room.say(room.sdk.open(uri, q_id)[1])
        room.answer_all()
        room.say(room.sdk.configure(q_id)[1])
        (consumer,) = (request.consumer for request in room.asked if isinstance(request, Subscribe))
        room.answer_all()
        for first in range(1, count, RETURNED_AT_ONCE):
            room.deliver(consumer, first, *[b"x"] * RETURNED_AT_ONCE)
    asked = [room.sdk.close(0), room.sdk.close(1), room.sdk.open(f"{URI}b", 1)]
    room.session.receive_data(b"".join(request for _, request in asked))
    returned = 0
    turn(room)
    while room.asked or goes_on(room):
        if room.asked:
            request: Any = room.asked.pop(0)
            returned += sum(last + 1 - first for first, last in runs_in([request]))
            result = Published(request.queue, 1, 0) if isinstance(request, Publish) else None
            room.session.apply([Reply(SESSION, request.token, result)])
        if goes_on(room):
            turn(room)
    room.take()
    assert returned == 2 * count
    assert [r_id for r_id, _ in asked if r_id not in room.sdk.got.responses] == []


def test_an_open_that_was_read_at_the_end_of_a_turn_is_carried_out_behind_its_close(room: SessionRoom) -> None:
    room.open()
    closing, close = room.sdk.close(0)
    room.say(close)
    (end,) = room.asked
    assert isinstance(end, Unsubscribe | Settle)
    opening, again = room.sdk.open(URI, 0)
    # So many that the open is the last that is read in the turn.
    room.session.receive_data(HEARTBEAT_REQ * (8 * MESSAGES_AT_ONCE - 160) + again)
    turn(room)
    assert room.session._request is not None
    assert not goes_on(room)
    room.session.apply([Reply(SESSION, end.token, None)])
    assert room.session.next_deadline() == room.now
    room.take()
    room.answer_all()
    assert {closing, opening} <= room.sdk.got.responses.keys()


def test_closes_of_many_applications_keep_a_queue_open_until_the_last() -> None:
    room = SessionRoom(mode="fanout", app_ids=["a0", "a1", "a2"])
    for number in range(3):
        room.say(room.sdk.open(f"{URI}", 0, flags=READ, sub_id=number + 1, app_id=f"a{number}")[1])
        room.answer_all()
    (opened,) = room.session._state.queues.values()
    for number in range(3):
        assert not opened.closing
        assert opened.stream_of(f"a{number}") is not None
        room.say(room.sdk.close(0, flags=READ, sub_id=number + 1)[1])
        assert opened.closing is (number == 2)
        room.answer_all()
        assert opened.stream_of(f"a{number}") is None
    assert opened.closing_streams == 0
    assert not room.session._state.queues


def test_a_disconnect_with_the_end_behind_it_is_clean(room: SessionRoom) -> None:
    room.open()
    room.say(room.sdk.post(0, b"a") + room.sdk.disconnect()[1])
    publish = room.next(Publish)
    room.say(b"")
    assert not room.session.closing
    room.answer_all()
    room.answer(publish, Published(QUEUE, 1, 1))
    assert room.sdk.over
    assert room.next(Goodbye)


def test_what_is_closed_twice_counts_once(room: SessionRoom) -> None:
    room.open(WRITE)
    asked = [room.sdk.close(0, flags=WRITE), room.sdk.close(0, flags=WRITE)]
    room.say(b"".join(request for _, request in asked))
    room.answer_all()
    first, second = (room.sdk.got.responses[r_id] for r_id, _ in asked)
    assert not isinstance(first, RequestStatus)
    assert isinstance(second, RequestStatus)
    assert room.session._state.handles == 0


def test_a_lost_connection_is_no_goodbye(room: SessionRoom) -> None:
    room.open()
    room.say(b"")
    assert room.session.closing
    assert not room.asked


def test_a_deleted_queue_ends_the_connection_of_its_reader(room: SessionRoom) -> None:
    room.open()
    consumer = room.configure()
    room.deliver(consumer, 1, b"a")
    room.session.apply([ConsumerEnded(SESSION, consumer, QUEUE, QueueNotFound(QUEUE))] * 2)
    room.take()
    assert [type(request) for request in room.asked] == [Goodbye]
    (word,) = room.sdk.got.last_words
    assert isinstance(word, RequestStatus)
    assert QUEUE in word.message


def test_a_queue_that_goes_while_its_reader_leaves_is_no_news(room: SessionRoom) -> None:
    room.open()
    consumer = room.configure()
    room.deliver(consumer, 1, b"a")
    room.say(room.sdk.close(0)[1])
    room.session.apply([ConsumerEnded(SESSION, consumer, QUEUE, QueueNotFound(QUEUE))])
    room.answer_all()
    assert not room.session._state.queues
    assert not room.session.closing
