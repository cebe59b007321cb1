"""Which part of the letters behind the cursor a job looks at next, and when."""

from vibemq.server.jobs.blocked_queues import PASS_AGAIN_MS, PASS_SHARE, RETRY_MS, BlockedQueues


def passed(blocked: BlockedQueues, last: int, now: int) -> int:
    blocked.note("q", "it does not exist", RETRY_MS)
    blocked.pass_page(last, now)
    return blocked.reached


def test_a_pass_is_left_for_the_letters_at_the_cursor_and_goes_on_behind() -> None:
    blocked = BlockedQueues()
    assert [passed(blocked, 10, 0), passed(blocked, 20, RETRY_MS - 1), passed(blocked, 30, RETRY_MS)] == [10, 20, 0]
    blocked.try_again()
    assert not blocked
    assert passed(blocked, 10, RETRY_MS) == 30


def test_when_nothing_waits_at_the_cursor_the_next_pass_begins_there() -> None:
    """Letters behind it, for queues that take theirs by now, would be passed over."""
    blocked = BlockedQueues()
    passed(blocked, 10, 0)
    assert passed(blocked, 30, RETRY_MS) == 0
    blocked.clear()
    hour = 3_600_000
    assert passed(blocked, 15, hour) == 15
    blocked.end_pass(hour + 2_000)
    assert blocked.may_pass(hour + 2_000 + PASS_SHARE * 2_000)


def test_the_next_pass_waits_the_longer_the_last_one_took() -> None:
    blocked = BlockedQueues()
    assert blocked.may_pass(0)
    passed(blocked, 10, 0)
    assert blocked.end_pass(2) == ("it does not exist", RETRY_MS)
    assert not blocked.may_pass(PASS_AGAIN_MS + 1)
    assert blocked.may_pass(PASS_AGAIN_MS + 2)
    now = PASS_AGAIN_MS + 2
    passed(blocked, 10, now)
    blocked.end_pass(now + PASS_AGAIN_MS)
    assert not blocked.may_pass(now + PASS_AGAIN_MS * PASS_SHARE)
    assert blocked.may_pass(now + PASS_AGAIN_MS * (PASS_SHARE + 1))
