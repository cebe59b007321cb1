"""BlazingMQ clients of all modes at random: posts, confirms, reconfigures, closes, disconnects and lost connections,
and a broker that is killed. Every byte that a client is sent is judged by `ModelSdk`, which dies of what an
SDK dies of.

Half of the posts have a property, by whose value some consumers choose, in one or several subscriptions.

The model: what was acknowledged reaches every application; what was confirmed does not come again within a life of the
broker; nothing comes that was not posted, nor under a subscription that does not match it. At the end one reader for
each application gets what is left, the messages of each producer in their order.
"""

import select
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from tests.interop.blazingmq.broker import BROADCAST, DOMAINS, FANOUT, PRIORITY, BlazingmqBroker, ModelClient
from tests.interop.blazingmq.model_sdk import READ, WRITE
from tests.proof.contract import Budget, Finding, Method, Result, Size
from vibemq.model.selector import Selector
from vibemq.protocols.blazingmq.codec.messages import ConfigureStreamResponse
from vibemq.protocols.blazingmq.codec.options import parse_options
from vibemq.protocols.blazingmq.codec.properties import (
    SCHEMA_NONE,
    MessageProperty,
    PropertyType,
    area_bytes,
    build_area,
    parse_area,
)

QUEUE_OF = {
    "priority": f"bmq://{PRIORITY}/chaos",
    "fanout": f"bmq://{FANOUT}/chaos",
    "broadcast": f"bmq://{BROADCAST}/chaos",
}
APPS = {"priority": ("",), "fanout": ("foo", "bar", "baz"), "broadcast": ()}
PRODUCERS, CONSUMERS = 2, 5
POSTS_MAX = 8
ALIKE_SHARE, ALIKE_MAX = 0.3, 30
"""Posts of one size, in one event or in an event each, which the broker takes together."""
ACTIONS_PER_LIFE = 150
CHOICES = (("",), ("",), ("n % 2 == 0",), ("n % 2 == 1", "n % 3 == 0", "n > 50"), ("n < 50", ""), ("missing > 0",))
"""Expressions of the subscriptions that a consumer configures together."""
REPEAT = "python -m tests.proof blazingmq --seed"


@dataclass
class Ledger:
    """Of one application of one queue."""

    confirmed: set[bytes] = field(default_factory=set)
    """In any life: they need not come again."""
    settled: set[bytes] = field(default_factory=set)
    """In this life, and the broker has answered behind it: they must not come again."""


@dataclass(eq=False)
class Chaos:
    rng: Random
    broker: BlazingmqBroker
    posted: set[bytes] = field(default_factory=set)
    acked: dict[str, set[bytes]] = field(default_factory=lambda: {mode: set() for mode in QUEUE_OF})
    ledgers: dict[tuple[str, str], Ledger] = field(
        default_factory=lambda: {(mode, app): Ledger() for mode, apps in APPS.items() for app in apps}
    )
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


class Producer:
    def __init__(self, chaos: Chaos, number: int) -> None:
        self.chaos, self.number, self.next = chaos, number, 0
        self.payloads: dict[bytes, tuple[str, bytes]] = {}
        """GUID -> (mode, payload), of what is not acknowledged."""
        self.client = ModelClient(chaos.broker.bmq_port)
        self.open()

    def open(self) -> None:
        for q_id, uri in enumerate(QUEUE_OF.values()):
            self.client.ask(self.client.sdk.open(uri, q_id, flags=WRITE))

    def act(self) -> None:
        rng, sdk = self.chaos.rng, self.client.sdk
        q_id, mode = rng.choice(list(enumerate(QUEUE_OF)))
        alike = rng.random() < ALIKE_SHARE
        payloads = []
        for _ in range(rng.randint(1, ALIKE_MAX if alike else POSTS_MAX)):
            self.next += 1
            size = 10 if alike else rng.choice((0, 10, 2_000))
            payloads.append(b"%d/%08d" % (self.number, self.next) + b"x" * size)
        chosen = rng.random() < 0.5
        if chosen:
            payloads = [_with_number(payload, rng.randrange(100)) for payload in payloads]
        self.chaos.posted.update(payloads)
        before = set(sdk.unacked)
        alone = alike and rng.random() < ALIKE_SHARE
        posts = [[payload] for payload in payloads] if alone else [payloads]
        event = b"".join(sdk.post(q_id, *some, properties=chosen) for some in posts)
        fresh = [guid for guid in sdk.unacked if guid not in before]
        self.payloads.update((guid, (mode, payload)) for guid, payload in zip(fresh, payloads, strict=True))
        self.client.say(event)

    def look(self) -> None:
        acks, self.client.sdk.got.acks = self.client.sdk.got.acks, []
        for guid, status in acks:
            mode, payload = self.payloads.pop(guid)
            if status:
                self.chaos.findings.append(f"a post to {mode} was refused with {status}")
            self.chaos.acked[mode].add(payload)
            self.chaos.counts["acknowledged"] += 1

    def reconnect(self) -> None:
        self.client.reconnect()
        self.open()
        for q_id in range(len(QUEUE_OF)):
            if again := self.client.sdk.retransmit(q_id):
                self.client.say(again)

    def finish(self) -> None:
        self.client.until(lambda: not self.client.sdk.unacked)
        self.look()


class Consumer:
    def __init__(self, chaos: Chaos, number: int) -> None:
        self.chaos, self.number = chaos, number
        self.mode = list(QUEUE_OF)[number % 3]
        self.app = chaos.rng.choice(APPS[self.mode] or ("",))
        self.client = ModelClient(chaos.broker.bmq_port)
        self.is_open = False
        self.confirms: list[bytes] = []
        """Sent, and the broker has not answered anything behind them."""
        self.wanted: dict[int, str] = {}
        """Expressions by sId."""

    @property
    def ledger(self) -> Ledger | None:
        return self.chaos.ledgers.get((self.mode, self.app))

    def act(self) -> None:
        rng, sdk = self.chaos.rng, self.client.sdk
        if not self.is_open:
            sub_id = 1 if self.app else None
            self.client.ask(sdk.open(QUEUE_OF[self.mode], 0, flags=READ, sub_id=sub_id, app_id=self.app))
            self.is_open = True
            self._configure()
            return
        match rng.choices(("confirm", "configure", "deconfigure", "close", "leave", "die"), (60, 15, 5, 8, 4, 4))[0]:
            case "confirm":
                self._confirm()
            case "configure":
                self._configure()
            case "deconfigure":
                self.client.ask(sdk.configure(0, app_id=self.app or "__default", expressions=()))
                self._answered()
            case "close":
                if rng.random() < 0.7:
                    self.client.ask(sdk.configure(0, app_id=self.app or "__default", expressions=()))
                self.client.ask(sdk.close(0, flags=READ, sub_id=1 if self.app else None))
                self._answered()
                self.is_open = False
            case "leave":
                self.client.ask(sdk.disconnect())
                self._answered()
                self.reconnect()
            case _:
                self.reconnect()

    def _configure(self) -> None:
        rng = self.chaos.rng
        how = {
            "messages": rng.choice((0, 1, 5, 1_000)),
            "size": rng.choice((0, 100, 5_000, 1 << 25)),
            "priority": rng.randint(0, 1),
        }
        r_id, configure = self.client.sdk.configure(
            0, app_id=self.app or "__default", expressions=rng.choice(CHOICES), **how
        )
        answer = self.client.ask((r_id, configure))
        assert isinstance(answer, ConfigureStreamResponse)
        subscriptions = answer.request.stream_parameters.subscriptions
        self.wanted.update((one.s_id, one.expression.text) for one in subscriptions)
        self._answered()

    def _confirm(self) -> None:
        (stream,) = self.client.sdk.queues[0].streams.values()
        held = list(stream.unconfirmed.items())
        chosen = held if self.chaos.rng.random() < 0.7 else self.chaos.rng.sample(held, len(held) // 2)
        if not chosen or self.mode == "broadcast":
            stream.unconfirmed.clear()
            return
        payloads = [push.data for _, push in chosen]
        self.confirms += payloads
        if self.ledger is not None:
            self.ledger.confirmed.update(payloads)
        self.chaos.counts["confirmed"] += len(payloads)
        self.client.say(self.client.sdk.confirm(0, *(guid for guid, _ in chosen), sub_id=stream.sub_id))

    def _answered(self) -> None:
        self.look()
        if self.ledger is not None:
            self.ledger.settled.update(self.confirms)
        self.confirms.clear()

    def look(self) -> None:
        pushes, self.client.sdk.got.pushes = self.client.sdk.got.pushes, []
        for push in pushes:
            self.chaos.counts["pushed"] += 1
            if push.data not in self.chaos.posted:
                self.chaos.findings.append(f"{push.data[:20]!r} was never posted")
            if self.ledger is not None and push.data in self.ledger.settled:
                self.chaos.findings.append(f"{push.data[:20]!r} was confirmed and comes again ({self.mode} {self.app})")
            (s_id,) = parse_options(push.options).sub_queue_ids
            if not _is_wanted(push.data, self.wanted[s_id]):
                self.chaos.findings.append(f"{push.data!r:.60} is not what {self.wanted[s_id]!r} wants")

    def reconnect(self) -> None:
        self.client.reconnect()
        self.confirms.clear()
        self.is_open = False


def run(budget: Budget) -> Result:
    result = Result(unit="actions")
    end = time.monotonic() + budget.seconds
    broker = BlazingmqBroker(budget.work, domains=DOMAINS)
    broker.start()
    chaos = Chaos(Random(budget.seed), broker)  # the same actions for the same seed, nothing secret
    try:
        _lives(chaos, result, budget, end)
    except AssertionError as crash:
        chaos.findings.append(f"a client does not survive: {crash}")
    finally:
        broker.kill()
        broker.wait()
    result.complete = result.cases >= budget.cases
    result.confirmed = chaos.counts["acknowledged"]
    result.resurrected = sum("comes again" in what or "never posted" in what for what in chaos.findings)
    result.lost = sum("is lost" in what for what in chaos.findings)
    result.figures.update(chaos.counts)
    result.findings += [Finding(what, f"{REPEAT} {budget.seed}") for what in chaos.findings[:20]]
    return result


def _lives(chaos: Chaos, result: Result, budget: Budget, end: float) -> None:
    actors: list[Producer | Consumer] = [Producer(chaos, number) for number in range(PRODUCERS)]
    actors += [Consumer(chaos, number) for number in range(CONSUMERS)]
    while result.cases < budget.cases and time.monotonic() < end and not chaos.findings:
        actor = chaos.rng.choice(actors)
        actor.act()
        result.cases += 1
        _read(actors)
        if result.cases % ACTIONS_PER_LIFE == 0:
            chaos.counts["kills"] += 1
            chaos.broker.kill()
            chaos.broker.wait()
            chaos.broker.start()
            for ledger in chaos.ledgers.values():
                # A confirm has no answer: the last ones may be lost with the broker, and their messages come again.
                ledger.settled.clear()
            for one in actors:
                one.look()
                one.reconnect()
    for one in actors:
        if isinstance(one, Producer):
            one.finish()
    for one in actors:
        one.look()
        one.client.disconnect()
    _judge(chaos)


def _read(actors: list[Producer | Consumer]) -> None:
    """Whatever has come by now, of everybody."""
    sockets = {one.client.socket: one for one in actors}
    for ready in select.select(list(sockets), [], [], 0)[0]:
        one = sockets[ready]
        one.client.read_once()
        one.look()


def _judge(chaos: Chaos) -> None:
    """Read what is left of every application, and compare."""
    for (mode, app), ledger in chaos.ledgers.items():
        with ModelClient(chaos.broker.bmq_port) as reader, ModelClient(chaos.broker.bmq_port) as writer:
            writer.ask(writer.sdk.open(QUEUE_OF[mode], 0, flags=WRITE))
            last = b"9/%s" % app.encode()
            writer.post_and_wait(0, last)
            how = {"sub_id": 1, "app_id": app} if app else {}
            reader.open_reader(QUEUE_OF[mode], messages=1 << 30, size=1 << 40, **how)
            reader.until(lambda reader=reader, last=last: last in reader.payloads()[-1:])
            left = reader.payloads()[:-1]
            (stream,) = reader.sdk.queues[0].streams.values()
            reader.say(reader.sdk.confirm(0, *stream.unconfirmed, sub_id=stream.sub_id))
            reader.disconnect()
        left = [payload for payload in left if not _text(payload).startswith(b"9/")]
        lost = chaos.acked[mode] - ledger.confirmed - set(left)
        chaos.findings += [f"{payload[:20]!r} is lost ({mode} {app})" for payload in sorted(lost)[:5]]
        again = ledger.settled & set(left)
        chaos.findings += [f"{payload[:20]!r} was confirmed and comes again" for payload in sorted(again)[:5]]
        if len(set(left)) < len(left):
            chaos.findings.append(f"a message comes twice ({mode} {app})")
        for number in range(PRODUCERS):
            mine = [text[:10] for text in map(_text, left) if text.startswith(b"%d/" % number)]
            if mine != sorted(mine):
                chaos.findings.append(f"messages of producer {number} are out of their order ({mode} {app})")
        chaos.counts["left"] += len(left)


def _with_number(payload: bytes, number: int) -> bytes:
    return build_area([MessageProperty("n", PropertyType.INT32, number)]) + payload


def _text(data: bytes) -> bytes:
    """Behind the properties. No text begins as these do."""
    return data[area_bytes(data) :] if data.startswith(_AREA) else data


def _is_wanted(data: bytes, expression: str) -> bool:
    properties = parse_area(data, SCHEMA_NONE)[0] if data.startswith(_AREA) else []
    numbers = {one.name: one.value for one in properties}
    return not expression or Selector.parse(expression).matches(numbers)


_AREA = b"\x1b"


METHOD = Method(
    name="blazingmq",
    title="BlazingMQ clients of three modes, lost connections, kills of the broker",
    run=run,
    short=Size(cases=310, seconds=8),
    crash=Size(cases=5_000, seconds=50),
    torture=Size(cases=1_000_000, seconds=600),
    waits=True,
)
