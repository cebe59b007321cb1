"""The same key has the same answer, for an hour."""

import pytest

from vibemq.errors import ErrorCode, InvalidPayload
from vibemq.web.api.errors import HttpCode, Problem
from vibemq.web.api.idempotency import ANSWER_BYTES_MAX, KEPT_MAX, KEPT_S, KeptAnswer, KeptAnswers, checked_key

KEY = ("ada", "POST /queues/{queue}/purge", "k")
ANSWER = KeptAnswer(200, (("content-type", "application/json"),), b"{}")


def test_the_first_answer_comes_again() -> None:
    kept = KeptAnswers()
    assert kept.begin(KEY, b"body", 0.0) is None
    kept.keep(KEY, ANSWER)
    assert kept.begin(KEY, b"body", 1.0) == ANSWER


def test_another_request_under_the_same_key_is_refused() -> None:
    kept = KeptAnswers()
    kept.begin(KEY, b"body", 0.0)
    kept.keep(KEY, ANSWER)
    with pytest.raises(Problem) as refusal:
        kept.begin(KEY, b"other", 0.0)
    assert refusal.value.code is ErrorCode.IDEMPOTENCY_CONFLICT


def test_while_the_first_is_under_way_the_second_waits() -> None:
    kept = KeptAnswers()
    kept.begin(KEY, b"body", 0.0)
    with pytest.raises(Problem) as refusal:
        kept.begin(KEY, b"body", 0.0)
    assert refusal.value.code is HttpCode.IDEMPOTENCY_BUSY


def test_keys_of_others_are_others() -> None:
    kept = KeptAnswers()
    kept.begin(KEY, b"body", 0.0)
    assert kept.begin(("bob", *KEY[1:]), b"other", 0.0) is None


def test_forgotten_after_an_hour_and_beyond_the_most() -> None:
    kept = KeptAnswers()
    kept.begin(KEY, b"body", 0.0)
    assert kept.begin(KEY, b"other", KEPT_S) is None
    for number in range(KEPT_MAX + 1):
        kept.begin(("", "", str(number)), b"", KEPT_S)
    assert len(kept) == KEPT_MAX


def test_a_large_answer_is_not_kept() -> None:
    kept = KeptAnswers()
    kept.begin(KEY, b"body", 0.0)
    kept.keep(KEY, KeptAnswer(200, (), b"x" * (ANSWER_BYTES_MAX + 1)))
    assert kept.begin(KEY, b"body", 0.0) is None


@pytest.mark.parametrize("key", ["", "x" * 256, "ä", "a\nb"])
def test_keys_are_short_and_plain(key: str) -> None:
    with pytest.raises(InvalidPayload):
        checked_key(key)
