"""What a change of users does to connections, in simulated time: each look at one takes LOOK_S."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.integration.access import cheap_hash
from vibemq.auth.users import Account, Accounts
from vibemq.model.access import Principal, ResourceKind, Rule
from vibemq.model.commands import Command, EndConsumers
from vibemq.server.access.revocation import Revocation
from vibemq.server.clock import Clock

pytestmark = pytest.mark.anyio
LOOK_S = 0.000_1
HOLD_S_MAX = 0.005
EVERYTHING = (Rule(ResourceKind.QUEUE, "a.*", frozenset({"subscribe"})),)


@dataclass
class RevokedPeer:
    number: int
    principal: Principal | None
    connection_id: str = "c"
    parted: bool = False
    leaving: bool = False
    busy: bool = False
    dismissed: str = ""
    goodbyes: list[str] = field(default_factory=list)
    decided: list[Command] = field(default_factory=list)

    def decide(self, commands: list[Command]) -> None:
        self.decided += commands

    def goodbye(self, reason: str) -> None:
        self.goodbyes.append(reason)

    def dismiss(self, reason: str) -> None:
        self.dismissed = reason


class CrowdOfPeers:
    def __init__(self, peers: int, subscriptions: int = 0) -> None:
        self.now_s = 0.0
        self.longest_s = 0.0
        self.accounts = Accounts([Account("ann", cheap_hash("old"), rules=EVERYTHING), Account("bob", cheap_hash())])
        ann = self.accounts.authenticate("ann", "old", "", 1)
        self.peers = [RevokedPeer(number, ann) for number in range(1, peers + 1)]
        self.any_parked = False
        self._subscribed = [(consumer, "a.q") for consumer in range(subscriptions)]
        self.revocation = Revocation(
            self.accounts,
            Clock(),
            subscriptions=self._subscriptions,
            any_parked=lambda: self.any_parked,
            peers=lambda: cast(Any, self.peers),
            monotonic=self._tick,
        )

    def _tick(self) -> float:
        self.now_s += LOOK_S
        return self.now_s

    def _subscriptions(self, number: int) -> Sequence[Any]:
        return self._subscribed

    async def look(self, *names: str, asker: int = 0) -> None:
        looking = asyncio.ensure_future(self.revocation.look_at_users(names, asker=asker))
        while not looking.done():
            before = self.now_s
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, self.now_s - before)
        looking.result()


async def test_ten_thousand_connections_do_not_hold_the_loop() -> None:
    crowd = CrowdOfPeers(10_000)
    crowd.accounts.replace([Account("ann", cheap_hash("new"), rules=EVERYTHING)], token=None)
    await crowd.look("ann")
    assert crowd.now_s >= 10_000 * LOOK_S
    assert crowd.longest_s <= HOLD_S_MAX
    assert all("password of user 'ann' was changed" in peer.dismissed for peer in crowd.peers)


async def test_a_connection_with_very_many_subscriptions_does_not_hold_the_loop() -> None:
    crowd = CrowdOfPeers(1, subscriptions=1_000)
    crowd.accounts.replace([Account("ann", cheap_hash("old"))], token=None)
    await crowd.look("ann")
    assert crowd.now_s >= 1_000 * LOOK_S
    assert crowd.longest_s <= HOLD_S_MAX
    [command] = crowd.peers[0].decided
    assert isinstance(command, EndConsumers)
    assert "'subscribe'" in str(command.subscriptions("a.q"))
    assert not crowd.peers[0].dismissed


@pytest.mark.parametrize("waits", ["already", "perhaps soon"])
async def test_what_waits_for_room_is_refused_where_the_right_is_gone(waits: str) -> None:
    """Also what is under way when the connection is looked at, and comes to wait before the engine has the command."""
    crowd = CrowdOfPeers(1)
    crowd.any_parked = waits == "already"
    crowd.peers[0].busy = waits == "perhaps soon"
    publish = (Rule(ResourceKind.QUEUE, "b.*", frozenset({"publish"})),)
    crowd.accounts.replace([Account("ann", cheap_hash("old"), rules=publish)], token=None)
    await crowd.look("ann")
    [command] = crowd.peers[0].decided
    assert isinstance(command, EndConsumers)
    assert "'subscribe'" in str(command.subscriptions("a.q"))
    assert command.publishes is not None
    assert "'publish'" in str(command.publishes("a.q"))
    assert command.publishes("b.q") is None


async def test_a_connection_of_which_nothing_is_under_way_is_left_alone() -> None:
    crowd = CrowdOfPeers(1)
    crowd.accounts.replace([Account("ann", cheap_hash("old"))], token=None)
    await crowd.look("ann")
    assert crowd.peers[0].decided == []


async def test_others_are_left_alone() -> None:
    crowd = CrowdOfPeers(2, subscriptions=1)
    crowd.accounts.replace([Account("ann", cheap_hash("old"))], token=None)
    await crowd.look("bob")
    crowd.peers[0].parted = True
    crowd.peers[1].leaving = True
    await crowd.look("ann")
    assert not any(peer.decided or peer.dismissed for peer in crowd.peers)


async def test_whoever_has_asked_for_the_change_is_answered_before_it_has_to_go() -> None:
    crowd = CrowdOfPeers(2)
    crowd.accounts.replace([], token="shared")
    await crowd.look("ann", asker=2)
    assert [(peer.dismissed, peer.goodbyes) for peer in crowd.peers] == [
        ("user 'ann' was removed", []),
        ("", ["user 'ann' was removed"]),
    ]


async def test_who_left_the_broker_with_a_login_that_ended_is_not_told() -> None:
    crowd = CrowdOfPeers(1)
    crowd.accounts.replace([], token="shared")
    crowd.peers[0].parted = True
    assert crowd.revocation.ends(cast(Any, crowd.peers[0]))
    assert not crowd.peers[0].dismissed
