"""Plain subscriptions, those of bulk, settlements and selectors."""

import pytest

from tests.unit.protocols.native.native_peer import ALL, Peer, bulk, frame, plain
from vibemq.errors import NotAuthorized, QueueNotFound
from vibemq.model import commands as c
from vibemq.model.effects import ConsumerEnded, ConsumerLeft, Deliver, Reply, Subscribed
from vibemq.model.rows import Rows, pack_row
from vibemq.model.runs import END
from vibemq.model.selector import Selector
from vibemq.model.stored import Slice
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType as T
from vibemq.protocols.native.codec.wire import encode_body
from vibemq.testing.session_conformance import NOW, SESSION


def test_subscribing_twice_is_one_subscription() -> None:
    peer = plain(prefetch=33)
    first = peer.ask(T.SUBSCRIBE, "s1", "q")
    assert isinstance(first, c.Subscribe)
    assert (first.capacity_messages, first.create, first.group) == (33, True, None)
    assert list(peer.hear(frame(T.SUBSCRIBE, "s2", "q"))) == []
    peer.session.apply([Reply(SESSION, first.token, Subscribed("q", "", first.consumer, 1))])
    acks = peer.frames()
    assert [(ack.type, ack.id, ack.queue) for ack in acks] == [
        (T.SUBSCRIBE_ACK, "s1", "q"),
        (T.SUBSCRIBE_ACK, "s2", "q"),
    ]
    assert acks[0].headers == {"queueName": "q", "subscriptionId": "s1"}
    assert list(peer.hear(frame(T.SUBSCRIBE, "s3", "q"))) == []
    assert peer.one().id == "s3"


def test_a_refused_subscription_can_be_tried_again() -> None:
    peer = plain()
    first = peer.ask(T.SUBSCRIBE, "s1", "q")
    assert peer.answer(first, NotAuthorized("no")).error_code == "NOT_AUTHORIZED"
    assert isinstance(peer.ask(T.SUBSCRIBE, "s2", "q"), c.Subscribe)


def test_acks_name_the_delivered_id_or_a_header() -> None:
    peer = plain()
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 5, pack_row("a", b"1"), pack_row("b", b"2"), pack_row("c", b"3"))
    assert [message.id for message in peer.frames()] == ["a", "b", "c"]
    data = frame(T.ACK, "b") + frame(T.ACK, "ack-1", headers={"messageId": "a"}) + frame(T.ACK, "unknown")
    settle, extend = peer.hear(data)
    assert settle == c.Settle(SESSION, None, consumer, c.Settlement.ACK, [(5, 6)])
    assert extend == c.Extend(SESSION, None, consumer, [(7, 7)], None)
    assert peer.frames() == [], "an ack is never answered"


def test_what_waits_behind_an_acknowledged_message_has_its_time_again() -> None:
    peer = plain()
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 5, *(pack_row(name, b"1") for name in "abcd"))
    for now, message_id, behind in ((0, "b", [(7, 8)]), (499, "c", None), (500, "a", [(8, 8)]), (1_000, "d", None)):
        peer.session.tick(NOW + now)
        extends = [request for request in peer.hear(frame(T.ACK, message_id)) if isinstance(request, c.Extend)]
        assert extends == ([c.Extend(SESSION, None, consumer, behind, None)] if behind else [])


def test_what_a_lost_client_cannot_have_begun_goes_back_unharmed() -> None:
    peer = plain()
    here, there = peer.subscribed("s1", "q1"), peer.subscribed("s2", "q2")
    peer.deliver(here, 5, *(pack_row(name, b"1") for name in "abc"))
    peer.deliver(there, 9, pack_row("d", b"1"), queue_id=2)
    release = c.Settlement.RELEASE
    there_too = c.Settle(SESSION, None, there, release, [(9, 9)])
    assert peer.session.unbegun() == [c.Settle(SESSION, None, here, release, [(6, 7)]), there_too]
    peer.hear(frame(T.ACK, "b"))
    assert peer.session.unbegun() == [there_too], "it has passed over a, and may have begun c"
    many = bulk("settle/1")
    many.deliver(many.subscribed("s"), 5, pack_row("a", b"1"), pack_row("b", b"1"))
    assert many.session.unbegun() == [], "nobody knows"


def test_who_can_ask_for_more_time_is_given_none_unasked() -> None:
    peer = bulk("settle/1")
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 5, pack_row("a", b"1"), pack_row("b", b"1"))
    assert list(peer.hear(frame(T.ACK, "a"))) == [c.Settle(SESSION, None, consumer, c.Settlement.ACK, [(5, 5)])]


def test_an_ack_of_invalid_utf8_finds_its_message() -> None:
    peer = plain()
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 5, pack_row(b"\xff\xfe", b"1"))
    body = encode_body(T.ACK, "ab").replace(b"ab", b"\xff\xfe")
    [settle] = peer.hear(encode_frame(body))
    assert isinstance(settle, c.Settle)
    assert settle.runs == [(5, 5)]


def test_deliveries_that_need_no_ack_are_not_remembered() -> None:
    peer = plain()
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 5, pack_row("a", b"1"), settled=True)
    assert peer.one().id == "a"
    assert list(peer.hear(frame(T.ACK, "a"))) == []


def test_an_ack_means_the_delivery_to_the_subscription_that_holds_the_message() -> None:
    peer = bulk("settle/1")
    old = peer.subscribed("s1")
    peer.deliver(old, 5, pack_row("a", b"1"))
    peer.frames()
    peer.answer(peer.ask(T.UNSUBSCRIBE, "u", "q"), None)
    new = peer.subscribed("s2")
    # Its time to settle is over, and the message comes again.
    peer.session.apply([ConsumerLeft(SESSION, old)])
    peer.deliver(new, 5, pack_row("a", b"1"))
    [extend] = peer.hear(frame(T.EXTEND, "a"))
    assert isinstance(extend, c.Extend)
    assert extend.consumer == new
    assert list(peer.hear(frame(T.ACK, "a"))) == [c.Settle(SESSION, None, new, c.Settlement.ACK, [(5, 5)])]
    assert list(peer.hear(frame(T.ACK, "a"))) == []


def test_an_ack_does_not_mean_another_message_of_that_id() -> None:
    """The client has worked on the first one, whose queue has gone, and not on the second one yet."""
    peer = plain()
    gone, here = peer.subscribed("s1", "q1"), peer.subscribed("s2", "q2")
    peer.deliver(gone, 5, pack_row("a", b"1"), queue_id=1)
    peer.deliver(here, 5, pack_row("a", b"1"), queue_id=2)
    peer.frames()
    peer.session.apply([ConsumerEnded(SESSION, gone, "q1", QueueNotFound("q1"))])
    late, extend = peer.hear(frame(T.ACK, "a"))
    assert isinstance(late, c.Settle)
    assert (late.consumer, extend) == (gone, c.Extend(SESSION, None, here, [(5, 5)], None))
    assert list(peer.hear(frame(T.ACK, "a"))) == [c.Settle(SESSION, None, here, c.Settlement.ACK, [(5, 5)])]


def test_unsubscribe_ends_deliveries_and_always_succeeds() -> None:
    peer = plain()
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 5, pack_row("a", b"1"))
    peer.frames()
    request = peer.ask(T.UNSUBSCRIBE, "u", "q")
    assert isinstance(request, c.Unsubscribe)
    peer.deliver(consumer, 6, pack_row("b", b"1"))
    assert peer.one().id == "b", "deliveries may arrive until the answer"
    ack = peer.answer(request, None)
    assert (ack.type, ack.id, ack.queue) == (T.UNSUBSCRIBE_ACK, "u", "q")
    peer.deliver(consumer, 7, pack_row("c", b"1"))
    assert peer.frames() == []
    assert list(peer.session.commands()) == [c.Settle(SESSION, None, consumer, c.Settlement.RELEASE, [(7, 7)])]
    settle, *_ = peer.hear(frame(T.ACK, "a"))
    assert isinstance(settle, c.Settle)
    assert settle.runs == [(5, 5)], "what was delivered may still be settled"
    assert list(peer.hear(frame(T.UNSUBSCRIBE, "u2", "never"))) == []
    assert peer.one().id == "u2"


def test_a_row_too_large_goes_back_to_the_engine() -> None:
    peer = plain()
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 5, pack_row("a", b'"' + b"x" * 1_048_576 + b'"'), pack_row("b", b"1"))
    assert peer.one().id == "b"
    assert peer.session.next_deadline() == NOW
    [settle] = peer.session.commands()
    assert settle == c.Settle(
        SESSION, None, consumer, c.Settlement.REJECT, [(5, 5)], reason="too large for this protocol"
    )


def test_a_plain_subscription_outlives_its_queue() -> None:
    peer = plain()
    consumer = peer.subscribed("s")
    peer.session.apply([ConsumerEnded(SESSION, consumer, "q", QueueNotFound("q"))])
    assert peer.frames() == []
    assert peer.session.next_deadline() == NOW + 1_000
    peer.session.tick(NOW + 1_000)
    [again] = peer.session.commands()
    assert isinstance(again, c.Subscribe)
    assert not again.create, "a deleted queue is not brought back by its subscribers"
    peer.session.apply([Reply(SESSION, again.token, QueueNotFound("q"))])
    assert peer.session.next_deadline() == NOW + 3_000, "later and later"
    peer.session.tick(NOW + 3_000)
    [again] = peer.session.commands()
    assert isinstance(again, c.Subscribe)
    peer.session.apply([Reply(SESSION, again.token, Subscribed("q", "", again.consumer, 1))])
    peer.deliver(again.consumer, 1, pack_row("a", b"1"))
    assert [message.type for message in peer.frames()] == [T.DELIVER]
    peer.session.tick(NOW + 60_000)
    assert list(peer.session.commands()) == []


def test_a_subscription_that_was_given_up_does_not_come_back_with_its_queue() -> None:
    """The client would drop what comes, without a word, until it is dead-lettered."""
    peer = plain()
    consumer = peer.subscribed("s")
    request = peer.ask(T.UNSUBSCRIBE, "u", "q")
    peer.session.apply([ConsumerEnded(SESSION, consumer, "q", QueueNotFound("q"))])
    assert peer.answer(request, None).type == T.UNSUBSCRIBE_ACK
    peer.session.tick(NOW + 60_000)
    assert list(peer.session.commands()) == []


def test_a_new_subscribe_takes_the_place_of_a_renewal() -> None:
    peer = plain()
    peer.session.apply([ConsumerEnded(SESSION, peer.subscribed("s"), "q", QueueNotFound("q"))])
    peer.session.tick(NOW + 1_000)
    [renewal] = peer.session.commands()
    fresh = peer.ask(T.SUBSCRIBE, "s2", "q")
    assert isinstance(renewal, c.Subscribe)
    assert isinstance(fresh, c.Subscribe)
    assert fresh.create
    peer.session.apply([Reply(SESSION, renewal.token, Subscribed("q", "", renewal.consumer, 1))])
    [superfluous] = peer.session.commands()
    assert superfluous == c.Unsubscribe(SESSION, None, renewal.consumer)
    assert peer.answer(fresh, Subscribed("q", "", fresh.consumer, 1)).id == "s2"


def test_subscriptions_are_counted() -> None:
    peer = plain(subscriptions_max=1)
    peer.subscribed("s1", "q1")
    assert list(peer.hear(frame(T.SUBSCRIBE, "s2", "q2"))) == []
    assert peer.one().error_code == "RATE_LIMITED"


def test_very_many_queues_that_have_gone_are_asked_for_in_turns() -> None:
    peer = plain()
    for number in range(150):
        queue = f"q{number}"
        peer.session.apply([ConsumerEnded(SESSION, peer.subscribed("s", queue), queue, QueueNotFound(queue))])
    asked = []
    for _ in range(2):
        assert peer.session.next_deadline() == NOW + 1_000
        peer.session.tick(NOW + 1_000)
        asked.append(len(peer.session.commands()))
    assert asked == [100, 50]
    assert peer.session.next_deadline() == NOW + 3_000


def test_a_subscription_that_waits_for_its_queue_is_counted() -> None:
    peer = plain(subscriptions_max=2)
    for queue in ("q1", "q2"):
        peer.session.apply([ConsumerEnded(SESSION, peer.subscribed("s", queue), queue, QueueNotFound(queue))])
    assert list(peer.hear(frame(T.SUBSCRIBE, "s3", "q3"))) == []
    assert peer.one().error_code == "RATE_LIMITED"
    peer.hear(frame(T.UNSUBSCRIBE, "u", "q2"))
    peer.frames()
    assert isinstance(peer.ask(T.SUBSCRIBE, "s4", "q3"), c.Subscribe)
    assert list(peer.hear(frame(T.SUBSCRIBE, "s5", "q4"))) == []


def test_nack_and_extend_for_plain_deliveries() -> None:
    peer = bulk("settle/1")
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 1, *(pack_row(name, b"1") for name in "abc"))
    peer.frames()
    data = (
        frame(T.EXTEND, "a", headers={"ack-timeout-ms": "9000"})
        + frame(T.NACK, "a", headers={"verb": "retry", "delay-ms": "50", "reason": "not now"})
        + frame(T.NACK, "n1", headers={"messageId": "b", "verb": "release"})
        + frame(T.NACK, "c", headers={"verb": "reject"})
        + frame(T.NACK, "c")
    )
    assert list(peer.hear(data)) == [
        c.Extend(SESSION, None, consumer, [(1, 1)], 9_000),
        c.Settle(SESSION, None, consumer, c.Settlement.RETRY, [(1, 1)], 50, "not now"),
        c.Settle(SESSION, None, consumer, c.Settlement.RELEASE, [(2, 2)]),
        c.Settle(SESSION, None, consumer, c.Settlement.REJECT, [(3, 3)]),
    ]
    peer.hear(frame(T.NACK, "x", headers={"verb": "explode"}))
    assert (peer.one().error_code, peer.session.closing) == ("INVALID_MESSAGE", False)


@pytest.mark.parametrize(
    ("connect", "frames"),
    [
        ({"supported-extensions": "batch/1", "max-body-bytes": "16777216"}, [600_093, 600_093]),
        ({"supported-extensions": "batch/1"}, [1_200_103]),
    ],
)
def test_clients_are_sent_the_larger_frames_of_a_broker_that_takes_them_if_they_read_them(
    connect: dict[str, str], frames: list[int]
) -> None:
    peer = Peer(connect=connect, body_bytes_max=4 << 20)
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 1, *(pack_row(name, b"1" * 600_000) for name in "ab"))
    assert [len(body) // 1_000 for body in peer.bodies()] == [size // 1_000 for size in frames]
    peer.deliver(consumer, 3, pack_row("c", b"1" * 1_500_000))
    data, row = peer.session.data_to_send(), peer.session.row_to_send()
    assert len(data) + (row.size if row is not None else 0) > 1_500_000, "one message, and nothing else"


def test_dotnet_clients_are_sent_no_larger_frame_whatever_the_broker_takes() -> None:
    peer = Peer(connect={}, body_bytes_max=4 << 20)
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 1, pack_row("a", b"1" * 1_048_600))
    assert peer.bodies() == []
    [settle] = peer.session.commands()
    assert isinstance(settle, c.Settle)
    assert settle.verb is c.Settlement.REJECT


def test_the_id_of_a_bulk_subscription_leaves_room_in_the_frames_that_have_it() -> None:
    peer = Peer(connect={"supported-extensions": ALL, "max-body-bytes": "1"})
    consumer = peer.subscribed("s" * 256, "q" * 256)
    peer.deliver(consumer, 1, pack_row("a", b"1"))
    assert len(peer.bodies()) == 1
    assert list(peer.hear(frame(T.SUBSCRIBE, "s" * 65_350, "q" * 256))) == []
    refusal = peer.one()
    assert (refusal.type, refusal.error_code) == (T.ERROR, "INVALID_MESSAGE")


def test_bulk_subscribe_says_what_it_wants() -> None:
    peer = bulk()
    headers = {
        "group": "g",
        "prefetch": "7",
        "prefetch-bytes": "1000",
        "credit": "3",
        "consumer-priority": "2",
        "ack-timeout-ms": "500",
        "start": "sequence:12",
    }
    request = peer.ask(T.SUBSCRIBE, "s1", "q", headers=headers)
    assert isinstance(request, c.Subscribe)
    assert (request.group, request.capacity_messages, request.capacity_bytes, request.credit) == ("g", 7, 1_000, 3)
    assert (request.priority, request.ack_timeout_ms, request.start, request.start_sequence) == (
        2,
        500,
        c.StartAt.SEQUENCE,
        12,
    )
    ack = peer.answer(request, Subscribed("q", "g", request.consumer, 12))
    assert ack.headers == {"queueName": "q", "subscriptionId": "s1", "group": "g"}


@pytest.mark.parametrize(
    "headers", [{"prefetch": "-1"}, {"credit": "x"}, {"start": "sequence:x"}, {"start": "yesterday"}]
)
def test_bad_subscribe_headers(headers) -> None:
    peer = bulk()
    assert list(peer.hear(frame(T.SUBSCRIBE, "s1", "q", headers=headers))) == []
    assert peer.one().error_code == "INVALID_MESSAGE"
    assert isinstance(peer.ask(T.SUBSCRIBE, "s1", "q"), c.Subscribe), "the id is free again"


@pytest.mark.parametrize(("names", "failed"), [("batch/1", {}), ("batch/1,failures/1", {6: 1})])
def test_peers_that_ask_for_it_are_told_which_attempts_have_failed(names: str, failed: dict[int, int]) -> None:
    peer = bulk(names)
    consumer = peer.subscribed("s1")
    peer.deliver(consumer, 5, *(pack_row(name, b"") for name in "abc"), acquired={6: 3, 7: 2}, failed={6: 1})
    [body] = peer.bodies()
    told = extensions.parse_deliver_many(body)
    assert (told.acquired, told.failed) == ({6: 3, 7: 2}, failed)


@pytest.mark.parametrize("names", ["batch/1", "batch/1,failures/1,scattered/1"])
def test_messages_far_apart_travel_in_one_frame_in_their_order(names: str) -> None:
    peer = bulk(names)
    consumer = peer.subscribed("s1")
    order = [9, 3, *range(40, 46), 7, 1]
    large = pack_row("large", b"x" * 300_000)
    slices = [Slice(n, NOW - n, Rows.of([large if n == 3 else pack_row(f"m{n}", b"")])) for n in (9, 3)]
    slices.append(Slice(40, NOW, Rows.of([pack_row(f"m{n}", b"") for n in range(40, 46)])))
    slices += [Slice(n, NOW - n, Rows.of([pack_row(f"m{n}", b"")])) for n in (7, 1)]
    told = Deliver(SESSION, consumer, "q", 1, 0, [(n, n) for n in order], acquired={7: 3, 40: 2}, failed={7: 1})
    peer.session.deliver(told, slices)
    bodies = peer.bodies()
    assert [body[1] for body in bodies] == ([62] * 5 if names == "batch/1" else [62, 62, 62, 74])
    seen: list[tuple[int, str, int]] = []
    for body in bodies:
        scattered = body[1] == T.DELIVER_SCATTERED
        frame = (extensions.parse_deliver_scattered if scattered else extensions.parse_deliver_many)(body)
        numbers = frame.sequences or range(frame.first_sequence, frame.first_sequence + frame.rows.count)
        instants = frame.instants or [frame.published_at] * frame.rows.count
        seen += zip(numbers, frame.rows.ids(), instants, strict=True)
        if 7 in numbers:
            assert (frame.acquired, frame.failed) == ({7: 3}, {7: 1} if scattered else {})
    ids = {n: b"large" if n == 3 else b"m%d" % n for n in order}
    assert seen == [(n, ids[n], NOW if n >= 40 else NOW - n) for n in order]


def test_bulk_subscriptions_deliver_settle_extend_and_flow_by_id() -> None:
    peer = bulk()
    one, two = peer.subscribed("s1"), peer.subscribed("s2")
    assert one != two
    rows = [pack_row("a", b"\xff"), pack_row("b", b"")]
    peer.deliver(two, 5, *rows, acquired={6: 2})
    [body] = peer.bodies()
    frame_in = extensions.parse_deliver_many(body)
    assert (frame_in.id, frame_in.first_sequence, list(frame_in.rows), frame_in.acquired) == ("s2", 5, rows, {6: 2})
    data = b"".join(
        encode_frame(each)
        for each in (
            extensions.settle("s2", 0, [(5, 6)]),
            extensions.settle("s1", 1, [(1, 1)], delay_ms=9, reason="r"),
            extensions.extend_many("s2", [(5, 6)], ack_timeout_ms=50),
            extensions.flow("s2", 10, 20, 30),
            extensions.settle("unknown", 0, [(5, 6)]),
            extensions.flow("unknown", 10),
        )
    )
    assert list(peer.hear(data)) == [
        c.Settle(SESSION, None, two, c.Settlement.ACK, [(5, 6)]),
        c.Settle(SESSION, None, one, c.Settlement.RETRY, [(1, 1)], 9, "r"),
        c.Extend(SESSION, None, two, [(5, 6)], 50),
        c.SetCapacity(SESSION, None, two, 10, 20, 30),
    ]


def test_a_flow_for_a_subscription_of_a_share_is_for_the_share() -> None:
    peer = bulk()
    headers = {"share": "worker", "prefetch": "4", "prefetch-bytes": "9"}
    first = peer.ask(T.SUBSCRIBE, "s1", "q", headers=headers)
    assert isinstance(first, c.Subscribe)
    assert (first.share, first.capacity_messages, first.capacity_bytes) == (c.SharedCapacity("worker", 4, 9), None, 0)
    other = peer.ask(T.SUBSCRIBE, "s2", "q", headers={"share": "worker"})
    assert isinstance(other, c.Subscribe)
    assert other.share == c.SharedCapacity("worker")
    assert list(peer.hear(encode_frame(extensions.flow("s2", 6, 7)))) == [c.SetShare(SESSION, None, "worker", 6, 7)]
    assert list(peer.hear(encode_frame(extensions.flow("s1", 6, 7, 3)))) == [
        c.SetShare(SESSION, None, "worker", 6, 7),
        c.SetCapacity(SESSION, None, first.consumer, END, 0, 3),
    ]
    peer.frames()
    peer.hear(frame(T.SUBSCRIBE, "s3", "q", headers={"share": "s" * 257}))
    answer = peer.one()
    assert (answer.id, answer.error_code) == ("s3", "INVALID_MESSAGE")


def test_bulk_unsubscribe_names_the_subscription_and_settling_goes_on() -> None:
    peer = bulk()
    consumer = peer.subscribed("s1")
    request = peer.ask(T.UNSUBSCRIBE, "u", "q", headers={"subscription-id": "s1"})
    assert peer.answer(request, None).headers["subscriptionId"] == "s1"
    [settle] = peer.hear(encode_frame(extensions.settle("s1", 0, [(1, 2)])))
    assert isinstance(settle, c.Settle)
    assert settle.consumer == consumer


def test_settling_goes_on_until_nothing_is_held_however_many_subscriptions_end_meanwhile() -> None:
    peer = bulk()
    held = peer.subscribed("held")
    peer.answer(peer.ask(T.UNSUBSCRIBE, "u", "q", headers={"subscription-id": "held"}), None)
    for number in range(2_000):
        consumer = peer.subscribed(f"s{number}")
        request = peer.ask(T.UNSUBSCRIBE, "u", "q", headers={"subscription-id": f"s{number}"})
        peer.session.apply([ConsumerLeft(SESSION, consumer)])
        peer.answer(request, None)
        assert list(peer.hear(encode_frame(extensions.settle(f"s{number}", 0, [(1, 1)])))) == []
    [extend] = peer.hear(encode_frame(extensions.extend_many("held", [(1, 2)])))
    assert isinstance(extend, c.Extend)
    assert extend.consumer == held
    peer.session.apply([ConsumerLeft(SESSION, held)])
    assert list(peer.hear(encode_frame(extensions.settle("held", 0, [(1, 2)])))) == []


def test_an_id_that_is_used_again_before_the_answer_is_the_new_subscriptions() -> None:
    peer = bulk()
    first = peer.subscribed("s1")
    request = peer.ask(T.UNSUBSCRIBE, "u", "q", headers={"subscription-id": "s1"})
    second = peer.subscribed("s1")
    peer.session.apply([ConsumerLeft(SESSION, first)])
    peer.answer(request, None)
    [settle] = peer.hear(encode_frame(extensions.settle("s1", 0, [(1, 2)])))
    assert isinstance(settle, c.Settle)
    assert settle.consumer == second
    ended = peer.ask(T.UNSUBSCRIBE, "u", "q", headers={"subscription-id": "s1"})
    assert isinstance(ended, c.Unsubscribe)
    assert ended.consumer == second


@pytest.mark.parametrize("unsubscribed", [False, True])
def test_a_subscription_that_the_broker_ends_holds_nothing(unsubscribed: bool) -> None:
    peer = bulk()
    consumer = peer.subscribed("s1")
    if unsubscribed:
        peer.ask(T.UNSUBSCRIBE, "u", "q", headers={"subscription-id": "s1"})
    peer.session.apply([ConsumerEnded(SESSION, consumer, "q", QueueNotFound("q"))])
    assert list(peer.hear(encode_frame(extensions.settle("s1", 0, [(1, 1)])))) == []


def test_a_bulk_subscription_that_ends_is_told() -> None:
    peer = bulk()
    consumer = peer.subscribed("s1")
    peer.session.apply([ConsumerEnded(SESSION, consumer, "q", QueueNotFound("q"))])
    [body] = peer.bodies()
    ended = extensions.parse_subscription_ended(body)
    assert (ended.id, ended.queue, ended.code) == ("s1", "q", "QUEUE_NOT_FOUND")


def test_a_subscription_id_is_used_once_at_a_time() -> None:
    peer = bulk()
    peer.subscribed("s1")
    assert list(peer.hear(frame(T.SUBSCRIBE, "s1", "other"))) == []
    assert peer.one().error_code == "INVALID_MESSAGE"


def test_a_subscription_has_a_selector_and_a_weight() -> None:
    peer = Peer(connect={"supported-extensions": f"{ALL},where/1"})
    request = peer.ask(T.SUBSCRIBE, "s1", "q", headers={"where": "total > 1", "consumer-weight": "3"})
    assert isinstance(request, c.Subscribe)
    assert (request.where, request.weight) == (Selector.parse("total > 1"), 3)
    plain = peer.ask(T.SUBSCRIBE, "s2", "q")
    assert isinstance(plain, c.Subscribe)
    assert (plain.where, plain.weight) == (None, 1)


def test_a_selector_that_cannot_be_read_is_refused_and_the_connection_stays() -> None:
    peer = Peer(connect={"supported-extensions": f"{ALL},where/1"})
    assert list(peer.hear(frame(T.SUBSCRIBE, "s1", "q", headers={"where": "total = 1"}))) == []
    (error,) = peer.frames()
    assert (error.id, error.error_code, peer.session.closing) == ("s1", "INVALID_SELECTOR", False)
    assert "character 7" in error.error_message
    # The id was not taken.
    assert isinstance(peer.ask(T.SUBSCRIBE, "s1", "q", headers={"where": "total == 1"}), c.Subscribe)


def test_who_has_not_negotiated_selectors_has_none() -> None:
    peer = Peer(connect={"supported-extensions": "batch/1"})
    request = peer.ask(T.SUBSCRIBE, "s1", "q", headers={"where": "total = 1"})
    assert isinstance(request, c.Subscribe)
    assert request.where is None
