"""What a peer is written, and what of it goes back."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vibemq.engine import Batch
from vibemq.model.commands import Command, SetFlow, Settle, Settlement
from vibemq.model.effects import Deliver
from vibemq.protocols.session import OptionalVerbs, Request, Session
from vibemq.server.access.admission import PeerAdmission
from vibemq.server.commit.release_order import EffectRouter, told_to_nobody
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.driving.services import PeerServices
from vibemq.server.net.peer_driver import PeerDriver

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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


async def test_nothing_is_delivered_behind_the_last_word_and_it_goes_back_unharmed() -> None:
    decider = TakesCommands()
    services: Any = SimpleNamespace(
        clock=SimpleNamespace(now=lambda: 1),
        metrics=Metrics(),
        decider=decider,
        effect_router=EffectRouter(),
        store=SimpleNamespace(memory=None, first_large=told_to_nobody, picks=lambda _: False, blocking=False),
        authenticator=None,
        operations=SimpleNamespace(command_audit=SimpleNamespace(note=told_to_nobody)),
        fatal=told_to_nobody,
    )
    peer = PeerDriver(
        cast(PeerServices, services),
        cast(Session, PartingSession()),
        cast(PeerAdmission, None),
        number=1,
        connection_id="c",
        host="h",
        wake=told_to_nobody,
        protocol="omq",
    )
    peer.take([Deliver(1, 7, "jobs", 1, 0, [(4, 6)])])
    assert peer.collect(1_000) == (b"the last word", True)
    assert decider.taken == [SetFlow(1, False), Settle(1, None, 7, Settlement.RELEASE, [(4, 6)])]
