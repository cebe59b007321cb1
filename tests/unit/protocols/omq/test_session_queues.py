"""Topics on the real engine: broadcast with replay, round robin with acks, slow readers. No loop, no sockets."""

import random

import pytest

from tests.unit.protocols.omq.world import (
    BROADCAST,
    BROADCAST_WITH_ACK,
    ROUND_ROBIN,
    SECOND,
    Client,
    World,
)
from vibemq.model.options import DeliveryMode, Durability, LostConnection, QueueOptions
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.omq import OmqSettings
from vibemq.protocols.omq.frames import Error, MessageFrame, SubscribedFrame

BOTH_BROADCASTS = pytest.mark.parametrize("options", [BROADCAST, BROADCAST_WITH_ACK], ids=["no ack", "with ack"])


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


def world_with(
    options: QueueOptions, name: str = "ticks", *, messages: int = 0, settings: OmqSettings | None = None
) -> World:
    world = World(settings=settings)
    world.queue(name, options)
    if messages:
        world.publish(name, *numbered(1, messages))
    return world


def subscriber(world: World, replay: str = "From_current", topic: str = "ticks") -> Client:
    client = world.connect()
    client.say(f"(Subscribe {topic} {replay})".encode())
    return client


# -- 16, 17: broadcast and replay --------------------------------------------------------------------------------------


@BOTH_BROADCASTS
@pytest.mark.parametrize(
    ("replay", "first"),
    [
        ("From_beginning", 1),
        ("(From_message 1)", 1),
        ("(From_message 0)", 1),
        ("(From_message -9223372036854775808)", 1),
        ("(From_message 42)", 42),
        ("(From_message 100)", 100),
        ("(From_message 101)", 101),
        ("From_current", 101),
    ],
)
def test_replay_then_live(options: QueueOptions, replay: str, first: int) -> None:
    world = world_with(options, messages=100)
    client = subscriber(world, replay)
    world.publish("ticks", *numbered(101, 110))
    messages = [frame for frame in client.frames() if isinstance(frame, MessageFrame)]
    assert [message.id for message in messages] == list(range(first, 111))
    assert [message.body for message in messages] == numbered(first, 110)
    assert {message.topic_id for message in messages} == {1}


@BOTH_BROADCASTS
def test_a_message_beyond_the_end_is_waited_for(options: QueueOptions) -> None:
    world = world_with(options, messages=3)
    client = subscriber(world, "(From_message 6)")
    world.publish("ticks", *numbered(4, 5))
    assert client.ids() == []
    world.publish("ticks", *numbered(6, 7))
    assert client.ids() == [6, 7]


@pytest.mark.parametrize("number", [(1 << 62) - 1, 1 << 62, (1 << 63) - 1])
def test_the_highest_ids_can_be_asked_for(number: int) -> None:
    world = world_with(BROADCAST, messages=3)
    client = subscriber(world, f"(From_message {number})")
    world.publish("ticks", b"low")
    frames = client.frames()
    assert isinstance(frames[0], SubscribedFrame)
    assert len(frames) == 1


def test_below_the_oldest_that_is_kept_replay_begins_with_the_oldest() -> None:
    world = world_with(BROADCAST.with_changes(retain_messages=10), messages=100)
    for replay in ("From_beginning", "(From_message 5)"):
        assert subscriber(world, replay).ids() == list(range(91, 101))


def test_from_current_leaves_out_what_was_accepted_before_but_not_yet_kept() -> None:
    world = world_with(BROADCAST)
    world.hold = True
    world.publish("ticks", b"before")
    client = subscriber(world)
    world.publish("ticks", b"after")
    world.hold = False
    world.keep()
    assert client.bodies() == [b"after"]


def test_a_strong_message_reaches_nobody_before_it_is_kept() -> None:
    world = world_with(BROADCAST)
    client = subscriber(world)
    client.frames()
    world.hold = True
    world.publish("ticks", b"strong")
    assert client.frames() == []
    world.hold = False
    world.keep()
    assert client.bodies() == [b"strong"]


@BOTH_BROADCASTS
def test_every_subscriber_gets_everything_at_its_own_pace(options: QueueOptions) -> None:
    world = world_with(options, messages=500)
    fast, slow = subscriber(world, "From_beginning"), world.connect()
    slow.room = 50
    slow.say(b"(Subscribe ticks From_beginning)")
    world.publish("ticks", *numbered(501, 1000))
    assert fast.bodies() == numbered(1, 1000)
    assert len(slow.sent) < 5_000
    slow.room = None
    assert slow.bodies() == numbered(1, 1000)


def test_ids_go_on_when_nobody_listens_and_when_the_queue_was_empty() -> None:
    world = world_with(BROADCAST)
    world.publish("ticks", b"unheard")
    first = subscriber(world)
    world.publish("ticks", b"second")
    first.drop()
    world.publish("ticks", b"third")
    assert subscriber(world, "(From_message 2)").ids() == [2, 3]


def test_a_lost_subscriber_resumes_exactly_where_it_was() -> None:
    world = world_with(BROADCAST, messages=5_000)
    first = world.connect()
    first.room = 10_000
    first.say(b"(Subscribe ticks From_beginning)")
    got = first.ids()
    first.drop()
    world.publish("ticks", *numbered(5_001, 5_010))
    assert 0 < len(got) < 5_000
    assert got + subscriber(world, f"(From_message {got[-1] + 1})").ids() == list(range(1, 5_011))


@BOTH_BROADCASTS
@pytest.mark.parametrize("seed", range(8))
def test_no_gap_and_no_duplicate_while_publishers_run_and_sockets_fill(options: QueueOptions, seed: int) -> None:
    source = random.Random(seed)
    world = world_with(
        options, messages=300, settings=OmqSettings(unsettled_messages_max=source.choice((1, 7, 10_000)))
    )
    waiting: list[tuple[Client, int]] = []
    published = 300
    got: dict[Client, list[int]] = {}
    for _ in range(120):
        match source.randrange(5):
            case 0 if len(waiting) < 6:
                first = source.choice((1, source.randint(1, published), published + 1))
                client = world.connect()
                client.room = source.choice((None, 100, 5_000))
                wanted = "From_beginning" if first == 1 else f"(From_message {first})"
                client.say(f"(Subscribe ticks {wanted if first <= published else 'From_current'})".encode())
                waiting.append((client, first))
                got[client] = []
            case 1 | 2:
                count = source.choice((1, 3, 40))
                world.hold = source.random() < 0.3
                world.publish("ticks", *numbered(published + 1, published + count))
                published += count
            case 3:
                world.hold = False
                world.keep()
            case _:
                for client, _first in waiting:
                    if client.room is not None:
                        client.room = source.choice((0, 100, 3_000))
                    got[client] += client.ids()
        world.advance(source.choice((0, 1, 700)))
    world.hold = False
    world.keep()
    for client, first in waiting:
        client.room = None
        got[client] += client.ids()
        assert got[client] == list(range(first, published + 1))


@pytest.mark.parametrize("mode", [DeliveryMode.FAN_OUT_WITH_ACK, DeliveryMode.FAN_OUT_WITHOUT_ACK])
def test_a_fan_out_queue_without_a_log_serves_what_is_still_there(mode: DeliveryMode) -> None:
    world = world_with(QueueOptions(mode=mode, durability=Durability.TRANSIENT), messages=5)
    assert subscriber(world, "From_beginning").bodies() == numbered(1, 5)
    late = subscriber(world, "From_current")
    world.publish("ticks", b"live")
    assert late.bodies() == [b"live"]


# -- 8: bodies ---------------------------------------------------------------------------------------------------------


def test_bodies_are_the_payloads_to_the_byte() -> None:
    bodies = [b"", b"\0", b'{"a": 1}', bytes(range(256)) * 10, b"\xff" * 100_000, b"(sexp)\n"]
    world = world_with(BROADCAST)
    client = subscriber(world)
    world.publish_rows("ticks", Rows.of([pack_row(f"id{'x' * n}", body) for n, body in enumerate(bodies)]))
    headers = [("content-type", "text/plain"), ("x", "y" * 300)]
    world.publish_rows("ticks", Rows.of([pack_row("with-headers", body, headers) for body in bodies]))
    assert client.bodies() == bodies * 2


# -- 22: slow readers --------------------------------------------------------------------------------------------------


@BOTH_BROADCASTS
def test_a_reader_that_never_reads_costs_a_few_numbers(options: QueueOptions) -> None:
    last = 100_000 if options is BROADCAST else 20_000
    world = world_with(options)
    client = world.connect()
    client.room = 100_000
    client.say(b"(Subscribe ticks From_beginning)")
    for first in range(1, last, 500):
        world.publish("ticks", *numbered(first, first + 499))
        if client.room <= 0 and not client.flow_open:
            assert len(client.delivery_queue._items) <= 1
    assert len(client.sent) < 500_000
    assert len(client.session.data_to_send()) == 0
    client.room = None
    assert client.bodies() == numbered(1, last)


def test_what_retention_took_from_a_slow_reader_is_skipped_in_order() -> None:
    world = world_with(BROADCAST.with_changes(retain_messages=100))
    client = world.connect()
    client.room = 2_000
    client.say(b"(Subscribe ticks From_beginning)")
    for first in range(1, 10_001, 100):
        world.publish("ticks", *numbered(first, first + 99))
    client.room = None
    ids = client.ids()
    assert ids == sorted(set(ids))
    assert ids[-100:] == list(range(9_901, 10_001))
    assert len(ids) < 1_000


# -- 7, 20, 21: round robin --------------------------------------------------------------------------------------------


@pytest.fixture
def jobs() -> World:
    return world_with(ROUND_ROBIN.with_changes(lost_connection=LostConnection.RELEASE), "jobs")


def worker(world: World, replay: str = "From_current") -> Client:
    return subscriber(world, replay, "jobs")


def ack_last_ping(client: Client) -> None:
    client.say(b"(Ack %d)" % client.pings()[-1])


def test_each_message_goes_to_one_in_turn(jobs: World) -> None:
    first, second = worker(jobs), worker(jobs)
    for number in range(10):
        jobs.publish("jobs", b"%d" % number)
    one, two = first.bodies(), second.bodies()
    assert sorted(one + two) == sorted(numbered(0, 9))
    assert len(one) == len(two) == 5


@pytest.mark.parametrize("replay", ["From_beginning", "From_current"])
def test_what_waited_for_somebody_is_given_to_the_first_who_comes(jobs: World, replay: str) -> None:
    jobs.publish("jobs", *numbered(1, 3))
    assert worker(jobs, replay).bodies() == numbered(1, 3)


def test_replay_from_a_message_is_refused_and_takes_nothing(jobs: World) -> None:
    jobs.publish("jobs", *numbered(1, 3))
    client = worker(jobs, "(From_message 1)")
    assert client.frames() == [Error("replay needs a broadcast queue: jobs")]
    assert jobs.in_flight("jobs") == 0
    assert worker(jobs).bodies() == numbered(1, 3)


def test_messages_are_held_until_an_ack_echoes_a_later_ping(jobs: World) -> None:
    client = worker(jobs)
    jobs.advance(1)
    before = client.pings()[-1]
    jobs.publish("jobs", *numbered(1, 3))
    client.say(b"(Ack %d)" % before)
    assert jobs.in_flight("jobs") == 3, "that ping was written before the messages"
    jobs.advance(1_000)
    [after] = client.pings()
    client.say(b"(Ack %d)" % (after + 5))
    client.say(b"(Ack %d)" % (after - 1))
    assert jobs.in_flight("jobs") == 3, "an Ack that echoes nothing is only a sign of life"
    client.say(b"(Ack %d)" % after)
    assert jobs.in_flight("jobs") == 0
    client.drop()
    assert worker(jobs).bodies() == []


@pytest.mark.parametrize("form", ["{}", "{}.75", "{}.", "{:_}", "({} UTC)"])
def test_the_echo_may_take_any_form_of_a_time(jobs: World, form: str) -> None:
    client = worker(jobs)
    jobs.publish("jobs", b"1")
    jobs.advance(1_000)
    second = client.pings()[-1]
    text = f"(2023-11-14 {22 + (second - SECOND) // 3600}:13:{20 + second - SECOND}.250000Z)"
    client.say(f"(Ack {text if 'UTC' in form else form.format(second)})".encode())
    assert jobs.in_flight("jobs") == 0


def test_an_ack_settles_all_that_was_written_before_its_ping_and_nothing_after(jobs: World) -> None:
    client = worker(jobs)
    pings = []
    for number in range(1, 5):
        jobs.publish("jobs", b"%d" % number)
        jobs.advance(1_000)
        pings += client.pings()
    assert len(pings) == len(set(pings)) == 5
    client.say(b"(Ack %d)" % pings[2])
    assert jobs.in_flight("jobs") == 2
    client.say(b"(Ack %d)" % pings[0])
    assert jobs.in_flight("jobs") == 2
    client.drop()
    assert worker(jobs).bodies() == [b"3", b"4"]


def test_while_something_is_held_a_ping_comes_every_second_and_never_twice_in_one(jobs: World) -> None:
    client = worker(jobs)
    jobs.publish("jobs", b"1")
    seconds: list[int] = []
    for _ in range(50):
        jobs.advance(100)
        seconds += client.pings()
    assert seconds == list(range(SECOND, SECOND + 6))[: len(seconds)]
    assert len(seconds) >= 5
    client.say(b"(Ack %d)" % seconds[-1])
    jobs.advance(20_000)
    assert client.pings() == [], "nothing is held: back to the usual pace"


def test_what_a_lost_client_held_goes_to_the_others_at_its_place(jobs: World) -> None:
    lost = worker(jobs)
    jobs.publish("jobs", *numbered(1, 3))
    lost.drop()
    jobs.publish("jobs", *numbered(4, 5))
    heir = worker(jobs)
    messages = [frame for frame in heir.frames() if isinstance(frame, MessageFrame)]
    assert [(message.id, message.body) for message in messages] == [(n, b"%d" % n) for n in range(1, 6)]


def test_an_end_of_stream_over_held_messages_is_a_lost_connection() -> None:
    """A program that dies over a message ends its stream like any other; the message must not go round for ever."""
    world = world_with(ROUND_ROBIN.with_changes(max_attempts=2, retry_base_ms=0), "jobs")
    world.publish("jobs", b"poison")
    for _ in range(2):
        assert world.dead("jobs") == 0
        client = worker(world)
        assert client.bodies() == [b"poison"]
        client.end()
        assert client.gone
        assert not client.clean
        world.advance(1)
    assert world.dead("jobs") == 1


def test_with_release_what_a_client_held_goes_back_unharmed() -> None:
    options = ROUND_ROBIN.with_changes(max_attempts=1, lost_connection=LostConnection.RELEASE)
    world = world_with(options, "jobs")
    world.publish("jobs", b"precious")
    for _ in range(5):
        client = worker(world)
        assert client.bodies() == [b"precious"]
        client.end()
    assert (world.in_flight("jobs"), world.dead("jobs")) == (0, 0)


def test_a_client_that_has_settled_everything_leaves_in_peace() -> None:
    world = world_with(ROUND_ROBIN.with_changes(max_attempts=1), "jobs")
    world.publish("jobs", b"job")
    client = worker(world)
    world.advance(2_000)
    ack_last_ping(client)
    client.end()
    assert client.clean
    assert (world.in_flight("jobs"), world.dead("jobs")) == (0, 0)


def test_after_unsubscribe_what_was_written_is_still_acked(jobs: World) -> None:
    client = worker(jobs)
    jobs.publish("jobs", *numbered(1, 3))
    client.say(b"(Unsubscribe jobs)")
    client.frames()
    jobs.publish("jobs", b"4")
    assert client.frames() == []
    assert jobs.in_flight("jobs") == 3
    jobs.advance(2_000)
    ack_last_ping(client)
    assert jobs.in_flight("jobs") == 0
    assert worker(jobs).bodies() == [b"4"]


def test_what_was_not_written_when_a_client_unsubscribes_goes_to_others(jobs: World) -> None:
    client = worker(jobs)
    client.frames()
    client.room = 1
    jobs.publish("jobs", *(b"x" * 1000 for _ in range(500)))
    client.say(b"(Unsubscribe jobs)")
    client.room = None
    got = len(client.bodies())
    assert got < 500
    other = worker(jobs)
    assert got + len(other.bodies()) == 500
    client.drop()
    assert len(other.bodies()) == got, "what the first had been written it has never acked"


def test_a_worker_holds_no_more_than_the_setting_says() -> None:
    world = world_with(ROUND_ROBIN, "jobs", settings=OmqSettings(unsettled_messages_max=10))
    world.publish("jobs", *numbered(1, 25))
    client = worker(world)
    assert client.bodies() == numbered(1, 10)
    world.advance(1_000)
    ack_last_ping(client)
    assert client.bodies() == numbered(11, 20)
    assert worker(world).bodies() == numbered(21, 25)


def test_a_worker_holds_no_more_bytes_than_the_setting_says() -> None:
    world = world_with(ROUND_ROBIN, "jobs", settings=OmqSettings(unsettled_bytes_max=10_000))
    world.publish("jobs", *(b"x" * 1000 for _ in range(30)))
    assert len(worker(world).bodies()) in range(9, 12)


def test_no_message_is_given_away_because_its_holder_takes_long(jobs: World) -> None:
    client = worker(jobs)
    jobs.publish("jobs", b"1")
    for _ in range(40):
        jobs.advance(10_000)
        client.say(b"(Ack 1)")
    assert client.bodies() == [b"1"]
    assert worker(jobs).bodies() == []
    assert jobs.in_flight("jobs") == 1


def test_a_full_socket_is_passed_over(jobs: World) -> None:
    stuck, free = worker(jobs), worker(jobs)
    stuck.frames()
    stuck.room = 1
    jobs.publish("jobs", *(b"x" * 100 for _ in range(10)))
    free.bodies()
    jobs.publish("jobs", *(b"y" * 100 for _ in range(10)))
    assert free.bodies() == [b"y" * 100] * 10


def test_a_priority_queue_is_shared_like_round_robin() -> None:
    world = world_with(QueueOptions(mode=DeliveryMode.PRIORITY_BASED), "jobs", messages=3)
    client = worker(world)
    assert client.bodies() == numbered(1, 3)
    assert world.in_flight("jobs") == 3


def test_both_kinds_on_one_connection(jobs: World) -> None:
    jobs.queue("ticks", BROADCAST)
    client = worker(jobs)
    client.say(b"(Subscribe ticks From_current)")
    client.frames()
    jobs.publish("ticks", b"tick")
    jobs.publish("jobs", b"job")
    assert [(m.topic_id, m.id, m.body) for m in client.frames() if isinstance(m, MessageFrame)] == [
        (2, 1, b"tick"),
        (1, 1, b"job"),
    ]
    assert jobs.in_flight("ticks") == 0
    jobs.advance(1_000)
    ack_last_ping(client)
    assert jobs.in_flight("jobs") == 0


def test_the_books_balance(jobs: World) -> None:
    clients = [worker(jobs) for _ in range(3)]
    for step in range(30):
        jobs.publish("jobs", *numbered(1, 7))
        jobs.advance(700)
        if pings := clients[step % 3].pings():
            clients[step % 3].say(b"(Ack %d)" % pings[-1])
    clients[0].drop()
    clients[1].end()
    assert jobs.engine.violations() == []
    assert jobs.engine.totals.unknown_settles == 0
