from vibemq.server.access.guessing import (
    ARRIVALS_AT_ONCE,
    ATTACK_ENDS_S,
    FAILURES_AT_ONCE,
    FLOOD_AT_ONCE,
    FLOOD_PER_S,
    FORGOTTEN_S,
    FREE,
    NAME_FAILURES_PER_MINUTE,
    GuessLimiter,
    address_of,
)
from vibemq.server.access.login_queue import LoginStanding

HOST = "192.0.2.1"


def fail(limiter: GuessLimiter, host: str, name: str, times: int, now: float = 0.0) -> list[float]:
    """How long to wait after each."""
    waits = []
    for _ in range(times):
        limiter.failed(host, name, now)
        waits.append(limiter.wait_s(host, name, now))
    return waits


def test_failures_cost_more_and_more() -> None:
    limiter = GuessLimiter()
    waits = fail(limiter, HOST, "ann", 14)
    assert waits[: FREE + 3] == [0.0] * (FREE - 1) + [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == 60.0
    assert limiter.wait_s("192.0.2.2", "ann", 0.0) == 0.0


def test_at_most_ten_guesses_a_minute_from_one_address() -> None:
    limiter, guesses = GuessLimiter(), 0
    for tenth in range(600):
        if limiter.wait_s(HOST, f"user{tenth}", tenth / 10) == 0:
            guesses += 1
            limiter.failed(HOST, f"user{tenth}", tenth / 10)
    assert guesses == 10


def test_other_names_wait_for_what_an_address_has_failed_at_but_not_those_who_are_known_there() -> None:
    limiter = GuessLimiter()
    limiter.succeeded(HOST, "ann")
    fail(limiter, HOST, "bob", 8)
    assert limiter.wait_s(HOST, "carl", 0.0) > 0
    assert limiter.wait_s(HOST, "ann", 0.0) == 0


def test_a_login_forgives_its_own_failures_only() -> None:
    limiter = GuessLimiter()
    fail(limiter, HOST, "victim", 8)
    waiting = limiter.wait_s(HOST, "victim", 0.0)
    fail(limiter, HOST, "mallory", 3)
    limiter.succeeded(HOST, "mallory")
    assert limiter.wait_s(HOST, "victim", 0.0) >= waiting
    limiter.succeeded(HOST, "victim")
    assert limiter.wait_s(HOST, "victim", 0.0) == 0


def test_a_name_under_attack_is_open_to_its_owner() -> None:
    limiter = GuessLimiter()
    limiter.succeeded("198.51.100.1", "ann")
    for number in range(2 * NAME_FAILURES_PER_MINUTE):
        limiter.failed(f"203.0.113.{number}", "ann", 0.0)
    assert limiter.wait_s("203.0.113.1", "ann", 0.0) == 0, "it came before the attack was one"
    assert limiter.wait_s("203.0.113.39", "ann", 0.0) > 0, "one guess was free"
    assert limiter.wait_s("198.51.100.2", "ann", 0.0) == 0, "a fresh address"
    assert fail(limiter, "198.51.100.1", "ann", FREE - 1) == [0.0] * (FREE - 1), "known there"


def test_failures_are_forgotten_one_day() -> None:
    limiter = GuessLimiter()
    fail(limiter, HOST, "ann", 12)
    later = 61 + FORGOTTEN_S
    assert fail(limiter, HOST, "ann", 1, later) == [0.0]


def test_a_million_failures_are_one_wait_and_bounded_tables() -> None:
    limiter = GuessLimiter(table_max=100)
    for number in range(5_000):
        limiter.failed(f"10.0.{number % 250}.{number // 250}", "x" * (number % 7), float(number))
        limiter.succeeded(f"10.1.{number % 250}.{number // 250}", "y")
    assert len(limiter) <= 6 * 100
    assert fail(limiter, HOST, "ann", 5_000)[-1] == 60.0


def test_local_guesses_are_slowed_down_by_address() -> None:
    assert address_of("127.0.0.1") == "127.0.0.1"
    assert address_of("") == address_of("local")
    limiter = GuessLimiter()
    fail(limiter, "127.0.0.2", "ann", FREE)
    assert limiter.wait_s("127.0.0.2", "ann", 0.0) > 0
    assert limiter.wait_s("127.0.0.1", "ann", 0.0) == 0


def test_standing() -> None:
    limiter = GuessLimiter()
    assert limiter.standing(HOST, "ann") is LoginStanding.FRESH
    limiter.failed(HOST, "bob", 0.0)
    assert limiter.standing(HOST, "ann") is LoginStanding.SUSPECT
    limiter.succeeded(HOST, "ann")
    assert limiter.standing(HOST, "ann") is LoginStanding.KNOWN
    assert limiter.standing(HOST, "carl") is LoginStanding.SUSPECT


def test_an_address_that_waits_may_not_connect_as_it_likes_unless_somebody_has_logged_in_from_there() -> None:
    limiter = GuessLimiter()
    assert not any(limiter.turns_away(HOST, 0.0) for _ in range(100))
    fail(limiter, HOST, "ann", 12)
    assert [limiter.turns_away(HOST, 0.0) for _ in range(ARRIVALS_AT_ONCE + 1)] == [False] * ARRIVALS_AT_ONCE + [True]
    assert not limiter.turns_away("192.0.2.2", 0.0)
    assert not limiter.turns_away(HOST, 2.0)
    limiter.succeeded(HOST, "bob")
    assert not any(limiter.turns_away(HOST, 2.0) for _ in range(100))


def test_while_very_many_fail_an_address_that_is_new_has_one_guess() -> None:
    limiter = GuessLimiter()
    assert fail(limiter, "198.51.100.1", "ann", 1) == [0.0]
    for number in range(FAILURES_AT_ONCE):
        limiter.failed(f"203.0.{number}.1", f"user{number}", 0.0)
    assert limiter.is_attacked(0.0)
    assert limiter.wait_s(HOST, "ann", 0.0) == 0.0, "everybody has that one"
    assert fail(limiter, HOST, "ann", 2) == [1.0, 2.0]
    later = ATTACK_ENDS_S - 1
    assert limiter.wait_s(HOST, "bea", later) == 0.0
    assert let_in(limiter, HOST, later) == ARRIVALS_AT_ONCE, "it has failed"
    assert let_in(limiter, "198.51.100.8", later) == 100
    ended = ATTACK_ENDS_S + 1
    assert not limiter.is_attacked(ended)
    assert let_in(limiter, HOST, ended) == 100
    assert fail(limiter, "198.51.100.2", "bea", 2, ended) == [0.0, 0.0]


def test_few_failures_a_second_turn_nobody_else_away() -> None:
    """A hundred pods behind one new address, while somebody tries three passwords a second from everywhere."""
    limiter = GuessLimiter()
    for third in range(900):
        limiter.failed(f"10.{third // 250}.{third % 250}.1", f"user{third}", third / 3)
        assert not any(limiter.turns_away(HOST, third / 3) for _ in range(100))
    assert limiter.is_attacked(300.0)


def flooded(limiter: GuessLimiter, now: float = 0.0) -> None:
    for _ in range(FLOOD_AT_ONCE + 1):
        limiter.note_unwanted(now)


def let_in(limiter: GuessLimiter, host: str, now: float) -> int:
    return [limiter.turns_away(host, now) for _ in range(100)].count(False)


def test_a_flood_leaves_few_connections_to_addresses_that_are_new() -> None:
    limiter = GuessLimiter()
    limiter.succeeded("198.51.100.1", "ann")
    limiter.note_address("198.51.100.2")
    for number in range(FLOOD_AT_ONCE):
        limiter.failed(f"10.0.{number // 250}.{number % 250}", "ann", 0.0)
        assert not limiter.turns_away(HOST, 0.0)
    limiter.failed("10.1.0.1", "ann", 0.0)
    assert let_in(limiter, HOST, 0.0) == ARRIVALS_AT_ONCE
    assert let_in(limiter, "198.51.100.1", 0.0) == let_in(limiter, "198.51.100.2", 0.0) == 100
    assert let_in(limiter, HOST, ATTACK_ENDS_S) == 100


def test_a_flood_lasts_while_new_addresses_keep_coming_and_not_for_those_that_wait_anyway() -> None:
    new, waiting = GuessLimiter(), GuessLimiter()
    for number in range(50):
        fail(waiting, f"10.0.0.{number}", f"user{number}", 40)
    flooded(new)
    flooded(waiting)
    for millisecond in range(30_000):
        new.turns_away(f"10.{millisecond % 100}.0.1", millisecond / 1000)
        waiting.turns_away(f"10.0.0.{millisecond % 50}", millisecond / 1000)
    assert FLOOD_PER_S < 1000
    assert let_in(new, HOST, 30.0) == ARRIVALS_AT_ONCE
    assert let_in(waiting, HOST, 30.0) == 100


def test_an_address_is_known_for_its_connections_and_not_for_a_name() -> None:
    limiter = GuessLimiter()
    fail(limiter, HOST, "ann", 12)
    waiting = limiter.wait_s(HOST, "ann", 0.0)
    limiter.note_address(HOST)
    assert let_in(limiter, HOST, 0.0) == 100
    assert limiter.wait_s(HOST, "ann", 0.0) == waiting
    assert limiter.standing(HOST, "ann") is LoginStanding.SUSPECT
