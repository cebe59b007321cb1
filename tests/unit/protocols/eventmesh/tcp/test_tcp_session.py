"""What a session asks of the broker, and when; the clock is the test's."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from bench.guard.counting import instructions
from vibemq.errors import AuthFailed, QueueNotFound, RemoteProtocolError, RequestFailed, StorageFull
from vibemq.model.commands import (
    CreateQueue,
    DescribeQueue,
    Extend,
    Publish,
    Respond,
    SetCapacity,
    Settle,
    Settlement,
    Subscribe,
    Unsubscribe,
)
from vibemq.model.effects import ConsumerEnded, Deliver, Published, Reply, Responded, Subscribed
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.model.stored import Slice
from vibemq.protocols.eventmesh import EventMeshSession, EventMeshSettings
from vibemq.protocols.eventmesh.tcp.frames import EventMeshDialect, EventMeshFrameReader, FrameLimits, encode_frame
from vibemq.protocols.eventmesh.tcp.pushes import EARLIER_MAX
from vibemq.protocols.eventmesh.tcp.session import (
    FRAMES_BEFORE_HELLO_MAX,
    PIPELINED_BYTES_MAX,
    TOPIC_WORK,
    WORK_AT_ONCE,
)
from vibemq.protocols.eventmesh.tcp.subscriptions import TOPICS_AT_ONCE
from vibemq.protocols.session import Authenticate, Goodbye
from vibemq.testing.session_conformance import NOW, SESSION, Talk, context

DIALECT = EventMeshDialect.EM13
EVENT = {"specversion": "1.0", "id": "e", "source": "/", "type": "t", "subject": "q"}
MANY = {f"x{number}": "x" for number in range(99)}
"""Properties, or attributes of an event: more than a message may have."""
AGENT = {"group": "g", "purpose": "sub", "version": "2", "username": "ann", "password": "pw"}


def frame(cmd: str, body: Any = None, seq: Any = "1", code: int = 0, form: str = "") -> bytes:
    header = {"cmd": cmd, "code": code, "seq": seq, "properties": {"protocoltype": form}}
    return encode_frame(DIALECT, orjson.dumps(header), b"" if body is None else orjson.dumps(body))


def publish(number: int, topic: str = "q", body: str = "x") -> bytes:
    return frame("ASYNC_MESSAGE_TO_SERVER", {"topic": topic, "body": body}, str(number))


def talk(**settings: Any) -> Talk:
    talking = Talk(EventMeshSession(context(), EventMeshSettings(**settings)))
    talking.hear(frame("HELLO_REQUEST", AGENT))
    answers(talking)
    return talking


def answers(talking: Talk) -> list[dict[str, Any]]:
    """Headers of what the session has said since the last time."""
    reader, found = EventMeshFrameReader(FrameLimits(1 << 24, 1 << 16)), []
    reader.receive_data(bytes(talking.sent) + talking.session.data_to_send())
    talking.sent.clear()
    while (each := reader.next_frame()) is not None:
        found.append(orjson.loads(each.header) | {"body": each.body})
    return found


def subscribed(talking: Talk, topic: str = "q", *, listen: bool = True) -> int:
    item = {"topic": topic, "mode": "CLUSTERING", "type": "ASYNC"}
    heard = talking.hear(frame("SUBSCRIBE_REQUEST", {"topicList": [item]}))
    (command,) = [each for each in heard if isinstance(each, Subscribe)]
    talking.sent += talking.tell(command, Subscribed(topic, "g", command.consumer, 1))
    if listen:
        talking.hear(frame("LISTEN_REQUEST"))
    return command.consumer


LONGEST = '\u00e9"' * 128


@pytest.mark.parametrize(
    ("cmd", "answer"),
    [
        ("HEARTBEAT_REQUEST", "HEARTBEAT_RESPONSE"),
        ("SUBSCRIBE_REQUEST", "SUBSCRIBE_RESPONSE"),
        ("ASYNC_MESSAGE_TO_SERVER", "ASYNC_MESSAGE_TO_SERVER_ACK"),
        ("REQUEST_TO_SERVER", "RESPONSE_TO_CLIENT"),
        ("CLIENT_GOODBYE_REQUEST", "CLIENT_GOODBYE_RESPONSE"),
    ],
)
def test_a_seq_that_is_too_long_is_refused_under_that_seq(cmd: str, answer: str) -> None:
    talking, long = talk(), LONGEST + "x"
    assert talking.hear(frame(cmd, {"topic": "q", "body": "x"}, long)) == []
    (said,) = answers(talking)
    assert (said["cmd"], said["code"], said["seq"]) == (answer, 1, long)
    assert "has 257 characters; at most 256 fit" in said["desc"]
    assert talking.hear(frame("HEARTBEAT_REQUEST", None, LONGEST)) == []
    (said,) = answers(talking)
    assert (said["code"], said["seq"]) == (0, LONGEST)


def test_a_hello_whose_seq_is_too_long_is_refused_and_the_connection_ends() -> None:
    talking = Talk(EventMeshSession(context(), EventMeshSettings()))
    assert talking.hear(frame("HELLO_REQUEST", AGENT, LONGEST + "x")) == []
    (said,) = answers(talking)
    assert (said["cmd"], said["code"], said["seq"]) == ("HELLO_RESPONSE", 1, LONGEST + "x")
    assert talking.session.closing


def test_an_acknowledgement_whose_seq_is_too_long_is_of_no_push() -> None:
    talking = talk()
    assert talking.hear(frame("ASYNC_MESSAGE_TO_CLIENT_ACK", "text", LONGEST + "x")) == []
    assert answers(talking) == []


def deliver(talking: Talk, consumer: int, *sequences: int) -> list[str]:
    """Push messages; return the numbers of the pushes."""
    first, last = sequences[0], sequences[-1]
    rows = Rows.of([pack_row(f"m{sequence}", b"x") for sequence in sequences])
    talking.session.deliver(Deliver(SESSION, consumer, "q", 1, 0, [(first, last)]), [Slice(first, NOW, rows)])
    return [each["seq"] for each in answers(talking) if each["cmd"].endswith("_TO_CLIENT")]


# -- large frames -------------------------------------------------------------------------------------------------


def test_a_large_frame_waits_for_memory_and_is_read_when_there_is_some() -> None:
    granted: list[int] = []
    asked: list[int] = []

    def reserve(size: int) -> Any:
        asked.append(size)
        return object() if granted else None

    session = EventMeshSession(replace(context(), reserve_memory=reserve), EventMeshSettings())
    talking = Talk(session)
    talking.hear(frame("HELLO_REQUEST", AGENT))
    large = publish(1, body=200_000 * "\x01")
    assert talking.hear(large[:100_000]) == []
    assert asked == [len(large)]
    assert not session.unread
    session.tick(NOW + 1_000_000)
    assert not session.closing, "it is not read, so it cannot be heard"
    granted.append(1)
    assert talking.hear(large[100_000:200_000]) == []
    (published,) = talking.hear(large[200_000:])
    assert isinstance(published, Publish)
    assert not session.unread


def test_a_client_that_does_not_come_on_with_a_large_frame_is_sent_away() -> None:
    talking = talk()
    large = publish(1, body=200_000 * "\x01")
    talking.hear(large[:100_000])
    timeout_ms = context().limits.message_timeout_ms
    assert talking.session.next_deadline() == NOW + timeout_ms
    talking.now += timeout_ms - 1
    talking.hear(large[100_000:165_536])
    assert talking.session.next_deadline() == talking.now + timeout_ms
    talking.session.tick(talking.now + timeout_ms)
    assert talking.session.closing
    assert "send it faster" in answers(talking)[0]["desc"]


# -- before the login ---------------------------------------------------------------------------------------------


def test_before_the_login_nothing_is_carried_out() -> None:
    talking = Talk(EventMeshSession(context(authentication=True), EventMeshSettings()))
    topics = {"topicList": ["q"]}
    heard = talking.hear(publish(1) + frame("SUBSCRIBE_REQUEST", topics) + frame("LISTEN_REQUEST"))
    heard += talking.hear(frame("REQUEST_TO_SERVER", {"topic": "q"}) + frame("RESPONSE_TO_SERVER", {"topic": "q"}))
    assert heard == []
    assert {each["code"] for each in answers(talking)} == {2}


@pytest.mark.parametrize("header", [b"", b"{"])
def test_a_first_frame_that_is_none_is_answered_in_its_dialect(header: bytes) -> None:
    """C looks at the magic of what it gets."""
    session = EventMeshSession(context(), EventMeshSettings())
    session.receive_data(encode_frame(EventMeshDialect.WEMQ, header))
    with pytest.raises(RemoteProtocolError):
        list(session.commands())
    assert session.data_to_send().startswith(b"WEMQ0000")


def test_before_the_login_frames_are_small() -> None:
    session = EventMeshSession(context(authentication=True), EventMeshSettings())
    session.receive_data(frame("HELLO_REQUEST", AGENT | {"path": "x" * 70_000}))
    with pytest.raises(RemoteProtocolError, match="at most 65,536"):
        list(session.commands())
    assert session.closing


def test_a_stranger_who_never_says_hello_is_not_heard_for_ever() -> None:
    talking = Talk(EventMeshSession(context(authentication=True), EventMeshSettings()))
    talking.hear(frame("TRACE_LOG_TO_LOGSERVER") * FRAMES_BEFORE_HELLO_MAX)
    assert not talking.session.closing
    with pytest.raises(RemoteProtocolError, match="before a HELLO_REQUEST"):
        talking.hear(frame("TRACE_LOG_TO_LOGSERVER"))
    assert talking.session.closing


def test_a_short_message_of_many_lists_is_read_in_steps_and_published() -> None:
    talking, text = talk(), '{"a":[]},' * 3_000
    heard = talking.hear(publish(1, body=text) + publish(2))
    rows = [row for each in heard if isinstance(each, Publish) for row in each.rows]
    assert [RowView(row).payload for row in rows] == [text.encode(), b"x"]


def test_headers_are_work_as_bodies_are_and_are_no_large_json() -> None:
    session = talk().session
    long = frame("TRACE_LOG_TO_LOGSERVER", form="x" * 60_000)
    session.receive_data(long * (WORK_AT_ONCE // 8 + 1))
    assert list(session.commands()) == []
    assert session.unread
    lists = b'{"cmd":"TRACE_LOG_TO_LOGSERVER","x":[' + b"[]," * 2_000 + b"[]]}"
    session = talk().session
    session.receive_data(encode_frame(DIALECT, lists))
    with pytest.raises(RemoteProtocolError, match="more than 1,024 JSON lists"):
        list(session.commands())


def test_a_stranger_cannot_fill_memory_while_its_credentials_are_checked() -> None:
    session = EventMeshSession(context(authentication=True), EventMeshSettings())
    session.receive_data(frame("HELLO_REQUEST", AGENT) + publish(1))
    (request,) = session.commands()
    assert isinstance(request, Authenticate)
    assert (request.username, request.password) == ("ann", "pw")
    assert list(session.commands()) == []
    for _ in range(2 + PIPELINED_BYTES_MAX // 65_536):
        session.receive_data(publish(1, body="x" * 65_536))
    with pytest.raises(RemoteProtocolError, match="sent ahead"):
        list(session.commands())


def test_a_login_without_credentials_is_refused_at_once() -> None:
    session = EventMeshSession(context(authentication=True), EventMeshSettings())
    session.receive_data(frame("HELLO_REQUEST", {"group": "g", "purpose": "pub", "version": "2"}))
    assert list(session.commands()) == []
    assert b'"code":2' in session.data_to_send()
    assert session.closing


def test_a_second_hello_gives_no_other_rights() -> None:
    talking = talk()
    assert talking.hear(frame("HELLO_REQUEST", AGENT | {"username": "root", "group": "other"})) == []
    assert answers(talking)[0]["code"] == 0
    consumer = subscribed(talking)
    assert [each.group for each in talking.asked if isinstance(each, Subscribe)] == ["g"]
    assert consumer == 1


def test_a_refused_login_ends_the_connection() -> None:
    session = EventMeshSession(context(authentication=True), EventMeshSettings())
    session.receive_data(frame("HELLO_REQUEST", AGENT, 5) + publish(1))
    (request,) = session.commands()
    assert isinstance(request, Authenticate)
    session.refused(request.token, AuthFailed("no"))
    said = session.data_to_send()
    assert b'"code":2' in said
    assert b'"seq":5' in said
    assert session.closing
    assert list(session.commands()) == []


# -- work ---------------------------------------------------------------------------------------------------------


def test_what_was_sent_ahead_is_read_in_pieces() -> None:
    talking = talk()
    session, count = talking.session, 10 * WORK_AT_ONCE
    session.receive_data(b"".join(publish(number) for number in range(count)))
    sizes = []
    while True:
        sizes += [request.rows.count for request in session.commands() if isinstance(request, Publish)]
        if not session.unread:
            break
    assert sizes == [WORK_AT_ONCE - TOPIC_WORK] * 10 + [10 * TOPIC_WORK]
    session.receive_data(publish(1, body="x" * 900_000) + publish(2))
    turns, found = 1, list(session.commands())
    while session.unread:
        turns += 1
        found += session.commands()
    assert turns > 5, "a large message is taken apart in steps"
    assert [request.rows.count for request in found if isinstance(request, Publish)] == [1, 1]


def test_topics_of_one_list_are_asked_for_in_pieces() -> None:
    talking = talk()
    session = talking.session
    session.receive_data(frame("SUBSCRIBE_REQUEST", {"topicList": [f"t{number}" for number in range(170)]}, "9"))
    most, known = 0, 0
    while known < 170:
        asked = [request for request in session.commands() if isinstance(request, DescribeQueue)]
        most = max(most, len(asked))
        session.apply([Reply(SESSION, request.token, None) for request in asked])
        known += len(asked)
    assert most == 15
    assert b"SUBSCRIBE_RESPONSE" not in session.data_to_send(), "not before the engine has said yes to all"


def test_nothing_is_read_until_the_engine_says_what_a_topic_is() -> None:
    """It may wait for a flush: the session is not called again and again meanwhile."""
    woken = list[bool]()
    session = EventMeshSession(replace(context(), wake=lambda: woken.append(True)), EventMeshSettings())
    talking = Talk(session)
    talking.hear(frame("HELLO_REQUEST", AGENT))
    answers(talking)
    woken.clear()
    item = {"topic": "q", "mode": "CLUSTERING", "type": "ASYNC"}
    session.receive_data(frame("SUBSCRIBE_REQUEST", {"topicList": [item]}) + frame("HEARTBEAT_REQUEST", None, "2"))
    (asked,) = session.commands()
    assert isinstance(asked, DescribeQueue)
    assert (session.unread, session.reads_nothing_more, woken) == (False, True, [])
    session.receive_data(b"")
    assert not session.commands()
    assert not session.closing, "what was said before its end is still to be done"
    session.apply([Reply(SESSION, asked.token, None)])
    assert (session.unread, session.reads_nothing_more, woken) == (True, False, [True])
    session.commands()
    assert [answer["cmd"] for answer in answers(talking)] == ["HEARTBEAT_RESPONSE"]
    assert session.closing


def test_names_of_topics_are_looked_at_in_pieces() -> None:
    """A thousand long ones take 15 ms, and the one that is none may be the last that is looked at."""
    talking = talk()
    session = talking.session
    topics = ["not a name", *(f"{number:03}" + "x" * 253 for number in range(999))]
    session.receive_data(frame("SUBSCRIBE_REQUEST", {"topicList": topics}, "9"))
    turns = 0
    while session.unread:
        assert not session.commands()
        turns += 1
    assert turns > 1_000 // TOPICS_AT_ONCE
    (refused,) = answers(talking)
    assert (refused["seq"], refused["code"], "not a name" in refused["desc"]) == ("9", 1, True)


def test_publishes_beyond_what_may_wait_are_refused() -> None:
    talking = talk(unanswered_max=3)
    heard = talking.hear(b"".join(publish(number) for number in range(5)))
    assert [each["seq"] for each in answers(talking)] == ["3", "4"]
    (command,) = heard
    assert isinstance(command, Publish)
    talking.sent += talking.tell(command, Published("q", 1, 3))
    assert [(each["seq"], each["code"]) for each in answers(talking)] == [("0", 0), ("1", 0), ("2", 0)]


# -- topics -------------------------------------------------------------------------------------------------------


def test_a_missing_topic_is_created_once_and_the_batch_published_again() -> None:
    talking = talk()
    (first,) = talking.hear(publish(1) + publish(2))
    talking.session.apply([Reply(SESSION, first.token, QueueNotFound("q"))])
    create, again = talking.session.commands()
    assert isinstance(create, CreateQueue)
    assert create.options is not None
    assert create.options.is_fan_out
    assert isinstance(again, Publish)
    assert list(again.rows) == list(first.rows)
    talking.sent += talking.tell(again, QueueNotFound("q"))
    assert [(each["seq"], each["code"]) for each in answers(talking)] == [("1", 1), ("2", 1)]
    assert list(talking.session.commands()) == []


def test_what_is_published_while_its_topic_is_made_keeps_its_order() -> None:
    """The refusal of a later batch may come behind the commit of another topic's messages."""
    talking = talk()
    (first,) = talking.hear(publish(1))
    (second,) = talking.hear(publish(2))
    talking.session.apply([Reply(SESSION, first.token, QueueNotFound("q"))])
    _, first_again = talking.hear(publish(3))
    (other,) = talking.hear(publish(4, "p"))
    assert (first_again.queue, other.queue) == ("q", "p")
    talking.session.apply([Reply(SESSION, second.token, QueueNotFound("q"))])
    create, second_again, third = talking.session.commands()
    assert isinstance(create, CreateQueue)
    assert [batch.token.acks[0][1] for batch in (first_again, second_again, third)] == [b'"1"', b'"2"', b'"3"']
    for number, batch in enumerate((first_again, second_again, third), 1):
        talking.sent += talking.tell(batch, Published("q", number, 1))
    assert [(each["seq"], each["code"]) for each in answers(talking)] == [("1", 0), ("2", 0), ("3", 0)]
    (fourth,) = talking.hear(publish(4))
    assert isinstance(fourth, Publish)


def test_what_waits_for_its_topic_is_published_before_the_client_has_left() -> None:
    talking = talk()
    (first,) = talking.hear(publish(1))
    (second,) = talking.hear(publish(2))
    talking.session.apply([Reply(SESSION, first.token, QueueNotFound("q"))])
    assert len(talking.hear(publish(3))) == 2
    talking.session.receive_data(b"")
    assert list(talking.session.commands()) == []
    assert not talking.session.closing
    talking.session.apply([Reply(SESSION, second.token, Published("q", 1, 1))])
    assert [type(request) for request in talking.session.commands()] == [Publish]
    assert talking.session.closing


def test_topics_are_not_created_where_that_is_switched_off() -> None:
    talking = talk(create_topics=False)
    (first,) = talking.hear(publish(1))
    talking.session.apply([Reply(SESSION, first.token, QueueNotFound("q"))])
    assert [type(request) for request in talking.session.commands()] == [Publish]


# -- pushes -------------------------------------------------------------------------------------------------------


def test_credit_comes_with_listen() -> None:
    talking = talk()
    consumer = subscribed(talking, listen=False)
    assert not [each for each in talking.asked if isinstance(each, SetCapacity)]
    talking.hear(frame("LISTEN_REQUEST"))
    (capacity,) = [each for each in talking.asked if isinstance(each, SetCapacity)]
    assert (capacity.consumer, capacity.add_credit > 0) == (consumer, True)


@pytest.mark.parametrize(
    ("topic", "cmd"),
    [
        ("A00-s-12300009-01-0", "REQUEST_TO_CLIENT"),
        ("A00-e-10010000-01-1", "ASYNC_MESSAGE_TO_CLIENT"),
        ("A00-e-10030002-05-3", "BROADCAST_MESSAGE_TO_CLIENT"),
        ("A00-e-10040002-05-4", "BROADCAST_MESSAGE_TO_CLIENT"),
        ("A00-x-10040002-05-4", "ASYNC_MESSAGE_TO_CLIENT"),
        ("A00-e-100x0002-05-4", "ASYNC_MESSAGE_TO_CLIENT"),
        ("orders", "ASYNC_MESSAGE_TO_CLIENT"),
    ],
)
def test_names_of_services_of_1_0_say_how_they_are_called(topic: str, cmd: str) -> None:
    """Where neither the subscription nor the publisher says it."""
    talking = talk()
    (command,) = [
        each for each in talking.hear(frame("SUBSCRIBE_REQUEST", {"topicList": [topic]})) if isinstance(each, Subscribe)
    ]
    talking.sent += talking.tell(command, Subscribed(topic, "g", command.consumer, 1))
    talking.hear(frame("LISTEN_REQUEST"))
    answers(talking)
    rows = Rows.of([pack_row("m", b"x")])
    talking.session.deliver(Deliver(SESSION, command.consumer, "q", 1, 0, [(1, 1)]), [Slice(1, NOW, rows)])
    assert [each["cmd"] for each in answers(talking)] == [cmd]


def test_acknowledgements_of_one_read_become_one_settlement() -> None:
    talking = talk()
    consumer = subscribed(talking)
    seqs = deliver(talking, consumer, 5, 6, 7, 8)
    assert seqs == ["1", "2", "3", "4"]
    said = [frame("ASYNC_MESSAGE_TO_CLIENT_ACK", "text", seq) for seq in ("1", 2, "4", "4", "99", "x", None)]
    (settle,) = talking.hear(b"".join(said))
    assert settle == Settle(SESSION, None, consumer, Settlement.ACK, [(5, 6), (8, 8)])
    (failed,) = talking.hear(frame("BROADCAST_MESSAGE_TO_CLIENT_ACK", None, "3", code=1))
    assert isinstance(failed, Settle)
    assert (failed.verb, failed.runs) == (Settlement.RETRY, [(7, 7)])


@pytest.mark.parametrize("acked", ["1", "2", "3"])
def test_a_message_that_comes_again_is_acknowledged_by_each_of_its_numbers(acked: str) -> None:
    """A client that works for longer than the ack timeout names the push that it was at."""
    talking = talk()
    consumer = subscribed(talking)
    assert [deliver(talking, consumer, 5) for _ in range(3)] == [["1"], ["2"], ["3"]]
    (settle,) = talking.hear(frame("ASYNC_MESSAGE_TO_CLIENT_ACK", None, acked))
    assert settle == Settle(SESSION, None, consumer, Settlement.ACK, [(5, 5)])
    for number in ("1", "2", "3"):
        assert talking.hear(frame("ASYNC_MESSAGE_TO_CLIENT_ACK", None, number)) == []


def test_numbers_of_messages_that_come_again_for_ever_are_forgotten() -> None:
    talking = talk()
    consumer = subscribed(talking)
    for _ in range(EARLIER_MAX + 2):
        deliver(talking, consumer, 5)
    assert talking.hear(frame("ASYNC_MESSAGE_TO_CLIENT_ACK", None, "1")) == []
    assert len(talking.hear(frame("ASYNC_MESSAGE_TO_CLIENT_ACK", None, "2"))) == 1


def test_what_waits_behind_an_acknowledged_message_is_extended() -> None:
    talking = talk()
    consumer = subscribed(talking)
    deliver(talking, consumer, 5, 6, 7)
    talking.now += 5_000
    settle, extend = talking.hear(frame("ASYNC_MESSAGE_TO_CLIENT_ACK", None, "2"))
    assert isinstance(settle, Settle)
    assert extend == Extend(SESSION, None, consumer, [(7, 7)])
    assert len(talking.hear(frame("ASYNC_MESSAGE_TO_CLIENT_ACK", None, "3"))) == 1, "not at each of them"


def test_what_a_lost_client_cannot_have_begun_goes_back_unharmed() -> None:
    talking = talk()
    here, there = subscribed(talking), subscribed(talking, "other")
    deliver(talking, here, 5, 6, 7)
    deliver(talking, there, 9)
    there_too = Settle(SESSION, None, there, Settlement.RELEASE, [(9, 9)])
    assert talking.session.unbegun() == [Settle(SESSION, None, here, Settlement.RELEASE, [(6, 7)]), there_too]
    talking.hear(frame("ASYNC_MESSAGE_TO_CLIENT_ACK", None, "2"))
    assert talking.session.unbegun() == [there_too], "it has passed over 5, and may have begun 7"
    talking.hear(frame("ASYNC_MESSAGE_TO_CLIENT_ACK", None, "3"))
    assert talking.session.unbegun() == []


def test_after_goodbye_deliveries_go_back_and_the_end_is_clean() -> None:
    talking = talk()
    consumer = subscribed(talking)
    deliver(talking, consumer, 5)
    assert [type(each) for each in talking.hear(frame("CLIENT_GOODBYE_REQUEST"))] == [Unsubscribe]
    assert answers(talking)[-1]["cmd"] == "CLIENT_GOODBYE_RESPONSE"
    assert deliver(talking, consumer, 6) == []
    (released,) = talking.session.commands()
    assert isinstance(released, Settle)
    assert (released.verb, released.runs) == (Settlement.RELEASE, [(6, 6)])
    (acked,) = talking.hear(frame("ASYNC_MESSAGE_TO_CLIENT_ACK", None, "1"))
    assert isinstance(acked, Settle)
    assert [type(each) for each in talking.hear(b"")] == [Goodbye]


def test_a_client_that_stays_after_goodbye_is_closed() -> None:
    talking = talk()
    talking.hear(frame("CLIENT_GOODBYE_REQUEST"))
    deadline = talking.session.next_deadline()
    assert deadline == NOW + 30_000
    talking.session.tick(deadline)
    assert [type(each) for each in talking.session.commands()] == [Goodbye]


def test_a_lost_queue_sends_the_client_away() -> None:
    """What it holds of other topics is no failed attempt, and what it has published is answered."""
    talking = talk()
    consumer, other = subscribed(talking), subscribed(talking, "p")
    answers(talking)
    (published,) = talking.hear(publish(1, "p"))
    gone = [
        ConsumerEnded(SESSION, number, topic, QueueNotFound(topic)) for number, topic in ((consumer, "q"), (other, "p"))
    ]
    talking.session.apply(gone)
    (goodbye,) = answers(talking)
    assert (goodbye["cmd"], goodbye["code"]) == ("SERVER_GOODBYE_REQUEST", 1)
    assert not talking.session.closing
    assert [type(request) for request in talking.session.commands()] == [Goodbye]
    talking.sent += talking.tell(published, Published("p", 1, 1))
    assert [each["seq"] for each in answers(talking)] == ["1"]


def test_many_lost_queues_cost_what_one_does() -> None:
    """A user has lost its rights to a thousand topics, and its client holds very many messages."""
    talking = talk()
    consumers = [subscribed(talking, f"t{number}", listen=False) for number in range(40)]
    for consumer in consumers[-10:]:
        deliver(talking, consumer, *range(1, 101))

    def lose(*lost: int) -> None:
        talking.session.apply([ConsumerEnded(SESSION, each, f"t{each}", QueueNotFound("t")) for each in lost])

    first = sum(instructions(lambda: lose(consumers[0])).values())
    assert sum(instructions(lambda: lose(*consumers[1:])).values()) < first


@pytest.mark.parametrize("form", ["eventmeshmessage", "cloudevents"])
def test_a_request_that_fails_is_answered_with_a_body(form: str) -> None:
    """A Java client closes the connection at an answer without one."""
    talking = talk()
    event = {"specversion": "1.0", "id": "e", "source": "/", "type": "t", "subject": "q"}
    body = event if form == "cloudevents" else {"topic": "q", "body": "x"}
    (command,) = talking.hear(frame("REQUEST_TO_SERVER", body, "7", form=form))
    assert isinstance(command, Publish)
    assert command.requester is not None
    talking.session.apply([Responded(SESSION, command.requester.token, RequestFailed("rejected"))])
    (answer,) = answers(talking)
    assert (answer["cmd"], answer["seq"], answer["code"]) == ("RESPONSE_TO_CLIENT", "7", 1)
    assert answer["properties"] == {"protocoltype": form}
    told = orjson.loads(answer["body"])
    assert told["subject" if form == "cloudevents" else "topic"] == "q"
    assert b"rejected" in answer["body"] or "data_base64" in told or "data" in told


@pytest.mark.parametrize("form", ["eventmeshmessage", "cloudevents"])
@pytest.mark.parametrize(
    ("body", "seq", "why"),
    [
        ({"topic": "q", "properties": MANY} | EVENT | MANY, "7", "properties"),
        ({"topic": "~own", "body": "x"} | EVENT | {"subject": ""}, "7", ""),
        ({"topic": "q", "body": "x"} | EVENT, None, "needs a `seq`"),
        (None, "7", ""),
    ],
)
def test_a_request_that_the_session_refuses_has_a_body_too(form: str, body: Any, seq: Any, why: str) -> None:
    talking = talk()
    assert talking.hear(frame("REQUEST_TO_SERVER", body, seq, form=form)) == []
    (answer,) = answers(talking)
    assert (answer["cmd"], answer["code"], answer.get("seq")) == ("RESPONSE_TO_CLIENT", 1, seq)
    assert answer["properties"] == {"protocoltype": form}
    assert why in answer["desc"]
    told = orjson.loads(answer["body"])
    assert told["data" if form == "cloudevents" else "body"] == answer["desc"]
    assert told["subject" if form == "cloudevents" else "topic"]
    assert not talking.session.closing


# -- what cannot be written ---------------------------------------------------------------------------------------


DEEP = "[" * 253 + "]" * 253


@pytest.mark.parametrize("form", ["eventmeshmessage", "cloudevents"])
@pytest.mark.parametrize("name", ["eventmesh-properties", "eventmesh-headers"])
def test_a_row_that_cannot_be_written_is_dead_lettered_and_those_behind_it_are_pushed(name: str, form: str) -> None:
    talking = talk()
    talking.hear(frame("ASYNC_MESSAGE_TO_SERVER", EVENT if form == "cloudevents" else {"topic": "q"}, form=form))
    consumer = subscribed(talking)
    answers(talking)
    poison = pack_row("poison", b"bad", [(name, f'{{"a":{DEEP}}}')])
    rows = Rows.of([poison, pack_row("after", b"y")])
    talking.session.deliver(Deliver(SESSION, consumer, "q", 1, 0, [(1, 2)]), [Slice(1, NOW, rows)])
    pushed = [each["body"] for each in answers(talking) if each["cmd"].endswith("_TO_CLIENT")]
    settled = [each for each in talking.session.commands() if isinstance(each, Settle)]
    if form == "cloudevents" and name == "eventmesh-headers":
        # As text in an extension it can be written.
        assert (len(pushed), settled) == (2, [])
        return
    assert [b"bad" in body for body in pushed] == [False]
    ((verb, runs, reason),) = [(each.verb, each.runs, each.reason) for each in settled]
    assert (verb, list(runs)) == (Settlement.REJECT, [(1, 1)])
    assert f"the header {name} nests too deeply" in reason
    assert not talking.session.closing


def test_a_reply_that_cannot_be_written_is_told_as_the_answer_of_the_request() -> None:
    talking = talk()
    (asked,) = [
        each for each in talking.hear(frame("REQUEST_TO_SERVER", {"topic": "q"}, "5")) if isinstance(each, Publish)
    ]
    assert asked.requester is not None
    reply = Rows.of([pack_row("r", b"x", [("eventmesh-properties", f'{{"a":{DEEP}}}')])])
    talking.session.apply([Responded(SESSION, asked.requester.token, reply)])
    (answer,) = answers(talking)
    assert (answer["cmd"], answer["code"], answer["seq"]) == ("RESPONSE_TO_CLIENT", 1, "5")
    assert "nests too deeply" in answer["desc"]


def test_a_request_with_as_many_properties_as_there_may_be_can_be_answered_with_the_same() -> None:
    """Java handlers mostly return the message that they were given, changed."""
    talking = talk()
    properties = {f"x{number}": "x" for number in range(context().limits.headers_max - 4)}
    asking = frame("REQUEST_TO_SERVER", {"topic": "q", "body": "b", "properties": properties}, "5")
    (asked,) = [each for each in talking.hear(asking) if isinstance(each, Publish)]
    consumer = subscribed(talking)
    answers(talking)
    talking.session.deliver(Deliver(SESSION, consumer, "q", 1, 0, [(1, 1)]), [Slice(1, NOW, asked.rows)])
    (pushed,) = answers(talking)
    (reply,) = talking.hear(frame("RESPONSE_TO_SERVER", orjson.loads(pushed["body"]), "6"))
    assert isinstance(reply, Respond)
    assert asked.requester is not None
    assert reply.address == asked.requester.address
    assert properties.items() <= RowView(reply.rows[0]).headers.items()


def test_a_message_whose_json_no_client_reads_becomes_a_dead_letter() -> None:
    """A client would end its connection at its frame, and get it again with the next one."""
    talking = talk()
    consumer = subscribed(talking)
    answers(talking)
    rows = Rows.of([pack_row("zeros", bytes(800_000)), pack_row("after", b"y")])
    talking.session.deliver(Deliver(SESSION, consumer, "q", 1, 0, [(1, 2)]), [Slice(1, NOW, rows)])
    (pushed,) = answers(talking)
    assert orjson.loads(pushed["body"])["body"] == "y"
    (settled,) = talking.session.commands()
    assert isinstance(settled, Settle)
    assert (settled.verb, list(settled.runs)) == (Settlement.REJECT, [(1, 1)])
    assert "clients read at most 4,190,208" in settled.reason


def test_a_reply_whose_json_no_client_reads_is_told_as_the_answer_of_the_request() -> None:
    talking = talk()
    (asked,) = talking.hear(frame("REQUEST_TO_SERVER", {"topic": "q"}, "5"))
    assert isinstance(asked, Publish)
    assert asked.requester is not None
    reply = Rows.of([pack_row("r", bytes(800_000))])
    talking.session.apply([Responded(SESSION, asked.requester.token, reply)])
    (answer,) = answers(talking)
    assert (answer["code"], answer["seq"]) == (1, "5")
    assert "clients read at most 4,190,208" in orjson.loads(answer["body"])["body"]


def test_what_is_kept_of_headers_is_small() -> None:
    talking = talk()
    consumer = subscribed(talking)
    answers(talking)
    kept = talking.session._subscriptions.by_consumer[consumer].cache
    for size in (4_000, 30):
        rows = Rows.of([pack_row(f"m{number}", b"x", [("trace", f"{number:0{size}}")]) for number in range(9)])
        talking.session.deliver(Deliver(SESSION, consumer, "q", 1, 0, [(1, 9)]), [Slice(1, NOW, rows)])
        assert [orjson.loads(each["body"])["properties"]["trace"][-1] for each in answers(talking)] == list("012345678")
        assert not kept.known


@pytest.mark.parametrize("key", ["properties", "headers"])
def test_a_publish_that_nests_too_deeply_is_refused(key: str) -> None:
    talking = talk()
    raw = b'{"topic":"q","%b":{"a":%b}}' % (key.encode(), DEEP.encode())
    header = orjson.dumps({"cmd": "ASYNC_MESSAGE_TO_SERVER", "seq": "1"})
    assert talking.hear(encode_frame(DIALECT, header, raw)) == []
    (answer,) = answers(talking)
    assert answer["code"] == 1
    assert "nests too deeply" in answer["desc"]


def test_a_command_that_nests_is_no_command() -> None:
    talking = talk()
    deep = b"[" * 1_000 + b"]" * 1_000
    talking.session.receive_data(encode_frame(DIALECT, b'{"cmd":%b}' % deep))
    with pytest.raises(RemoteProtocolError, match="must be text"):
        _ = [list(talking.session.commands()) for _ in range(3)]


def test_a_full_disk_is_told_apart_from_a_bad_message() -> None:
    talking = talk()
    (command,) = talking.hear(publish(1))
    assert isinstance(command, Publish)
    talking.session.apply([Reply(SESSION, command.token, StorageFull("the disk is full"))])
    (answer,) = answers(talking)
    assert answer["code"] == 3


def test_a_large_event_is_taken_apart_in_turns_and_keeps_its_place() -> None:
    talking = talk()
    session = talking.session
    large = frame("ASYNC_MESSAGE_TO_SERVER", EVENT | {"data": [[]] * 100_000}, "1", form="cloudevents")
    bad = frame("ASYNC_MESSAGE_TO_SERVER", EVENT | {"subject": "", "data": [[]] * 100_000}, "2", form="cloudevents")
    session.receive_data(large + bad + publish(3))
    turns, published = 0, list[Publish]()
    while True:
        published += [request for request in session.commands() if isinstance(request, Publish)]
        turns += 1
        if not session.unread:
            break
    assert turns > 20
    assert [request.rows.count for request in published] == [1, 1]
    assert b"[[],[]," in published[0].rows[0]
    (refused,) = answers(talking)
    assert (refused["seq"], refused["code"]) == ("2", 1)


@pytest.mark.parametrize("topics", [[[]] * 600_000, [f"t{number}" for number in range(1_001)], ["x" * 600_000]])
def test_a_list_of_topics_that_is_too_long_is_refused_before_each_is_looked_at(topics: list[Any]) -> None:
    talking = talk()
    session = talking.session
    session.receive_data(frame("SUBSCRIBE_REQUEST", {"topicList": topics}, "9"))

    def turn() -> None:
        assert not session.commands()

    assert sum(instructions(turn).values()) < 30_000
    assert b'"code":1' in session.data_to_send()
