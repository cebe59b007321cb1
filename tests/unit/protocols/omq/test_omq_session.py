"""The exchange: who may say what when, and what is answered. Numbers: the decisions of docs/spec/omq.md."""

from typing import Any

import pytest

from tests.unit.protocols.omq.world import (
    BROADCAST,
    NOW,
    SECOND,
    VERSION_ONE,
    Client,
    World,
    context,
    start,
    subscribed,
    unsubscribed,
)
from vibemq.errors import (
    ErrorCode,
    NotAuthorized,
    StorageFull,
)
from vibemq.model.commands import DeleteQueue, Unsubscribe
from vibemq.model.effects import Reply
from vibemq.protocols.omq import PLUGIN, OmqSession, OmqSettings, session
from vibemq.protocols.omq.errors import WIRE_CODES
from vibemq.protocols.omq.frames import (
    Error,
    MessageFrame,
    UnsubscribedFrame,
)
from vibemq.protocols.omq.session import REQUESTS_AT_ONCE, TOKENS_AT_ONCE
from vibemq.protocols.omq.sexp import SexpReader
from vibemq.protocols.session import Authenticate, Goodbye, Principal

# -- 5, 6: pings and the heartbeat ------------------------------------------------------------------------------------


def test_pings_come_every_25_seconds_whatever_else_is_sent(world: World) -> None:
    client = world.connect()
    client.say(b"(Subscribe orders From_current)")
    seconds = []
    for _ in range(200):
        world.publish("orders", b"x")
        world.advance(500)
        client.say(b"(Ack 1)")
        seconds += client.pings()
    assert seconds == [SECOND, SECOND + 25, SECOND + 50, SECOND + 75, SECOND + 100]


def test_the_interval_is_a_setting_of_at_most_50_seconds() -> None:
    world = World(settings=OmqSettings(ping_interval_ms=2_000))
    client = world.connect()
    world.advance(6_001)
    assert client.pings() == [SECOND, SECOND + 2, SECOND + 4, SECOND + 6]
    with pytest.raises(ValueError, match="50000"):
        OmqSettings(ping_interval_ms=50_001)


@pytest.mark.parametrize("ack_timeout_ms", [10_000, 25_000])
def test_who_answers_every_ping_is_never_taken_for_silent(ack_timeout_ms: int) -> None:
    with pytest.raises(ValueError, match="more than ping_interval_ms"):
        OmqSettings(ack_timeout_ms=ack_timeout_ms)
    assert OmqSettings(ack_timeout_ms=ack_timeout_ms, ping_interval_ms=ack_timeout_ms - 1)


def test_a_client_that_completes_no_command_is_closed_after_100_seconds(world: World) -> None:
    client = world.connect()
    world.advance(50_000)
    client.say(b"(Ack")
    world.advance(49_000)
    assert not client.gone
    world.advance(1_002)
    assert client.frames() == [Error("heartbeat timeout: no command within 100000 ms")]
    assert client.gone


@pytest.mark.parametrize(
    "sign", [b"(Ack 1)", b"(Ack nan)", b"(Ack -inf)", b"(Ack (2023-11-14 22:13:20.000000))", b"(Unknown)", b"word "]
)
def test_any_complete_command_is_a_sign_of_life(world: World, sign: bytes) -> None:
    client = world.connect()
    for _ in range(5):
        world.advance(90_000)
        client.say(sign)
    assert not client.gone
    world.advance(101_000)
    assert client.gone


def test_a_dead_client_is_closed_even_while_an_answer_is_owed(world: World) -> None:
    client = world.connect()
    world.hold = True
    client.say(b"(Subscribe brandnew From_current)")
    world.advance(101_000)
    assert client.gone
    assert client.frames() == [Error("heartbeat timeout: no command within 100000 ms")]


@pytest.mark.parametrize(
    "ack", [b"(Ack 5", b"(Ack 99999999999999)", b"(Ack yesterday)", b"(Ack (1 2 3 4))", b"(Ack ())"]
)
def test_no_ack_ends_the_connection(world: World, ack: bytes) -> None:
    client = world.connect()
    client.say(ack.rstrip(b")") + b")" * ack.count(b"(") + b"(Subscribe orders From_current)")
    assert client.frames()[-1] == subscribed(1, "orders")


# -- 8, 10 to 13, 18: answers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"(Publish orders body)", "unknown command: 'Publish'"),
        (b"(CONNECT 1 x)", "unknown command: 'CONNECT'"),
        (b"()", "malformed command: () is empty"),
        (b"((Connect) 1 x)", "malformed command: a list stands where the command's name should"),
        (b"hello ", "malformed command: 'hello' stands alone; a command is in parentheses"),
        (b"(Subscribe orders)", "malformed command: Subscribe takes 2 arguments, not 1"),
        (b"(Subscribe orders From_nowhere)", "malformed command: Subscribe: 'From_nowhere' is not a Replay.t"),
        (b"(Subscribe orders (From_message 5.0))", "malformed command: Subscribe: '5.0' is not an integer"),
        (b"(Subscribe (orders) From_current)", "malformed command: Subscribe: an atom is needed, not a list"),
        (b"(Ack yesterday)", "malformed command: Ack: 'yesterday' is not a number"),
        (b"(Unsubscribe orders)", "not subscribed: orders"),
        (b'(Unsubscribe "a\nb")', "not subscribed: a b"),
        (b'(Subscribe "" From_current)', "invalid topic: a name has 1 to 1024 bytes, not 0"),
        (b"(Subscribe " + b"x" * 1025 + b" From_current)", "invalid topic: a name has 1 to 1024 bytes, not 1025"),
        (b'(Subscribe "\\255" From_current)', "invalid topic: the name is not UTF-8"),
    ],
)
def test_an_error_that_leaves_the_connection_open(world: World, said: bytes, text: str) -> None:
    client = world.connect()
    client.say(said)
    assert client.error() == text
    client.say(b"(Subscribe orders From_current)")
    assert client.frames() == [subscribed(1, "orders")]


@pytest.mark.parametrize("said", [b")", b'("\\999")', b"(a#|b)", b"(" * 65, b"(" + b"a" * 65_536])
def test_an_error_that_ends_the_connection(world: World, said: bytes) -> None:
    client = world.connect()
    client.say(b"(Subscribe orders From_current)" + said)
    first, error = client.frames()
    assert first == subscribed(1, "orders")
    assert isinstance(error, Error)
    assert error.text.startswith("malformed command: ")
    assert client.gone
    assert client.broken is not None


def test_a_topic_name_that_cannot_be_a_queue_is_refused(world: World) -> None:
    client = world.connect()
    client.say(b'(Subscribe "a b" From_current)(Subscribe a/b From_current)')
    assert [frame.text.split(":")[0] for frame in client.frames() if isinstance(frame, Error)] == ["invalid topic"] * 2


def test_an_unknown_topic_is_created_or_refused_as_the_broker_is_told(world: World) -> None:
    client = world.connect()
    client.say(b"(Subscribe new From_current)")
    assert client.frames() == [subscribed(1, "new")]
    strict = World(auto_create=False).connect()
    strict.say(b"(Subscribe new From_current)")
    assert strict.error() == "unknown topic: new"


def test_a_second_subscribe_is_refused_and_changes_nothing(world: World) -> None:
    client = world.connect()
    client.say(b"(Subscribe orders From_current)(Subscribe orders From_beginning)")
    assert client.frames() == [subscribed(1, "orders"), Error("already subscribed: orders")]
    world.publish("orders", b"once")
    assert client.bodies() == [b"once"]


def test_answers_come_in_the_order_of_the_commands_though_one_must_wait(world: World) -> None:
    client = world.connect()
    world.hold = True
    client.say(
        b"(Subscribe brandnew From_current)(Subscribe orders From_current)(Unsubscribe nothing)(Ack 1)"
        b"(Unsubscribe orders)(Nonsense)"
    )
    assert client.frames() == []
    world.hold = False
    world.keep()
    world.advance(20)
    assert client.frames() == [
        subscribed(1, "brandnew"),
        subscribed(2, "orders"),
        Error("not subscribed: nothing"),
        unsubscribed(2, "orders"),
        Error("unknown command: 'Nonsense'"),
    ]


def test_commands_on_a_topic_wait_for_the_engines_word_on_it(world: World) -> None:
    client = world.connect()
    client.say(
        b"(Subscribe jobs (From_message 5))(Subscribe jobs From_current)(Subscribe jobs From_current)(Unsubscribe jobs)"
    )
    assert client.frames() == [
        Error("replay needs a broadcast queue: jobs"),
        subscribed(1, "jobs"),
        Error("already subscribed: jobs"),
        unsubscribed(1, "jobs"),
    ]


def test_commands_that_wait_for_one_answer_are_each_looked_at_once_and_some_at_a_time(world: World) -> None:
    """One topic asked for and left again and again, while the engine's word on it is awaited."""
    pairs = 500
    client = world.connect()
    world.hold = True
    client.say(b"(Subscribe brandnew From_current)(Unsubscribe brandnew)" + b"(Unsubscribe brandnew)" * 2 * pairs)
    client.say(b"(Subscribe brandnew From_current)(Unsubscribe brandnew)" * pairs + b"(Nonsense)")
    looked_at = most = 0
    subscriptions = client.session._subscriptions
    say, go_on = subscriptions._say, subscriptions.go_on

    def counted(*arguments: Any) -> None:
        nonlocal looked_at
        looked_at += 1
        say(*arguments)

    def noted(number: int) -> None:
        nonlocal most
        before = looked_at
        go_on(number)
        most = max(most, looked_at - before)

    subscriptions._say, subscriptions.go_on = counted, noted  # type: ignore[method-assign]
    world.hold = False
    while world.held:
        world.effect_router.release(world.held.popleft()[1])
    assert looked_at == 0, "not within the answer: there may be very many"
    assert client.session.unread
    client.process()
    answers = client.frames()
    assert most == TOKENS_AT_ONCE
    assert looked_at < 5 * pairs
    both = [subscribed(1, "brandnew"), unsubscribed(1, "brandnew")]
    refused = [Error("not subscribed: brandnew")] * 2 * pairs
    assert answers == both + refused + both * pairs + [Error("unknown command: 'Nonsense'")]


def test_the_last_error_waits_for_the_answers_before_it(world: World) -> None:
    client = world.connect()
    world.hold = True
    client.say(b"(Subscribe brandnew From_current))(Subscribe orders From_current)")
    assert client.frames() == []
    assert not client.gone
    world.hold = False
    world.keep()
    client.process()
    first, second = client.frames()
    assert first == subscribed(1, "brandnew")
    assert isinstance(second, Error)
    assert client.gone


def test_a_refusal_of_the_guard_is_an_answer(world: World) -> None:
    talk = start(VERSION_ONE + b"(Connect 1 a)(Subscribe orders From_current)")
    [request] = talk.commands()
    assert isinstance(request, Authenticate)
    talk.authenticated(request.token, Principal("a"))
    [command] = talk.commands()
    talk.refused(command.token, NotAuthorized("a may not subscribe"))
    assert talk.data_to_send()[8:].endswith(b"\0not authorized: a may not subscribe")
    assert not talk.closing


def test_subscriptions_are_limited(world: World) -> None:
    world.settings = OmqSettings(subscriptions_max=2)
    client = world.connect()
    client.say(b"(Subscribe a From_current)(Subscribe b From_current)(Subscribe c From_current)(Unsubscribe a)")
    assert client.frames() == [
        subscribed(1, "a"),
        subscribed(2, "b"),
        Error("too many subscriptions: 2 at a time; open another connection"),
        unsubscribed(1, "a"),
    ]
    client.say(b"(Subscribe c From_current)")
    assert client.frames() == [subscribed(3, "c")]


# -- 14, 15: topics ----------------------------------------------------------------------------------------------------


def test_topic_ids_count_from_one_in_each_connection_and_stay_with_their_topic(world: World) -> None:
    client = world.connect()
    client.say(b"(Subscribe a From_current)(Subscribe b From_current)(Unsubscribe a)(Subscribe c From_current)")
    client.say(b"(Subscribe a From_current)")
    assert client.frames() == [
        subscribed(1, "a"),
        subscribed(2, "b"),
        unsubscribed(1, "a"),
        subscribed(3, "c"),
        subscribed(1, "a"),
    ]
    other = world.connect()
    other.say(b"(Subscribe c From_current)")
    assert other.frames() == [subscribed(1, "c")]


def test_no_message_comes_before_its_subscribed_or_after_its_unsubscribed(world: World) -> None:
    world.publish("orders", *(b"%d" % number for number in range(100)))
    client = world.connect()
    client.say(b"(Subscribe orders From_beginning)(Unsubscribe orders)(Subscribe orders From_beginning)")
    frames = client.frames()
    assert [frame for frame in frames if not isinstance(frame, MessageFrame)] == [
        subscribed(1, "orders"),
        unsubscribed(1, "orders"),
        subscribed(1, "orders"),
    ]
    last = frames.index(unsubscribed(1, "orders"))
    assert [frame.id for frame in frames[last:] if isinstance(frame, MessageFrame)] == list(range(1, 101))
    client.say(b"(Unsubscribe orders)")
    assert client.frames() == [unsubscribed(1, "orders")]
    world.publish("orders", b"unheard")
    assert client.frames() == []


def test_a_full_socket_delays_the_unsubscribed_but_brings_no_message_behind_it(world: World) -> None:
    world.publish("orders", *(b"x" * 1000 for _ in range(2_000)))
    client = world.connect()
    client.room = 300_000
    client.say(b"(Subscribe orders From_beginning)")
    client.say(b"(Unsubscribe orders)(Subscribe jobs From_current)")
    assert not any(isinstance(frame, UnsubscribedFrame) for frame in client.frames())
    client.room = None
    assert client.frames() == [unsubscribed(1, "orders"), subscribed(2, "jobs")], "what was not wanted is not sent"


def test_a_deleted_queue_ends_its_subscriptions_unasked(world: World) -> None:
    client = world.connect()
    client.say(b"(Subscribe orders From_current)(Subscribe jobs From_current)")
    client.frames()
    world.decide([DeleteQueue(0, None, "orders")])
    assert client.frames() == [unsubscribed(1, "orders")]
    client.say(b"(Unsubscribe orders)")
    assert client.error() == "not subscribed: orders"
    world.queue("orders", BROADCAST)
    client.say(b"(Subscribe orders From_current)")
    assert client.frames() == [subscribed(1, "orders")]


@pytest.mark.parametrize("deleted_first", [False, True])
def test_a_queue_deleted_while_unsubscribing_is_told_once(world: World, deleted_first: bool) -> None:
    world.publish("orders", *(b"x" * 1000 for _ in range(1_000)))
    client = world.connect()
    client.room = 100_000
    client.say(b"(Subscribe orders From_beginning)")
    if deleted_first:
        world.decide([DeleteQueue(0, None, "orders")])
    client.say(b"(Unsubscribe orders)")
    if not deleted_first:
        world.decide([DeleteQueue(0, None, "orders")])
    client.room = None
    assert [frame for frame in client.frames() if not isinstance(frame, MessageFrame)] == [
        subscribed(1, "orders"),
        unsubscribed(1, "orders"),
    ]


# -- 24: where a command ends -----------------------------------------------------------------------------------------


def test_commands_need_no_line_of_their_own(world: World) -> None:
    client = world.connect()
    client.say(b"(Subscribe orders\n From_current)(Unsubscribe orders) ; bye\r\n#| x |# ")
    client.say(b"(Subscribe\n\njobs From_current)")
    assert client.frames() == [subscribed(1, "orders"), unsubscribed(1, "orders"), subscribed(2, "jobs")]


# -- 26: ends ----------------------------------------------------------------------------------------------------------


def say_all(client: Client, data: bytes) -> None:
    client.say(data)
    client.end()


def test_after_the_end_of_stream_what_is_queued_is_written(world: World) -> None:
    world.publish("orders", *(b"%d" % number for number in range(1_000)))
    client = world.connect(hello=b"")
    say_all(client, VERSION_ONE + b"(Connect 1 nc)(Subscribe orders From_beginning)")
    assert client.gone
    assert client.clean
    assert client.bodies() == [b"%d" % number for number in range(1_000)]


def test_an_end_of_stream_waits_for_a_full_socket(world: World) -> None:
    world.publish("orders", *(b"x" * 1000 for _ in range(1_000)))
    client = world.connect()
    client.room = 1_000
    say_all(client, b"(Subscribe orders From_beginning)")
    world.advance(200_000)
    assert not client.gone, "its silence is no fault now"
    client.room = None
    client.pump()
    client.process()
    assert client.gone
    assert len(client.bodies()) == 1_000


def test_an_end_of_stream_waits_for_the_answers(world: World) -> None:
    client = world.connect()
    world.hold = True
    say_all(client, b"(Subscribe brandnew From_current)(Nonsense)")
    assert not client.gone
    world.hold = False
    world.keep()
    world.advance(20)
    assert client.gone
    assert client.frames() == [subscribed(1, "brandnew"), Error("unknown command: 'Nonsense'")]


def test_an_end_of_stream_waits_for_answers_and_for_what_follows_from_them(world: World) -> None:
    world.publish("orders", b"1", b"2")
    client = world.connect()
    world.hold = True
    say_all(client, b"(Subscribe brandnew From_current)(Subscribe orders From_beginning)")
    world.hold = False
    world.keep()
    world.advance(20)
    assert client.gone
    assert client.bodies() == [b"1", b"2"]


def test_after_an_end_of_stream_a_refusal_that_comes_late_is_the_end() -> None:
    talk = start(VERSION_ONE + b"(Connect 1 alice)")
    [request] = talk.commands()
    talk.authenticated(request.token, Principal("alice"))
    talk.receive_data(b"(Subscribe brandnew From_current)")
    talk.receive_data(b"")
    [subscribe] = talk.commands()
    talk.tick(NOW + 1)
    assert list(talk.commands()) == []
    talk.apply([Reply(1, subscribe.token, StorageFull("no room"))])
    deadline = talk.next_deadline()
    assert deadline is not None
    assert deadline <= NOW + 1
    assert [type(each) for each in talk.commands()] == [Goodbye]


def test_at_an_end_of_stream_subscriptions_end_some_at_a_time(world: World) -> None:
    client = world.connect()
    client.say(b"".join(b"(Subscribe topic%d From_current)" % number for number in range(200)))
    client.session.receive_data(b"")
    asked = []
    while not client.session.closing and (requests := client.session.commands()):
        assert client.session.unread == (len(asked) < 3)
        asked.append(len(requests))
        if not isinstance(requests[0], Goodbye):
            world.decide([request for request in requests if isinstance(request, Unsubscribe)])
    assert asked == [REQUESTS_AT_ONCE] * 3 + [200 - 3 * REQUESTS_AT_ONCE, 1]


def test_an_end_of_stream_within_a_command_is_an_error(world: World) -> None:
    client = world.connect()
    say_all(client, b"(Subscribe orders From_curr")
    assert client.error() == "malformed command: the stream ended within a command"
    assert client.gone


def test_an_end_of_stream_without_subscriptions_just_closes(world: World) -> None:
    client = world.connect()
    client.end()
    assert client.gone
    assert client.frames() == []


def test_a_stopping_broker_says_so(world: World) -> None:
    client = world.connect()
    client.session.shutdown("server_shutdown")
    assert client.error().startswith("shutting down: ")
    silent = OmqSession(context(), OmqSettings())
    silent.shutdown("server_shutdown")
    assert silent.data_to_send() == b"", "before the handshake there is no word for it"


def test_who_has_to_go_alone_is_told_why_and_not_that_the_broker_stops(world: World) -> None:
    client = world.connect()
    client.session.shutdown("the token has expired; connect with a valid one")
    assert client.error() == "closed: the token has expired; connect with a valid one"


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_every_error_code_has_a_text() -> None:
    assert set(WIRE_CODES) == set(ErrorCode)
    assert all(text and text == text.lower() and ":" not in text for text in WIRE_CODES.values())


def test_a_flood_of_waiting_commands_ends_the_connection(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "UNANSWERED_MAX", 100)
    client = world.connect()
    world.hold = True
    client.say(b"(Subscribe brandnew From_current)")
    for _ in range(20):
        client.say(b"(Unsubscribe x)" * 10)
    world.hold = False
    world.keep()
    client.process()
    frames = client.frames()
    assert frames == [
        subscribed(1, "brandnew"),
        *[Error("not subscribed: x")] * 99,
        Error("malformed command: more than 100 commands wait for their answers"),
    ]
    assert client.gone


def test_the_plugin() -> None:
    assert PLUGIN.name == "omq"
    assert PLUGIN.port == 7460
    assert isinstance(PLUGIN.create(context(), PLUGIN.settings()), OmqSession)


def test_what_follows_from_an_answer_is_due_at_once(world: World) -> None:
    client = world.connect()
    world.advance(1)
    world.hold = True
    client.say(b"(Subscribe brandnew From_current)")
    client.tick()
    assert client.session.next_deadline() == NOW + 25_000, "the next ping"
    world.effect_router.release(world.held.popleft()[1])
    deadline = client.session.next_deadline()
    assert deadline is not None
    assert deadline <= world.now


def test_a_broadcast_subscriber_that_settles_nothing_is_left_alone(world: World) -> None:
    client = world.connect()
    client.say(b"(Subscribe orders From_current)")
    world.publish("orders", b"x")
    world.advance(2_000)
    client.say(b"(Ack 1)")
    client.tick()
    assert client.session.next_deadline() == NOW + 25_000, "the next ping"


# -- very many commands in one piece ----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [b"(Ack 1)\n", b'(Ack "1")\n', b"((((((", b"; a comment\n"])
def test_commands_that_come_together_are_read_in_pieces(command: bytes) -> None:
    reader = SexpReader(nesting_max=1 << 20, bytes_max=1 << 20)
    reader.receive_data(command * 10_000)
    pieces = 0
    while pieces == 0 or reader.unread:
        pieces += 1
        assert len(list(reader.values(100))) <= 100
    assert pieces >= 100


def test_every_command_of_a_piece_is_read_and_the_end_comes_behind_them() -> None:
    talk = start(VERSION_ONE + b"(Connect 1 alice)")
    [request] = talk.commands()
    assert isinstance(request, Authenticate)
    talk.authenticated(request.token, Principal("alice"))
    talk.receive_data(b"(Unsubscribe nothing)\n" * 1_000)
    talk.receive_data(b"")
    turns = 1
    talk.commands()
    while talk.unread:
        talk.tick(NOW + turns * 600_000)
        assert not talk.closing, "who has said what is not read yet is not silent"
        talk.commands()
        turns += 1
    assert turns > 1_000 // TOKENS_AT_ONCE
    assert talk.closing
    assert talk.data_to_send().count(b"not subscribed") == 1_000


def test_subscriptions_that_come_together_are_asked_for_some_at_a_time() -> None:
    talk = start(VERSION_ONE + b"(Connect 1 alice)")
    [request] = talk.commands()
    talk.authenticated(request.token, Principal("alice"))
    talk.receive_data(b"".join(b"(Subscribe topic%d From_current)" % number for number in range(200)))
    asked = [len(talk.commands())]
    while talk.unread:
        asked.append(len(talk.commands()))
    assert max(asked) == REQUESTS_AT_ONCE
    assert sum(asked) == 200
