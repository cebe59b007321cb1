from vibemq.server.clock import DRIFT_MS_MAX, Clock


class Times:
    """A wall clock and a monotonic clock, set by hand, in seconds."""

    def __init__(self) -> None:
        self.wall = 1_000_000.0
        self.monotonic = 50.0

    def clock(self, not_before: int = 0) -> Clock:
        return Clock(not_before=not_before, wall=lambda: self.wall, monotonic=lambda: self.monotonic)

    def pass_s(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


def test_time_flows_with_the_monotonic_clock() -> None:
    times = Times()
    clock = times.clock()
    assert clock.now() == 1_000_000_000
    times.pass_s(1.5)
    assert clock.now() == 1_000_001_500


def test_a_wall_clock_set_a_year_ahead_expires_nothing() -> None:
    times = Times()
    clock = times.clock()
    before = clock.now()
    times.wall += 365 * 86_400
    clock.follow_wall()
    assert clock.now() == before + DRIFT_MS_MAX


def test_a_wall_clock_set_back_never_turns_time_back() -> None:
    times = Times()
    clock = times.clock()
    times.pass_s(10)
    before = clock.now()
    times.wall -= 86_400
    clock.follow_wall()
    assert clock.now() == before
    times.pass_s(1)
    assert before < clock.now() <= before + 1000


def test_time_starts_no_earlier_than_what_storage_has_just_seen() -> None:
    clock = Times().clock(not_before=1_000_002_000)
    assert clock.now() == 1_000_002_000
    assert clock.set_back_ms == 0


def test_a_store_of_the_far_future_does_not_take_the_clock_with_it() -> None:
    times = Times()
    clock = times.clock(not_before=1_000_000_000 + 365 * 86_400_000)
    assert clock.now() == 1_000_000_000
    assert clock.set_back_ms == 365 * 86_400_000
    times.pass_s(60)
    assert clock.now() == 1_000_060_000
    assert clock.ahead_ms() == 0


def test_how_far_the_wall_clock_was_set_is_known_and_shrinks() -> None:
    times = Times()
    clock = times.clock()
    times.wall += 3_600
    assert clock.ahead_ms() == -3_600_000
    times.wall -= 7_200
    assert clock.ahead_ms() == 3_600_000
    for _ in range(20):
        times.pass_s(1)
        clock.follow_wall()
    assert clock.ahead_ms() == 3_600_000 - 20 * DRIFT_MS_MAX


def test_small_differences_are_followed_whole() -> None:
    times = Times()
    clock = times.clock()
    clock.now()
    times.wall += 0.020
    clock.follow_wall()
    assert clock.now() == 1_000_000_020
