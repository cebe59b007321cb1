"""Shares of pushes: nobody's URLs take what others need, and whoever waits is called."""

from collections.abc import Callable

from vibemq.protocols.eventmesh.http.push.slots import CALLS_AT_ONCE, PushSlot, PushSlots, UrlStanding


class World:
    def __init__(self, most: int = 48, unproven: int = 16) -> None:
        self.later: list[Callable[[], None]] = []
        self.slots = PushSlots(most, unproven, self.later.append)
        self.called: list[PushSlot] = []
        self.taken: list[PushSlot] = []

    def wish(self, user: str, host: str, standing: UrlStanding, *, takes: bool = True) -> PushSlot:
        def again() -> None:
            self.called.append(slot)
            if takes:
                self.ask(slot)

        slot = PushSlot(user, host, standing, again)
        return slot

    def ask(self, slot: PushSlot) -> bool:
        if self.slots.take(slot):
            self.taken.append(slot)
            return True
        self.slots.wait(slot)
        return False

    def give(self) -> None:
        self.slots.give(self.taken.pop(0))


def test_urls_that_hang_leave_slots_to_others() -> None:
    """Whatever is asked for before: another user, and another host of the same user, find a slot."""
    for standing in UrlStanding:
        world = World()
        for number in range(1_000):
            world.ask(world.wish("mallory", f"host{number}", standing))
        assert world.ask(world.wish("ann", "app", UrlStanding.PROVEN))
        if standing is not UrlStanding.FAILING:
            assert world.ask(world.wish("ann", "app", UrlStanding.NEW)) or standing is UrlStanding.PROVEN
        world = World()
        for _ in range(1_000):
            world.ask(world.wish("mallory", "hangs", standing))
        assert world.ask(world.wish("mallory", "works", UrlStanding.NEW))
        assert world.ask(world.wish("mallory", "works", UrlStanding.PROVEN))


def test_unproven_urls_take_only_their_part() -> None:
    world = World()
    for number in range(200):
        world.ask(world.wish(f"user{number}", f"host{number}", UrlStanding.FAILING))
    assert len(world.taken) == 8
    for number in range(200):
        world.ask(world.wish(f"user{number}", f"host{number}", UrlStanding.NEW))
    assert len(world.taken) == 16
    for number in range(200):
        world.ask(world.wish(f"user{number}", f"host{number}", UrlStanding.PROVEN))
    assert len(world.taken) == 48


def test_who_does_not_take_its_slot_leaves_it_to_the_next() -> None:
    world = World(1, 1)
    assert world.ask(world.wish("u", "a", UrlStanding.FAILING))
    world.ask(world.wish("u", "b", UrlStanding.FAILING, takes=False))
    last = world.wish("u", "c", UrlStanding.FAILING)
    world.ask(last)
    world.give()
    assert world.taken == [last]


def test_many_that_do_not_take_are_called_in_turns() -> None:
    world = World(1, 1)
    world.ask(world.wish("u", "a", UrlStanding.NEW))
    for number in range(3 * CALLS_AT_ONCE):
        world.ask(world.wish("u", f"b{number}", UrlStanding.NEW, takes=False))
    last = world.wish("u", "c", UrlStanding.NEW)
    world.ask(last)
    world.give()
    assert len(world.called) == CALLS_AT_ONCE
    while world.later:
        world.later.pop()()
    assert world.taken == [last]


def test_users_and_hosts_take_turns_and_who_withdraws_is_not_called() -> None:
    world = World(1, 1)
    world.ask(world.wish("u", "a", UrlStanding.NEW))
    for _ in range(3):
        world.ask(world.wish("mallory", "one", UrlStanding.NEW))
    world.ask(world.wish("mallory", "two", UrlStanding.NEW))
    gone = world.wish("bob", "x", UrlStanding.NEW)
    world.ask(gone)
    world.ask(world.wish("ann", "app", UrlStanding.NEW))
    world.slots.withdraw(gone)
    world.slots.withdraw(gone)
    for _ in range(5):
        world.give()
    order = [(slot.user, slot.host) for slot in world.called]
    assert order == [
        ("mallory", "one"),
        ("ann", "app"),
        ("mallory", "two"),
        ("mallory", "one"),
        ("mallory", "one"),
    ]


def test_a_new_url_waits_for_two_of_its_host_however_many_hang() -> None:
    world = World()
    for _ in range(1_000):
        world.ask(world.wish("mallory", "app", UrlStanding.NEW))
    works = world.wish("ann", "app", UrlStanding.NEW)
    last = world.wish("mallory", "app", UrlStanding.NEW)
    for slot in (works, last):
        assert not world.ask(slot), "the share of the host is taken"
    for _ in range(4):
        world.give()
    assert works in world.taken
    assert last in world.taken
    first = [slot for slot in world.called if slot not in (works, last)]
    for _ in range(20):
        world.give()
    assert len([slot for slot in world.called if slot not in (works, last)]) > len(first), "nor do the others starve"


def test_whoever_is_called_later_is_called_once_in_a_turn() -> None:
    """However many slots come free meanwhile."""
    world = World()
    while world.ask(world.wish("ann", f"host{len(world.taken)}", UrlStanding.PROVEN)):
        pass
    for number in range(10 * CALLS_AT_ONCE):
        world.slots.wait(world.wish("ben", f"host{number}", UrlStanding.PROVEN, takes=False))
    for _ in range(10):
        world.give()
    assert len(world.called) == CALLS_AT_ONCE
    assert len(world.later) == 1
    while world.later:
        before = len(world.called)
        world.later.pop()()
        assert len(world.called) - before <= CALLS_AT_ONCE
    assert len(world.called) == 10 * CALLS_AT_ONCE + 1
