"""A session of the OCaml message queue, on the real engine, whatever is sent to it."""

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.test_omq_sexp import COMMANDS, SOUP, cut
from tests.unit.protocols.omq.world import BROADCAST, ROUND_ROBIN, VERSION_ONE, Client, World
from vibemq.protocols.omq import OmqSettings
from vibemq.protocols.omq.commands import print_command
from vibemq.protocols.omq.frames import MessageFrame, SubscribedFrame, UnsubscribedFrame

TOPICS = st.sampled_from([b"ticks", b"jobs", b"other", b"a b"])
SUBSCRIBES = st.tuples(
    st.just(b"Subscribe"), TOPICS, st.sampled_from([b"From_beginning", b"From_current", b"(From_message 3)"])
)
UNSUBSCRIBES = st.tuples(st.just(b"Unsubscribe"), TOPICS)
LINES = st.one_of(
    st.one_of(SUBSCRIBES, UNSUBSCRIBES).map(
        lambda words: b"(" + b" ".join(b'"a b"' if word == b"a b" else word for word in words) + b")\n"
    ),
    COMMANDS.map(print_command),
    st.sampled_from([b"(Publish a b)", b"word\n", b"; comment\n"]),
)


def make_world() -> World:
    world = World(settings=OmqSettings(unsettled_messages_max=5, command_bytes_max=512))
    world.queue("ticks", BROADCAST)
    world.queue("jobs", ROUND_ROBIN)
    world.publish("ticks", b"1", b"2", b"3", b"4")
    world.publish("jobs", b"1", b"2")
    return world


def check_manners(client: Client) -> None:
    """Every Message belongs to a topic that is subscribed at that moment, and ids of a broadcast topic ascend."""
    names: dict[int, bytes] = {}
    open_: set[int] = set()
    last: dict[int, int] = {}
    for frame in client.frames():
        match frame:
            case SubscribedFrame(topic):
                assert names.setdefault(topic.id, topic.topic) == topic.topic
                assert topic.id not in open_
                open_.add(topic.id)
                last.pop(topic.id, None)
            case UnsubscribedFrame(topic):
                assert topic.id in open_
                open_.discard(topic.id)
            case MessageFrame(number, topic_id):
                assert topic_id in open_
                if names[topic_id] == b"ticks":
                    assert number > last.get(topic_id, 0)
                    last[topic_id] = number


@given(st.lists(LINES, max_size=25), st.data())
def test_commands_however_cut_get_the_same_answers(lines: list[bytes], data: st.DataObject) -> None:
    stream = VERSION_ONE + b"(Connect 1 me)" + b"".join(lines)
    answers = []
    for pieces in ([stream], cut(data, stream)):
        client = make_world().connect(hello=b"")
        for piece in pieces:
            client.say(piece)
        answers.append(client.frames())
    # Whether messages come before or after an answer depends on when the commands came.
    told = [[frame for frame in frames if not isinstance(frame, MessageFrame)] for frames in answers]
    assert told[0] == told[1]


@given(st.lists(st.one_of(LINES, st.just(b"publish"), st.just(b"wait"), st.just(b"room")), max_size=40), st.data())
def test_manners_hold_whatever_happens(steps: list[bytes], data: st.DataObject) -> None:
    world = make_world()
    client = world.connect()
    for step in steps:
        if step == b"publish":
            world.publish(data.draw(st.sampled_from(["ticks", "jobs"])), *[b"x"] * data.draw(st.integers(1, 9)))
        elif step == b"wait":
            world.advance(data.draw(st.sampled_from([0, 500, 3_000])))
        elif step == b"room":
            client.room = data.draw(st.sampled_from([None, 0, 30, 500]))
        else:
            world.hold = data.draw(st.booleans())
            client.say(step)
            world.hold = False
            world.keep()
    client.room = None
    world.advance(20)
    check_manners(client)
    assert world.engine.violations() == []
    client.end()
    world.advance(100)
    assert client.gone
    assert world.in_flight("jobs") == 0


@given(st.lists(st.one_of(st.binary(max_size=200), SOUP), max_size=6), st.booleans())
def test_garbage_ends_in_an_error_or_in_silence(garbage: list[bytes], connected: bool) -> None:
    world = make_world()
    client = world.connect(hello=VERSION_ONE + b"(Connect 1 me)" if connected else b"")
    for piece in garbage:
        client.say(piece or b" ")
        world.advance(1_000)
    if not connected:
        return
    client.frames()
    world.advance(200_000)
    assert client.gone
