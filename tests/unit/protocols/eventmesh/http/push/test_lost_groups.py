"""Groups of EventMesh over HTTP that ask again for what they have lost."""

import pytest

from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.push.lost_groups import AGAIN_MS, AGAIN_SOON_MS, LostGroups
from vibemq.protocols.eventmesh.http.push.registry import GroupKey
from vibemq.testing.session_conformance import context

WAIT_MS = 30_000
KEY: GroupKey = ("ann", "", 0, "t", "g")


class Asking:
    """Each time, it is in vain."""

    def __init__(self) -> None:
        self.own = InnerSession(context(), None, parted=lambda reason: None)
        self.groups = LostGroups(lambda: self.own, self.ask)
        self.asked = 0
        self.lost_again = True

    def ask(self, key: GroupKey) -> None:
        self.asked += 1
        if self.lost_again:
            self.groups.add(key, WAIT_MS)

    def turns(self) -> int:
        """How often it is asked in them."""
        before = self.asked
        self.own.commands()
        while self.own.unread:
            self.own.commands()
        return self.asked - before

    def wait(self) -> int:
        self.own.tick(self.own.now + WAIT_MS)
        return self.turns()


def test_changes_of_a_user_leave_one_timer() -> None:
    asking = Asking()
    asking.groups.add(KEY, WAIT_MS)
    for _ in range(50):
        asking.groups.users_changed({"ann", "ben"})
        assert asking.turns() == 1
    assert [asking.wait() for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("wait_ms", [0, WAIT_MS])
def test_who_has_found_its_subscription_asks_no_more(wait_ms: int) -> None:
    asking = Asking()
    asking.groups.add(KEY, WAIT_MS)
    asking.lost_again = False
    asking.groups.add(KEY, wait_ms)
    asking.groups.users_changed({"ann"})
    assert asking.turns() == 1
    assert asking.wait() == 0
    asking.groups.users_changed({"ann"})
    assert asking.turns() == 0
    asking.groups.add(KEY, WAIT_MS)
    assert asking.wait() == 1


def test_a_group_whose_queue_has_gone_asks_soon_and_then_less_often() -> None:
    own = InnerSession(context(), None, parted=lambda reason: None)
    asked: list[int] = []

    def ask(key: GroupKey) -> None:
        asked.append(own.now - began)
        groups.add_soon(key)
        groups.add_soon(key)

    groups, began = LostGroups(lambda: own, ask), own.now
    groups.add_soon(KEY)
    for _ in range(9):
        deadline = own.next_deadline()
        assert deadline is not None
        own.tick(deadline)
        while own.unread:
            own.commands()
    waits = [later - earlier for earlier, later in zip([0, *asked], asked, strict=False)]
    assert waits == [AGAIN_SOON_MS << step for step in range(6)] + [AGAIN_MS] * 3
    groups.forget(KEY)
    groups.users_changed({"ann"})
    own.commands()
    assert own.next_deadline() == own.now + AGAIN_MS, "its timer stays"
