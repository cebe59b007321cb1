"""What a client may say in a stateful fuzz run: valid commands, nearly valid ones and garbage, by chance."""

import gzip
import random
from collections.abc import Callable

import brotli
import orjson

from tests.proof.fuzz_engine import Mutator
from tests.proof.fuzz_wire import JSON_WORDS, WORDS
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.native.codec import extensions as ext
from vibemq.protocols.native.codec.frames import HEADER, encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body

OWN_QUEUES = ("f1", "f2", "f-fan", "fprio")
NUMBERS = (0, 1, 2, 5, 60_000, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -1)
_HEADERS = (
    *({"priority": "high"}, {"priority": "31"}, {"vibemq-delay-ms": "5"}, {"vibemq-ttl-ms": "1"}, {"k": "v"}),
    *(
        {"vibemq-dedup-id": "d1"},
        {"vibemq-deliver-at-ms": "9223372036854775807"},
        {"vibemq-ttl-ms": "9223372036854775807"},
    ),
)
_OPTIONS = (
    *("max_messages", "max_bytes", "message_ttl_ms", "max_attempts", "ack_timeout_ms", "retry_base_ms", "retry_max_ms"),
    *("dedup_window_ms", "retain_ms", "retain_messages", "retain_bytes"),
)
_CHOICES: dict[str, tuple[object, ...]] = {
    "mode": ("round-robin", "fan-out-with-ack", "fan-out-without-ack", "priority-based", 9),
    "durability": ("strong", "weak", "async", "transient"),
    "retention": ("settled", "log"),
    "overflow": ("drop-oldest", "drop-newest", "block-publisher", "redirect-to-dlq"),
    "lost_connection": ("fail", "release"),
    "dead_letter": (True, False, None),
}


class Talker:
    """One client's side of a conversation; remembers enough to be plausible."""

    def __init__(self, rng: random.Random, queues: tuple[str, ...], credentials: dict[str, str]) -> None:
        self.rng = rng
        self._queues = queues
        self._credentials = credentials
        self._mutator = Mutator(rng.getrandbits(32), WORDS + JSON_WORDS)
        self._said = 0
        self._ids: list[str] = ["s0"]
        self._rest = b""
        """Of a frame whose first part was sent."""
        self._garbage = rng.choice((0.0, 0.0, 0.01, 0.03, 0.1, 0.4))
        """How much of what it says is broken; a broken frame usually ends the conversation."""
        self._names = rng.sample(ext.EXTENSIONS, rng.choice((0, 1, 2, 3, 3)))

    def hello(self) -> bytes:
        """A sound Connect, with or without extensions and compression."""
        headers = dict(self._credentials)
        if self._names:
            headers["supported-extensions"] = ",".join(self._names)
        if self.rng.random() < 0.2:
            headers["supported-compression"] = self.rng.choice(("gzip", "brotli"))
        return encode_frame(encode_body(CommandType.CONNECT, self._id(), headers=headers))

    def anything(self) -> bytes:
        """The next bytes to send."""
        if self._rest:
            rest, self._rest = self._rest, b""
            return rest
        body = self._body()
        if self.rng.random() < self._garbage:
            return self._broken(body)
        frame = self._framed(body)
        chance = self.rng.random()
        if chance < 0.05:
            cut = self.rng.randrange(len(frame))
            self._rest = frame[cut:]
            return frame[:cut]
        if chance < 0.15:
            return frame + b"".join(
                self._framed(self.rng.choice(self._WAYS)(self)) for _ in range(self.rng.randrange(12))
            )
        return frame

    def _body(self) -> bytes:
        """A sound body; of types that were not agreed on only by those who talk garbage anyway."""
        while True:
            body = self.rng.choice(self._WAYS)(self)
            agreed = ext.CURSOR_EXTENSION if body[1] >= CommandType.CURSOR_REQUEST else ext.BATCH_EXTENSION
            extended = 60 <= body[1] <= 65 or 70 <= body[1] <= 73
            if not extended or agreed in self._names or self.rng.random() < self._garbage / 2:
                return body

    def _broken(self, body: bytes) -> bytes:
        if self.rng.random() < 0.8:
            return self._framed(self._mutator.mutate(body, b"", 600))
        return self._mutator.mutate(self._framed(body), b"", 600)

    def _framed(self, body: bytes) -> bytes:
        chance = self.rng.random()
        if chance < 0.9 or (chance < 0.98 and not self._garbage):
            return HEADER.pack(len(body), 0) + body
        how, packed = (1, gzip.compress(body, 1)) if chance < 0.95 else (2, brotli.compress(body, quality=0))
        return HEADER.pack(len(packed), how) + packed

    # -- commands ---------------------------------------------------------------------------------------------------

    def _id(self) -> str:
        self._said += 1
        return f"m{self._said}" if self.rng.random() < 0.8 else self.rng.choice(("m1", "s0", "x" * 300, "é"))

    def _queue(self) -> str:
        return self.rng.choice(self._queues)

    def _payload(self) -> bytes:
        return self.rng.choice(
            (b"", b"1", b'{"a":[1,2]}', b"\xff\xfe", b"[" * 70, b'"x"' * 3, b'"' + b"y" * 2_000 + b'"')
        )

    def _number(self) -> str:
        return str(self.rng.choice(NUMBERS))

    def _plain(self) -> bytes:
        kind = self.rng.choice((10, 42, 43, 50, 77, 99)) if self.rng.random() < 0.9 else 2
        return encode_body(kind, self._id(), self._queue())

    def _connect(self) -> bytes:
        return self.hello()[HEADER.size :]

    def _publish(self) -> bytes:
        headers = self.rng.choice(_HEADERS) if self.rng.random() < 0.4 else {}
        return encode_body(CommandType.PUBLISH, self._id(), self._queue(), self._payload(), headers)

    def _publish_many(self) -> bytes:
        count = self.rng.randrange(6)
        rows = Rows.of([pack_row(f"b{self._said}-{n}", self._payload()) for n in range(count)])
        keys = ("priority", "ttl_ms", "delay_ms", "deliver_at")
        extras: dict[int, dict[str, object]]
        extras = {n: {self.rng.choice(keys): self.rng.choice(NUMBERS)} for n in range(self.rng.randrange(count + 2))}
        if count and self.rng.random() < 0.3:
            extras[0] = {"dedup_id": "d1"}
        return ext.publish_many(self._id(), self._queue(), rows, extras if self.rng.random() < 0.4 else None)

    def _subscribe(self) -> bytes:
        headers = {}
        for name in ("prefetch", "prefetch-bytes", "credit", "consumer-priority", "ack-timeout-ms"):
            if self.rng.random() < 0.25:
                headers[name] = self._number()
        if self.rng.random() < 0.3:
            headers["start"] = self.rng.choice(("beginning", "now", "sequence:3", "sequence:18446744073709551615"))
        if self.rng.random() < 0.4:
            headers["group"] = self.rng.choice(("g1", "g2", "", "é"))
        message_id = self._id()
        self._ids.append(message_id)
        return encode_body(CommandType.SUBSCRIBE, message_id, self._queue(), headers=headers)

    def _unsubscribe(self) -> bytes:
        headers = {"subscription-id": self.rng.choice(self._ids)}
        return encode_body(CommandType.UNSUBSCRIBE, self._id(), self._queue(), headers=headers)

    def _ack(self) -> bytes:
        kind = self.rng.choice((CommandType.ACK, CommandType.ACK, CommandType.NACK, CommandType.EXTEND))
        headers = {} if kind == CommandType.ACK else {"verb": self.rng.choice(("retry", "release", "reject", "x"))}
        if kind != CommandType.ACK and self.rng.random() < 0.3:
            headers[self.rng.choice(("delay-ms", "ack-timeout-ms"))] = self._number()
        return encode_body(kind, f"m{self.rng.randrange(1, self._said + 2)}", headers=headers)

    def _settle(self) -> bytes:
        runs = [(first, first + self.rng.randrange(5)) for first in (self.rng.randrange(1, 30) for _ in range(2))]
        if self.rng.random() < 0.1:
            runs.append((1, 2**64 - 1))
        delay = self.rng.choice((None, 0, 5, 2**63 - 1))
        subscription = self.rng.choice(self._ids)
        if self.rng.random() < 0.3:
            return ext.extend_many(subscription, runs, ack_timeout_ms=delay)
        return ext.settle(
            subscription, self.rng.randrange(5 if self._garbage else 4), runs, delay_ms=delay, reason="why"
        )

    def _flow(self) -> bytes:
        numbers = [self.rng.choice((0, 1, 100, 2**32 - 1)) for _ in range(3)]
        return ext.flow(self.rng.choice(self._ids), *numbers)

    def _create(self) -> bytes:
        payload = self.rng.choice(
            (b"", b"{}", b'{"mode":1,"maxQueueSize":3}', b'{"messageTtl":"00:00:01","overflowStrategy":3}')
        )
        kind = self.rng.choice((CommandType.CREATE_QUEUE, CommandType.CREATE_QUEUE, CommandType.DELETE_QUEUE))
        return encode_body(kind, self._id(), self._queue(), payload)

    def _admin(self) -> bytes:
        verb = self.rng.choice(_VERBS)
        arguments: dict[str, object] = {"queue": self._queue()}
        options: dict[str, object] = {
            name: self.rng.choice(NUMBERS) for name in self.rng.sample(_OPTIONS, self.rng.randrange(4))
        }
        choice = self.rng.choice(sorted(_CHOICES))
        options[choice] = self.rng.choice(_CHOICES[choice])
        if verb in ("queue.create", "queue.change"):
            if self.rng.random() < 0.5:
                # Failures whose next attempt lies beyond every calendar.
                most = self.rng.choice((0, 2**64 - 1))
                options = {"retry_base_ms": 2**63, "retry_max_ms": most, "max_attempts": 99}
            arguments["options" if verb == "queue.create" else "changes"] = options
        elif verb == "queue.remove":
            arguments["runs"] = [[1, self.rng.choice((3, 2**63, 2**64))]]
        elif verb.startswith("group."):
            start = self.rng.choice(("beginning", "now", "sequence", 9))
            arguments |= {"group": "g1", "start": start, "start_sequence": self.rng.choice((0, 3, 2**64, 2**80))}
        elif verb.startswith(("dlq", "queue.peek")):
            arguments |= {"limit": self.rng.choice((1, 0, -1, 2**64)), "after": self.rng.choice((0, 2**64, "x"))}
        payload = orjson.dumps({"verb": verb, "arguments": {k: _small(v) for k, v in arguments.items()}})
        return encode_body(CommandType.ADMIN, self._id(), payload=payload)

    def _cursor(self) -> bytes:
        """A request of a reader by range, or of a transaction."""
        verb = self.rng.choice(_CURSOR_VERBS)
        low, high = sorted((self._small_number(), self._small_number()))
        arguments: dict[str, object] = {"group": self.rng.choice(("c1", "c1", "c2", "g1"))}
        arguments |= {"from": low, "to": high, "sequence": high, "epoch": self.rng.randrange(1, 4), "wait_ms": 0}
        arguments |= {"rejects": [[low, "bad"], [high, ""]], "runs": [[low, high]], "ids": [low, high]}
        arguments |= {"app": "a1", "version": self.rng.randrange(3), "stages": [self.rng.choice(("t1", "t2"))]}
        if self.rng.random() < 0.3:
            arguments["start"] = self.rng.choice(("latest", "time:5", "sequence:3", "x"))
        for name in ("hold_ms", "max_lag_ms", "max_lag_bytes", "max_messages", "max_bytes", "at_ms", "target_bytes"):
            if self.rng.random() < 0.15:
                arguments[name] = self.rng.choice(NUMBERS)
        if self.rng.random() < 0.1:
            arguments[self.rng.choice(sorted(arguments))] = self.rng.choice((None, "x", [], {}, -1, 2**64))
        payload = orjson.dumps({"verb": verb, "arguments": {k: _small(v) for k, v in arguments.items()}})
        queue = "" if verb.startswith("transaction") else self._queue()
        return encode_body(CommandType.CURSOR_REQUEST, self._id(), queue, payload)

    def _small_number(self) -> int:
        return self.rng.choice((self.rng.randrange(1, 30), self.rng.randrange(1, 30), self.rng.choice(NUMBERS)))

    def _stage(self) -> bytes:
        rows = Rows.of([pack_row(f"t{self._said}-{n}", self._payload()) for n in range(self.rng.randrange(4))])
        about = {
            "app": "a1",
            "version": self.rng.randrange(3),
            "stage": self.rng.choice(("t1", "t2", "t/3")),
            "chunk": 0,
        }
        if self.rng.random() < 0.1:
            about[self.rng.choice(sorted(about))] = self.rng.choice((None, "", -1, "x" * 300))
        return ext.stage(self._id(), self._queue(), about, rows)

    _WAYS: tuple[Callable[["Talker"], bytes], ...] = (
        _plain,
        _connect,
        *(_publish,) * 4,
        *(_publish_many,) * 3,
        *(_subscribe,) * 3,
        _unsubscribe,
        *(_ack,) * 3,
        *(_settle,) * 3,
        _flow,
        *(_create,) * 2,
        *(_admin,) * 3,
        *(_cursor,) * 4,
        _stage,
    )


_VERBS = (
    *("queue.create", "queue.create", "queue.change", "queue.delete", "queue.purge", "queue.remove", "queue.info"),
    *(
        "queue.list",
        "group.delete",
        "group.seek",
        "queue.peek",
        "dlq.list",
        "dlq.replay",
        "dlq.purge",
        "stats",
        "nothing",
    ),
)


_CURSOR_VERBS = (
    *("group.join", "group.join", "group.offsets", "group.advance", "group.split", "group.fetch", "group.fetch"),
    *("group.commit", "group.commit", "group.reject", "group.quarantine", "group.set", "group.seek", "group.delete"),
    *("group.list", "dead.offsets", "dead.fetch", "dead.redrive", "transaction.commit", "transaction.abort"),
    *("transaction.last", "nothing"),
)


def _small(value: object) -> object:
    """What JSON writers hold: 64 bits."""
    if isinstance(value, dict):
        return {name: _small(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_small(item) for item in value]
    return 2**64 - 1 if isinstance(value, int) and value >= 2**64 else value
