from vibemq.server.access.login_queue import ADDRESS_MAX, LANE_MAX, LoginQueue, LoginStanding


def drained(queue: LoginQueue[str]) -> list[str]:
    taken = []
    while (login := queue.take()) is not None:
        taken.append(login)
    return taken


def test_addresses_take_turns() -> None:
    queue: LoginQueue[str] = LoginQueue()
    for number in range(3):
        queue.add("a", f"a{number}", LoginStanding.SUSPECT)
    queue.add("b", "b0", LoginStanding.SUSPECT)
    assert drained(queue) == ["a0", "b0", "a1", "a2"]


def test_of_fresh_addresses_the_newest_comes_first() -> None:
    queue: LoginQueue[str] = LoginQueue()
    for address in "abc":
        queue.add(address, address, LoginStanding.FRESH)
    assert drained(queue) == ["c", "b", "a"]


def test_who_is_known_waits_for_one_of_the_others() -> None:
    queue: LoginQueue[str] = LoginQueue()
    for number in range(100):
        queue.add(f"x{number}", f"x{number}", LoginStanding.FRESH)
    queue.take()
    queue.add("a", "ann", LoginStanding.KNOWN)
    assert "ann" in (queue.take(), queue.take(), queue.take())


def test_those_who_are_not_known_are_served_beside_the_known() -> None:
    queue: LoginQueue[str] = LoginQueue()
    for number in range(100):
        queue.add("a", f"a{number}", LoginStanding.KNOWN)
    queue.add("b", "bob", LoginStanding.FRESH)
    queue.add("c", "carl", LoginStanding.SUSPECT)
    assert {"bob", "carl"} <= {queue.take(), queue.take(), queue.take()}


def test_there_is_room_for_so_many() -> None:
    queue: LoginQueue[str] = LoginQueue()
    assert sum(queue.add("a", "x", LoginStanding.FRESH) for _ in range(2 * ADDRESS_MAX)) == ADDRESS_MAX
    assert sum(queue.add(f"b{n}", "x", LoginStanding.FRESH) for n in range(2 * LANE_MAX)) == LANE_MAX - ADDRESS_MAX
    assert sum(queue.add("a", "x", LoginStanding.KNOWN) for _ in range(2 * LANE_MAX)) == LANE_MAX
    assert len(queue) == len(drained(queue)) == 2 * LANE_MAX
    assert len(queue) == 0


def test_a_fresh_address_that_asks_again_before_its_answer_comes_behind_those_that_wait() -> None:
    queue: LoginQueue[str] = LoginQueue()
    for address in "abcc":
        queue.add(address, address, LoginStanding.FRESH)
    assert drained(queue) == ["b", "a", "c", "c"]
