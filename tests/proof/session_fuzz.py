"""Whole conversations at random, with a real broker in this process: engine, guard, committer, connections.

Each round, several clients say valid, nearly valid and broken things in any order; some log in, some never do, some
read nothing, some leave in the middle of a frame. Beside them a witness, alive through all rounds, publishes and
consumes on a queue that the others may not touch. After each round:

    nothing was logged as an error, no exception reached the loop, and the broker is up
    every command that reached the engine came from a session that had logged in
    nothing of a stranger was decompressed
    what reached storage can be written to the journal and read back
    nobody was told anything of the witness's, and the witness got everything that is its own
    the engine's counts obey the law of conservation
"""

import asyncio
import base64
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic import SecretStr

from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.fuzz_engine import Broken
from tests.proof.session_talk import OWN_QUEUES, Talker
from tests.proof.wire import Wire
from vibemq.auth.passwords import _scrypt
from vibemq.config import Auth, Http, Limits, Listener, Permission, Settings, StorageChoice, User
from vibemq.engine import Batch
from vibemq.model.commands import CloseSession, DeleteQueue, SetFlow
from vibemq.model.records import Record
from vibemq.protocols.native.codec import extensions as ext
from vibemq.protocols.native.codec.compression import Inflater
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body
from vibemq.server.broker import Broker
from vibemq.server.net.listener import endpoint_of
from vibemq.storage.kvstore.encoding import decode_batch, encode_batch

CLIENTS = 5
STEPS = 60
MARK = b"witness-only"
"""In everything that the witness says and nobody else may hear."""
PASSWORD = "secret"
TOKEN = "token"
CLEAN_EVERY = 20
IDLE_TURNS = 20_000
"""Of the loop, in which a request of the witness is answered if it ever is."""


def _hash(password: str) -> str:
    """The cheapest there is: this is no test of the password check."""
    digest = _scrypt(password.encode(), b"saltsalt", 1, 1, 1)
    return "$".join(
        ["scrypt", "1", "1", "1", base64.b64encode(b"saltsalt").decode(), base64.b64encode(digest).decode()]
    )


def _settings() -> Settings:
    everything = Permission(queues="f*", actions=("*",))
    witness = Permission(queues="w", actions=("*",))
    users = {
        "fuzz": User(password_hash=SecretStr(_hash(PASSWORD)), permissions=(everything,)),
        "witness": User(password_hash=SecretStr(_hash(PASSWORD)), permissions=(witness,)),
    }
    return Settings(
        storage=StorageChoice(provider="memory"),
        listeners=(Listener(port=0),),
        http=Http(enabled=False),
        auth=Auth(users=users, token=SecretStr(TOKEN)),
        limits=Limits(handshake_bytes_max=2_048, disk_reserve_bytes=0),
        drain_timeout_ms=1_000,
    )


class Errors(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record)[-1500:])


class Arena:
    """One broker with spies at its inner doors."""

    def __init__(self, broker: Broker) -> None:
        assert broker._parts is not None
        self.broker = broker
        self.parts = broker._parts
        self.engine = cast(Any, self.parts.engine)
        # The memory provider forgets at the end, which nobody here waits for: so queues of every durability may be had.
        self.engine._state.settings = replace(self.engine._state.settings, transient_only=False)
        self.endpoint = endpoint_of(Listener())
        self.wrong: list[str] = []
        self.errors = Errors()
        self.wires: dict[int, Wire] = {}
        self.sessions = 0
        self._spy_on_engine(self.engine.advance)
        self._spy_on_storage(self.parts.store.provider.append)

    def _spy_on_engine(self, advance: Callable[..., Any]) -> None:
        def spy(batch: Batch, now: int) -> Any:
            for command in cast("Sequence[Any]", batch.commands):
                wire = self.wires.get(command.session)
                known = wire is None or wire.connection.principal is not None
                if not known and not isinstance(command, CloseSession | SetFlow):
                    self.wrong.append(f"{type(command).__name__} of a stranger reached the engine")
            return advance(batch, now)

        self.engine.advance = spy

    def _spy_on_storage(self, append: Callable[[Sequence[Record]], int]) -> None:
        def spy(records: Sequence[Record]) -> int:
            try:
                if decode_batch(b"".join(encode_batch(records))) != list(records):
                    self.wrong.append(f"the journal would give back other records than {records!r:.600}")
            except Exception as error:
                self.wrong.append(f"the journal could not keep {records!r:.600}: {error!r}")
            return append(records)

        self.parts.store.provider.append = spy  # type: ignore[method-assign]

    def connect(self) -> Wire:
        self.sessions += 1
        # Addresses differ, or failed logins of one would keep the others waiting.
        host = ".".join(
            str(part) for part in (10, self.sessions >> 16 & 255, self.sessions >> 8 & 255, self.sessions & 255)
        )
        wire = Wire(self.parts.socket_services, self.endpoint, host)
        self.wires[wire.connection.number] = wire
        return wire

    def forget(self, wire: Wire) -> None:
        self.wires.pop(wire.connection.number, None)

    def inflated(self, inflater: Inflater) -> None:
        for wire in self.wires.values():
            if wire.session._frame_parser._inflater is inflater and wire.connection.principal is None:
                self.wrong.append("bytes of a stranger were decompressed")

    async def settle(self) -> None:
        """Until everything that was asked has been decided, kept and told."""
        for _ in range(3):
            await asyncio.sleep(0)
            await self.parts.committer.settled()
        for _ in range(200):
            if not any(wire.connection.pending for wire in self.wires.values()):
                return
            await asyncio.sleep(0.001)

    async def tidy(self) -> None:
        """Queues of the clients, and what is in them, would otherwise pile up over the rounds."""
        for name in OWN_QUEUES:
            if self.engine.queue_info(name) is not None:
                self.parts.decider.decide([DeleteQueue(0, None, name)])
        await self.settle()

    def complaints(self) -> list[str]:
        """What has gone wrong since the last call."""
        told = [*self.wrong, *self.errors.lines, *self.engine.violations()]
        if self.broker._life.failure is not None:
            told.append(f"the broker has stopped: {self.broker._life.failure!r}")
        self.wrong.clear()
        self.errors.lines.clear()
        return told


class Witness:
    """Publishes and consumes what is its own, and checks that it is all there."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._wire = arena.connect()
        self._number = 0
        hello = {"authUsername": "witness", "authPassword": PASSWORD, "supported-extensions": "batch/1"}
        self._wire.say(encode_frame(encode_body(CommandType.CONNECT, "c", headers=hello)))

    async def begin(self) -> None:
        await self._hear(CommandType.CONNECT_ACK)
        self._wire.say(encode_frame(encode_body(CommandType.SUBSCRIBE, "s", "w")))
        await self._hear(CommandType.SUBSCRIBE_ACK)

    async def check(self) -> None:
        """One message through the broker. Raises Broken when it does not come, or something else does."""
        self._number += 1
        payload = b'"%s-%d"' % (MARK, self._number)
        body = encode_body(CommandType.PUBLISH, f"w{self._number}", "w", payload)
        self._wire.say(encode_frame(body))
        frames = [await self._next(), await self._next()]
        kinds = sorted(frame[1] for frame in frames)
        if kinds != [CommandType.PUBLISH_ACK, CommandType.DELIVER_MANY]:
            raise Broken(f"the witness got frames of types {kinds}")
        [delivered] = [ext.parse_deliver_many(frame) for frame in frames if frame[1] == CommandType.DELIVER_MANY]
        if payload not in delivered.rows.data or delivered.rows.count != 1:
            raise Broken(f"the witness got {delivered.rows.data[:200]!r} instead of its message {self._number}")
        first = delivered.first_sequence
        self._wire.say(encode_frame(ext.settle("s", 0, [(first, first)])))
        await self._arena.settle()
        info = self._arena.engine.queue_info("w")
        if info is None or info.ready or info.in_flight or self._wire.bodies:
            raise Broken(f"the witness's queue is not as it left it: {info}, {self._wire.bodies[:1]}")

    async def _next(self) -> bytes:
        deadline = time.monotonic() + 60
        idle = 0
        while not self._wire.bodies:
            # Everything happens in this loop, but for the check of a password.
            idle = 0 if self._wire.connection.pending else idle + 1
            if self._wire.closed or idle > IDLE_TURNS or time.monotonic() > deadline:
                raise Broken("the witness was not answered" + (", and was hung up on" if self._wire.closed else ""))
            await asyncio.sleep(0 if self._arena.engine.queue_info("w") else 0.001)
        return self._wire.bodies.pop(0)

    async def _hear(self, kind: CommandType) -> None:
        body = await self._next()
        if body[1] != kind:
            raise Broken(f"the witness got {decode_body(body)}")


# -- rounds -------------------------------------------------------------------------------------------------------


async def play(arena: Arena, seed: str) -> None:
    """One round: clients talk and leave."""
    rng = random.Random(seed)
    clients = [_client(arena, rng) for _ in range(CLIENTS)]
    await arena.settle()
    for _ in range(STEPS):
        which = rng.randrange(CLIENTS)
        if clients[which][0].closed:
            _part(arena, clients[which][0])
            clients[which] = _client(arena, rng)
            if rng.random() < 0.8:
                # Credentials are checked in a thread; the others speak before they are.
                await arena.settle()
        wire, talker = clients[which]
        chance = rng.random()
        if chance < 0.72:
            wire.say(talker.anything())
        elif chance < 0.74:
            wire.stuck = not wire.stuck
        elif chance < 0.76:
            wire.end_of_stream()
        elif chance < 0.78:
            wire.vanish()
        else:
            for _ in range(rng.randrange(1, 4)):
                await asyncio.sleep(0)
    for wire, _ in clients:
        wire.stuck = False
        wire.vanish() if rng.random() < 0.5 else wire.end_of_stream()
    await arena.settle()
    for wire, _ in clients:
        _part(arena, wire)
    await arena.settle()


def _part(arena: Arena, wire: Wire) -> None:
    wire.vanish()
    arena.forget(wire)
    if MARK in wire.heard:
        raise Broken("a client was told something of the witness's")


def _client(arena: Arena, rng: random.Random) -> tuple[Wire, Talker]:
    chance = rng.random()
    if chance < 0.25:
        # A superuser may do anything to anybody, so it is kept away from the witness's queue.
        talker = Talker(rng, (*OWN_QUEUES, "nope"), {"authToken": TOKEN})
    elif chance < 0.75:
        talker = Talker(rng, (*OWN_QUEUES, "w"), {"authUsername": "fuzz", "authPassword": PASSWORD})
    else:
        talker = Talker(rng, (*OWN_QUEUES, "w"), {"authUsername": "fuzz", "authPassword": "wrong"})
    wire = arena.connect()
    if rng.random() < 0.85:
        wire.say(talker.hello())
    return wire, talker


async def session(budget: Budget, result: Result) -> None:
    async with Broker(settings=_settings()) as broker:
        arena = Arena(broker)
        log = logging.getLogger("vibemq")
        log.addHandler(arena.errors)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: arena.wrong.append(f"in the loop: {context}"))
        inflate = Inflater.inflate

        def spy(self: Inflater, packed: bytes, flag: int) -> bytes:
            arena.inflated(self)
            return inflate(self, packed, flag)

        Inflater.inflate = spy  # type: ignore[method-assign]
        try:
            await _rounds(budget, result, arena)
        finally:
            Inflater.inflate = inflate  # type: ignore[method-assign]
            log.removeHandler(arena.errors)


async def _rounds(budget: Budget, result: Result, arena: Arena) -> None:
    witness = Witness(arena)
    await witness.begin()
    deadline = time.monotonic() + budget.seconds
    number = 0
    while result.cases < budget.cases:
        if time.monotonic() >= deadline:
            result.complete = False
            break
        seed = f"{budget.seed}/{number}"
        number += 1
        try:
            await play(arena, seed)
            await witness.check()
        except Broken as broken:
            arena.wrong.append(str(broken))
        result.cases = arena.sessions
        if number % CLEAN_EVERY == 0:
            await arena.tidy()
        told = arena.complaints()
        if told:
            repeat = f"python -m tests.proof.session_fuzz {budget.seed} {result.cases}"
            result.findings.append(Finding(f"round {seed}: {told[0]}", repeat))
            if len(result.findings) >= 5 or arena.broker._life.failure is not None:
                result.complete = False
                break
    result.figures["rounds"] = number
    result.figures["commands to the engine"] = arena.engine.totals.commands


def run(budget: Budget) -> Result:
    result = Result(unit="sessions")
    asyncio.run(session(budget, result))
    return result


METHOD = Method(
    name="session-fuzz",
    title="whole conversations at random, a witness beside them",
    run=run,
    short=Size(100, 10),
    crash=Size(cases=14_000, seconds=45),
    torture=Size(cases=90_000, seconds=200),
)

if __name__ == "__main__":
    import sys
    from pathlib import Path

    shown = run(Budget(int(sys.argv[2]), 1e9, int(sys.argv[1]), Path()))
    print(shown.cases, shown.figures, *(f"{finding.what}\n" for finding in shown.findings), sep="\n")
