"""Publishes, deliveries, requests and replies, shared capacity."""

import itertools

from vibemq.errors import (
    NoReply,
    QueueFull,
    RequesterGone,
    RequestFailed,
    VibeMQError,
)
from vibemq.model.commands import (
    Publish,
    Respond,
    SharedCapacity,
    Stage,
    Subscribe,
)
from vibemq.model.effects import Deliver, Published, Responded, Subscribed
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.model.stored import Slice
from vibemq.protocols.session import (
    Request,
)
from vibemq.testing.session_conformance.dialect import (
    NOW,
    QUEUE,
    SESSION,
    Dialect,
    Talk,
    last_word,
    talk,
)

BUSY_MS = 150_000


def check_publish(dialect: Dialect) -> None:
    if dialect.publish is None:
        return
    talking = talk(dialect)
    payloads = {f"m{number}": b'{"n":%d}' % number for number in range(20)}
    commands = talking.hear(b"".join(itertools.starmap(dialect.publish, payloads.items())))
    rows = [RowView(row) for command in commands if isinstance(command, Publish) for row in command.rows]
    assert len(rows) == len(payloads), "every message becomes one row"
    assert [view.payload for view in rows] == list(payloads.values()), "payloads pass through unchanged, in order"
    if not dialect.publishes_alone:
        assert len(commands) == 1, "messages of one read to one queue become one command"
    for command in commands:
        assert isinstance(command, Publish)
        assert (command.session, command.queue) == (SESSION, QUEUE)
        assert talking.tell(command, Published(QUEUE, 1, command.rows.count)), "a publish is confirmed"


def check_publish_refused(dialect: Dialect) -> None:
    if dialect.publish is None:
        return
    talking = talk(dialect)
    publish = dialect.publish("m1", b"1")
    accepted = _answers(talk(dialect), publish, None)
    refused = _answers(talking, publish, QueueFull(QUEUE, "10 messages"))
    assert refused, "a refused publish is answered"
    assert refused != accepted, "a refused publish is never confirmed"
    assert not talking.session.closing, "a full queue does not end the connection"


def _answers(talking: Talk, publish: bytes, error: QueueFull | None) -> bytes:
    answers = b""
    for command in talking.hear(publish):
        answers += talking.tell(command, error or Published(QUEUE, 1, 1))
    return answers


def check_deliver(dialect: Dialect) -> None:
    talking = talk(dialect)
    commands = talking.hear(dialect.subscribe())
    assert [type(command) for command in commands] == [Subscribe], "a subscription is one command"
    command = commands[0]
    assert isinstance(command, Subscribe)
    assert (command.session, command.queue) == (SESSION, QUEUE)
    talking.tell(command, Subscribed(QUEUE, "", command.consumer, 1))
    payload = b'"delivered payload"'
    piece = Slice(41, NOW, Rows.of([pack_row("id-41", payload), pack_row("id-42", payload)]))
    talking.session.deliver(Deliver(SESSION, command.consumer, QUEUE, 1, 0, [(41, 42)], {42: 2}), [piece])
    assert talking.session.data_to_send().count(dialect.on_wire(payload)) == 2, "payloads are delivered unchanged"


def check_deliver_rows_far_apart(dialect: Dialect) -> None:
    talking = talk(dialect)
    (command,) = talking.hear(dialect.subscribe())
    assert isinstance(command, Subscribe)
    talking.tell(command, Subscribed(QUEUE, "", command.consumer, 1))
    rows = [pack_row(f"id-{number}", b'"payload %d"' % number) for number in range(1, 6)]
    pieces = [
        Slice(41, NOW, Rows.of(rows[:1])),
        Slice(1 << 40, NOW - 9, Rows.of(rows[1:3])),
        Slice((1 << 40) + 5, NOW, Rows.of(rows[3:])),
    ]
    runs = [piece.run for piece in pieces]
    talking.session.deliver(Deliver(SESSION, command.consumer, QUEUE, 1, 0, runs, {1 << 40: 2}), pieces)
    sent = talking.session.data_to_send()
    places = [sent.find(dialect.on_wire(b'"payload %d"' % number)) for number in range(1, 6)]
    assert -1 not in places, "every payload is delivered unchanged"
    assert places == sorted(places), "messages are delivered in order"


def check_deliver_in_another_order(dialect: Dialect) -> None:
    """The runs of a delivery do not ascend where priorities or due times set the order."""
    order = [(50, 52), (1 << 40, 1 << 40), (7, 7), (90, 91), (3, 5), (60, 60)]
    numbers = [number for first, last in order for number in range(first, last + 1)]
    for cut in range(1, len(order)):
        talking = talk(dialect)
        (command,) = talking.hear(dialect.subscribe())
        assert isinstance(command, Subscribe)
        talking.tell(command, Subscribed(QUEUE, "", command.consumer, 1))
        deliver = Deliver(SESSION, command.consumer, QUEUE, 1, 0, order, {7: 2, 50: 3}, failed={7: 1})
        pieces = [
            Slice(first, NOW, Rows.of([pack_row(f"id-{n}", b'"payload %d"' % n) for n in range(first, last + 1)]))
            for first, last in order
        ]
        sent = b""
        for some in (pieces[:cut], pieces[cut:]):
            talking.session.deliver(deliver, some)
            sent += talking.session.data_to_send()
        places = [sent.find(dialect.on_wire(b'"payload %d"' % number)) for number in numbers]
        assert -1 not in places, "every payload is delivered unchanged"
        assert places == sorted(places), "messages are delivered in the order in which they are handed out"


def check_relative_times_on_a_busy_connection(dialect: Dialect) -> None:
    """A connection without a pause lives between two deadlines; its clock goes on all the same."""
    if dialect.has_delay or dialect.has_ttl:
        assert dialect.timed, "a protocol with a delay or a ttl says them in each of its publishes"
    talking = talk(dialect)
    for step in range(0, BUSY_MS, 1_000):
        talking.now = NOW + step
        for way, publish in dialect.timed.items():
            requests = talking.hear(publish(f"m{step}", 5_000, 9_000))
            found = [(extra.deliver_at, extra.expires_at) for request in requests for extra in _extras(request)]
            due, expiry = dialect.has_delay * (talking.now + 5_000), dialect.has_ttl * (talking.now + 9_000)
            assert found == [(due, expiry)], f"{way}: delay and ttl count from the read, {step} ms after the first"
            for request in requests:
                # Some protocols read no further before they have the answer.
                talking.tell(request, Published(QUEUE, 1, 1))
        if not dialect.timed:
            talking.hear(last_word(dialect, talking.now))
        assert not talking.session.closing, f"a busy connection is no silent one, after {step} ms"


def _extras(request: Request) -> list[MessageExtra]:
    assert isinstance(request, Publish | Stage), f"a publish becomes {request}"
    return list((request.extras or {}).values())


def check_request(dialect: Dialect) -> None:
    """A request is a publish of one message that says where its reply goes; it has one answer, whatever happens."""
    if dialect.request is None:
        return
    results: list[Rows | VibeMQError] = [
        Rows.of([pack_row("r", b'{"answer":1}')]),
        NoReply("nobody has replied"),
        RequestFailed("it was rejected"),
    ]
    addresses: set[str] = set()
    for number, result in enumerate(results):
        talking = talk(dialect)
        [command] = talking.hear(dialect.request(f"ask{number}", b'{"a":1}'))
        assert isinstance(command, Publish), f"a request became {command}"
        requester = command.requester
        assert requester is not None, "a request does not say who waits for its reply"
        assert command.rows.count == 1, "a request is more than one message"
        assert requester.timeout_ms == 2_000, "a request waits for another time than its peer said"
        headers = RowView(command.rows[0]).headers
        assert headers["reply-to"] == requester.address, "the message does not say where its reply goes"
        assert len(requester.address) >= 32, "the address of a reply can be guessed"
        addresses.add(requester.address)
        assert talking.tell(command, Published(QUEUE, 1, 1)) == b"", "a request is answered before there is an answer"
        talking.session.apply([Responded(SESSION, requester.token, result)])
        told = talking.session.data_to_send()
        words = b"answer" if isinstance(result, Rows) else result.code.encode()
        assert words in told, f"the requester is not told {result!r}"
        assert f"ask{number}".encode() in told, "the answer does not name its request"
        late = talking.tell(command, Published(QUEUE, 0, 1, {0: QueueFull(QUEUE, "max_messages 1")}))
        assert late == b"", "a request is answered twice"
    talking = talk(dialect)
    [command] = talking.hear(dialect.request("refused", b"1"))
    told = talking.tell(command, Published(QUEUE, 0, 1, {0: QueueFull(QUEUE, "max_messages 1")}))
    assert b"QUEUE_FULL" in told, "a request that was not accepted has no answer"


def check_respond(dialect: Dialect) -> None:
    """A reply goes to the address that it names; its sender hears whether somebody waited."""
    if dialect.respond is None:
        return
    for result in (None, RequesterGone("nobody waits")):
        talking = talk(dialect)
        [command] = talking.hear(dialect.respond("r1", "a" * 32, b'{"answer":1}'))
        assert isinstance(command, Respond), f"a reply became {command}"
        assert command.address == "a" * 32, "a reply goes elsewhere"
        assert RowView(command.rows[0]).payload == b'{"answer":1}', "a reply says something else"
        told = talking.tell(command, result)
        assert b"r1" in told, "the sender of a reply is not told what became of it"
        assert (b"REQUESTER_GONE" in told) == (result is not None), "the sender of a reply is told the contrary"


def check_share(dialect: Dialect) -> None:
    """Subscriptions that name a share ask for the share's capacity, and for none of their own."""
    if dialect.share is None:
        return
    talking = talk(dialect)
    for number in (1, 2):
        [command] = talking.hear(dialect.share(f"s{number}", "worker", 4))
        assert isinstance(command, Subscribe), f"a subscription became {command}"
        assert command.share == SharedCapacity("worker", 4), "a subscription does not say with whom it shares"
        assert command.capacity_messages is None, "a subscription of a share has a capacity of its own"
