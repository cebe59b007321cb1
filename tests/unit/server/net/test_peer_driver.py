"""What a peer is written, and what of it goes back."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vibemq.engine import Batch
from vibemq.model.commands import CloseSession, Command, Extend, SetFlow, Settle, Settlement
from vibemq.model.effects import Deliver
from vibemq.protocols.session import OptionalVerbs, Request, Session
from vibemq.server.access.admission import PeerAdmission
from vibemq.server.commit.release_order import EffectRouter, told_to_nobody
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.driving.services import PeerServices
from vibemq.server.net.peer_driver import EXTEND_LEAST_MS, PeerDriver

pytestmark = pytest.mark.anyio


class TakesCommands:
    """In the place of a `Decider`."""

    generation = 0

    def __init__(self) -> None:
        self.taken: list[Command] = []

    def append_now(self) -> bool:
        return True

    def advance(self, batch: Batch) -> bool:
        self.taken += batch.commands
        batch.place = len(batch.commands)
        return False


class PartingSession(OptionalVerbs):
    """It has said its last word, and fails the test when it is given a message."""

    closing = True
    unread = False
    rows_at_once = 100

    def tick(self, now: int) -> None:
        pass

    def commands(self) -> Sequence[Request]:
        return ()

    def data_to_send(self) -> bytes:
        return b"the last word"


class TakesWork(TakesCommands):
    """What is asked for is decided at once."""

    def steps(self, batch: Batch) -> Iterator[None]:
        self.advance(batch)
        yield

    def go_on(self, work: Iterator[None]) -> None:
        for _ in work:
            pass


class FaultySession(PartingSession):
    """Fails with whatever it is asked, and has asked for something that nobody can decide."""

    @property
    def has_left(self) -> bool:
        raise ValueError("a fault of ours")

    def receive_data(self, data: bytes) -> None:
        raise ValueError("a fault of ours")

    def let_go(self) -> None:
        return None


class Raises(TakesWork):
    """So does a handler of the engine."""

    def advance(self, batch: Batch) -> bool:
        super().advance(batch)
        if any(isinstance(command, Settle) for command in batch.commands):
            raise ValueError("a fault of ours")
        return False


class ReadingSession(PartingSession):
    closing = False

    def data_to_send(self) -> bytes:
        return b""

    def next_deadline(self) -> int | None:
        return None


def driver(session: object, decider: TakesCommands, clock: SimpleNamespace | None = None) -> PeerDriver:
    services: Any = SimpleNamespace(
        clock=clock or SimpleNamespace(now=lambda: 1),
        metrics=Metrics(),
        decider=decider,
        effect_router=EffectRouter(),
        store=SimpleNamespace(memory=None, first_large=told_to_nobody, picks=lambda _: False, blocking=False),
        authenticator=SimpleNamespace(logged_out=told_to_nobody, logins_version=0),
        operations=SimpleNamespace(command_audit=SimpleNamespace(note=told_to_nobody), forget=told_to_nobody),
        fatal=told_to_nobody,
    )
    return PeerDriver(
        cast(PeerServices, services),
        cast(Session, session),
        cast(PeerAdmission, None),
        number=1,
        connection_id="c",
        host="h",
        wake=told_to_nobody,
        protocol="omq",
    )


async def test_nothing_is_delivered_behind_the_last_word_and_it_goes_back_unharmed() -> None:
    decider = TakesCommands()
    peer = driver(PartingSession(), decider)
    peer.take([Deliver(1, 7, "jobs", 1, 0, [(4, 6)])])
    assert peer.collect(1_000) == (b"the last word", True)
    assert decider.taken == [SetFlow(1, False), Settle(1, None, 7, Settlement.RELEASE, [(4, 6)])]


async def test_a_session_is_closed_for_the_engine_whatever_fails_before_it() -> None:
    """It would be handed messages for as long as the broker runs."""
    decider = Raises()
    peer = driver(FaultySession(), decider)
    peer.take([Deliver(1, 7, "jobs", 1, 0, [(4, 6)])])
    peer.part()
    assert decider.taken[-1] == CloseSession(1, False)
    assert peer.broken


async def test_a_fault_in_reading_ends_the_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    peer = driver(FaultySession(), TakesWork())
    peer.keep(b"x")
    assert (peer.broken, peer.leaving) == (True, True)
    assert "what a peer has sent could not be read" in caplog.text


async def test_the_time_to_settle_begins_when_a_message_is_written() -> None:
    decider, clock = TakesCommands(), SimpleNamespace(at=0)
    clock.now = lambda: clock.at
    peer = driver(ReadingSession(), decider, clock)
    peer.take([Deliver(1, 7, "jobs", 1, 0, [(4, 6)], ack_timeout_ms=1_000), Deliver(1, 8, "mail", 2, 0, [(1, 1)])])
    peer.take([Deliver(1, 7, "jobs", 1, 0, [(9, 9)], ack_timeout_ms=1_000)])
    peer.collect(0)
    for _ in range(3):
        clock.at += 250
        assert peer.next_deadline() == clock.at
        peer.tick()
        assert decider.taken == [Extend(1, None, 7, [(4, 6), (9, 9)], own=True)]
        decider.taken.clear()
    peer.delivery_queue.take_back()
    peer.collect(0)
    assert peer.next_deadline() is None


async def test_a_short_time_to_settle_has_the_unwritten_extended_no_more_often_than_the_loop_bears() -> None:
    decider, clock = TakesCommands(), SimpleNamespace(at=0)
    clock.now = lambda: clock.at
    peer = driver(ReadingSession(), decider, clock)
    peer.take([Deliver(1, 7, "jobs", 1, 0, [(4, 6)], ack_timeout_ms=1)])
    peer.collect(0)
    assert peer.next_deadline() == EXTEND_LEAST_MS


async def test_what_has_no_time_to_settle_needs_no_tick() -> None:
    peer = driver(ReadingSession(), TakesCommands())
    peer.take([Deliver(1, 8, "mail", 2, 0, [(1, 1)])])
    peer.collect(0)
    assert peer.next_deadline() is None
