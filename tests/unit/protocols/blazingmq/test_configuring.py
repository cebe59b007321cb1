"""Configures of streams: their two rounds, their order, and what a refusal leaves."""

from tests.interop.blazingmq.model_sdk import READ, ModelSdk
from tests.unit.protocols.blazingmq.session_room import QUEUE, URI, SessionRoom
from vibemq.errors import NotAuthorized, RateLimited
from vibemq.model.commands import (
    CreateQueue,
    SetCapacity,
    SetShare,
    Settle,
    Settlement,
    StartAt,
    Subscribe,
    Unsubscribe,
)
from vibemq.model.effects import Subscribed
from vibemq.model.runs import END
from vibemq.protocols.blazingmq.codec.events import ControlCodec
from vibemq.protocols.blazingmq.codec.messages import (
    ConfigureStream,
    ConfigureStreamResponse,
    ConsumerInfo,
    Expression,
    ExpressionVersion,
    RequestStatus,
    StatusCategory,
    StreamParameters,
    StreamSubscription,
)
from vibemq.protocols.blazingmq.subscriptions import SUBSCRIPTIONS_MAX


def test_a_reader_is_handed_nothing_before_its_configure_is_answered(room: SessionRoom) -> None:
    room.open()
    room.say(room.sdk.configure(0, messages=7, size=99, priority=3, weight=2)[1])
    subscribe = room.next(Subscribe)
    assert (subscribe.capacity_messages, subscribe.priority, subscribe.weight) == (0, 3, 2)
    assert subscribe.share is not None
    assert (subscribe.share.messages, subscribe.share.size, subscribe.ack_timeout_ms) == (7, 99, 0)
    assert not any(isinstance(request, SetCapacity) for request in room.asked)
    room.answer(subscribe, Subscribed(QUEUE, "", subscribe.consumer, 1))
    assert room.next(SetCapacity).consumer == subscribe.consumer
    room.deliver(subscribe.consumer, 1, b"a")
    assert room.pushed == [b"a"]


def test_a_reconfigure_ends_the_old_sid_with_its_response(room: SessionRoom) -> None:
    room.open()
    old = room.configure()
    room.say(room.sdk.configure(0, messages=7, size=99)[1])
    pause, subscribe = room.next(SetCapacity), room.next(Subscribe)
    assert (pause.consumer, pause.capacity_messages) == (old, 0)
    assert subscribe.share is not None
    assert (subscribe.share.messages, subscribe.share.size) == (None, None)
    assert subscribe.beside == old, "in a broadcast it gets what has come for that"
    room.deliver(old, 1, b"on its way")
    room.answer(subscribe, Subscribed(QUEUE, "", subscribe.consumer, 1))
    unsubscribe, share = room.next(Unsubscribe), room.next(SetShare)
    assert unsubscribe.consumer == old
    assert (share.share, share.capacity_messages, share.capacity_bytes) == (subscribe.share.name, 7, 99)
    room.deliver(old, 2, b"the last")
    assert room.pushed == [b"on its way", b"the last"]
    room.answer(unsubscribe)
    assert room.next(SetCapacity).consumer == subscribe.consumer
    room.deliver(subscribe.consumer, 3, b"new")
    assert room.pushed == [b"on its way", b"the last", b"new"]
    room.deliver(old, 4, b"too late")
    assert room.next(Settle).verb is Settlement.RELEASE
    room.say(room.sdk.confirm(0, *(push.guid for push in room.sdk.got.pushes)))
    settled = {(settle.consumer, *settle.runs) for settle in room.asked if isinstance(settle, Settle)}
    assert settled == {(old, (1, 2)), (subscribe.consumer, (3, 3))}


def test_a_refused_reconfigure_leaves_the_reader_as_it_was(room: SessionRoom) -> None:
    room.open()
    old = room.configure()
    r_id, request = room.sdk.configure(0, expressions=("a == 1", "b == 1"))
    room.say(request)
    assert room.next(SetCapacity).capacity_messages == 0
    first, second = room.next(Subscribe), room.next(Subscribe)
    room.answer(first, Subscribed(QUEUE, "", first.consumer, 1))
    room.answer(second, RateLimited("too fast"))
    assert isinstance(room.sdk.got.responses[r_id], RequestStatus)
    assert {room.next(Unsubscribe).consumer, room.next(Unsubscribe).consumer} == {first.consumer, second.consumer}
    resumed = room.next(SetCapacity)
    assert (resumed.consumer, resumed.capacity_messages) == (old, END)
    assert not room.asked
    room.deliver(old, 1, b"still under the old sId")
    assert room.pushed == [b"still under the old sId"]
    assert room.configure() not in (old, first.consumer, second.consumer)


def test_a_refused_reconfigure_of_a_paused_reader_leaves_it_paused(room: SessionRoom) -> None:
    room.open()
    room.configure(messages=0)
    room.say(room.sdk.configure(0)[1])
    room.answer(room.next(Subscribe), RateLimited("too fast"))
    room.next(SetCapacity)
    assert not any(isinstance(request, SetCapacity) for request in room.asked)


def test_configures_of_a_stream_are_carried_out_one_after_another(room: SessionRoom) -> None:
    room.open()
    old = room.configure()
    asked = [room.sdk.configure(0, priority=priority) for priority in (1, 2)]
    room.say(b"".join(request for _, request in asked))
    subscribe = room.next(Subscribe)
    assert subscribe.priority == 1
    assert not any(isinstance(request, Subscribe) for request in room.asked)
    room.answer(subscribe, Subscribed(QUEUE, "", subscribe.consumer, 1))
    unsubscribe = room.next(Unsubscribe)
    assert unsubscribe.consumer == old
    room.answer(unsubscribe)
    assert list(room.sdk.got.responses)[-1] == asked[0][0]
    assert room.next(Subscribe).priority == 2


def test_a_limit_of_nothing_is_a_pause() -> None:
    for how in ({"messages": 0}, {"size": 0}):
        room = SessionRoom()
        room.open()
        room.say(room.sdk.configure(0, **how)[1])
        subscribe = room.next(Subscribe)
        assert subscribe.share is not None
        assert subscribe.share.messages == 0
        room.answer(subscribe, Subscribed(QUEUE, "", subscribe.consumer, 1))
        assert not room.asked


def test_several_consumers_of_one_subscription_have_its_sid(room: SessionRoom) -> None:
    room.open()
    infos = tuple(
        ConsumerInfo(max_unconfirmed_messages=5 + n, max_unconfirmed_bytes=99, consumer_priority=n) for n in range(2)
    )
    one = StreamSubscription(s_id=77, expression=Expression(text=""), consumers=infos)
    parameters = StreamParameters(subscriptions=(one,))
    stream = room.sdk.queues[0].streams[0]
    room.say(room.sdk.request(ConfigureStream(q_id=0, stream_parameters=parameters), stream)[1])
    asked = [request for request in room.asked if isinstance(request, Subscribe)]
    assert [subscribe.priority for subscribe in asked] == [0, 1]
    assert [subscribe.share and subscribe.share.messages for subscribe in asked] == [5, 6]
    room.answer_all()
    assert stream.s_ids == {77}
    for number, subscribe in enumerate(asked, 1):
        room.deliver(subscribe.consumer, number, b"%d" % number)
    assert room.pushed == [b"1", b"2"]
    room.say(room.sdk.confirm(0, *(push.guid for push in room.sdk.got.pushes)))
    settled = [(settle.consumer, settle.runs) for settle in room.asked if isinstance(settle, Settle)]
    assert settled == [(asked[0].consumer, [(1, 1)]), (asked[1].consumer, [(2, 2)])]


def test_all_consumers_of_all_subscriptions_are_counted(room: SessionRoom) -> None:
    room.open()
    infos = (ConsumerInfo(consumer_priority=0),) * (SUBSCRIPTIONS_MAX + 1)
    one = StreamSubscription(s_id=1, expression=Expression(text=""), consumers=infos)
    request = ConfigureStream(q_id=0, stream_parameters=StreamParameters(subscriptions=(one,)))
    r_id, said = room.sdk.request(request, room.sdk.queues[0].streams[0])
    room.say(said)
    answer = room.sdk.got.responses[r_id]
    assert isinstance(answer, RequestStatus)
    assert answer.category is StatusCategory.E_INVALID_ARGUMENT
    assert f"at most {SUBSCRIPTIONS_MAX}" in answer.message


def test_a_stream_may_have_hundreds_of_subscriptions_with_long_expressions_which_are_read_in_steps() -> None:
    room = SessionRoom(ModelSdk(codec=ControlCodec.JSON))
    room.open()
    expressions = [f"{'property' * 14} == {number}" for number in range(SUBSCRIPTIONS_MAX)]
    r_id, request = room.sdk.configure(0, expressions=expressions)
    assert len(request) > room.session._state.context.limits.handshake_bytes_max
    room.session.receive_data(request)
    assert not room.session.commands()
    assert room.session.unread, "others have their turns meanwhile"
    room.take()
    asked = [command.where and command.where.text for command in room.asked if isinstance(command, Subscribe)]
    assert asked == expressions
    room.answer_all()
    assert isinstance(room.sdk.got.responses[r_id], ConfigureStreamResponse)


def test_a_wrong_expression_among_many_is_refused_and_what_follows_is_heard(room: SessionRoom) -> None:
    room.open()
    expressions = [*(f"x == {number}" for number in range(100)), "x >"]
    (r_id, configure), (later, again) = room.sdk.configure(0, expressions=expressions), room.sdk.configure(0)
    room.say(configure + again)
    answer = room.sdk.got.responses[r_id]
    assert isinstance(answer, RequestStatus)
    assert answer.category is StatusCategory.E_INVALID_ARGUMENT
    room.answer_all()
    assert isinstance(room.sdk.got.responses[later], ConfigureStreamResponse)


def test_an_application_without_a_group_begins_with_all_that_the_queue_keeps() -> None:
    """Its client may not create queues, so neither may it add the group when it opens the queue."""
    room = SessionRoom(mode="fanout", app_ids=("foo",))
    room.say(room.sdk.open(URI, 0, flags=READ, sub_id=1, app_id="foo")[1])
    room.answer(room.next(CreateQueue), NotAuthorized("no"))
    room.say(room.sdk.configure(0, app_id="foo")[1])
    subscribe = room.next(Subscribe)
    assert (subscribe.group, subscribe.start) == ("foo", StartAt.BEGINNING)


def test_an_expression_without_text_wants_everything(room: SessionRoom) -> None:
    room.open()
    everything = Expression(version=ExpressionVersion.E_VERSION_1, text="")
    one = StreamSubscription(s_id=3, expression=everything, consumers=(ConsumerInfo(max_unconfirmed_messages=1),))
    request = ConfigureStream(q_id=0, stream_parameters=StreamParameters(subscriptions=(one,)))
    room.say(room.sdk.request(request, room.sdk.queues[0].streams[0])[1])
    assert room.next(Subscribe).where is None
    room.answer_all()
