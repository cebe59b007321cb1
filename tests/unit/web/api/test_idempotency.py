"""The same key has the same answer, for an hour."""

import re
from itertools import pairwise

import pytest

from vibemq.errors import ErrorCode, InvalidPayload
from vibemq.web.api.errors import HttpCode, Problem
from vibemq.web.api.idempotency import (
    ANSWER_BYTES_MAX,
    EXPIRED_AT_ONCE,
    KEPT_BYTES_MAX,
    KEPT_MAX,
    KEPT_S,
    KEY_PATTERN,
    REFUSAL_BYTES_MAX,
    KeptAnswer,
    KeptAnswers,
    Key,
    checked_key,
    is_kept,
    one_key,
)

KEY = ("ada", "", 0, "POST /queues/{queue}/purge", "k")
ANSWER = KeptAnswer(200, (("content-type", "application/json"),), b"{}")


def test_the_first_answer_comes_again() -> None:
    kept = KeptAnswers()
    assert kept.begin(KEY, b"body", 0.0) is None
    kept.keep(KEY, ANSWER, 0.0)
    assert kept.begin(KEY, b"body", 1.0) == ANSWER


def test_another_request_under_the_same_key_is_refused() -> None:
    kept = KeptAnswers()
    kept.begin(KEY, b"body", 0.0)
    kept.keep(KEY, ANSWER, 0.0)
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
    assert kept.begin(("ada", "of a token", *KEY[2:]), b"other", 0.0) is None
    assert kept.begin(("ada", "", 7, *KEY[3:]), b"other", 0.0) is None


def test_forgotten_after_an_hour_and_beyond_the_most() -> None:
    kept = KeptAnswers()
    kept.begin(KEY, b"body", 0.0)
    kept.keep(KEY, ANSWER, 0.0)
    assert kept.begin(KEY, b"other", KEPT_S) is None
    for number in range(KEPT_MAX + 1):
        done(kept, ("", "", 0, "", str(number)), KeptAnswer(200, (), b""))
    assert len(kept) == KEPT_MAX


def test_after_an_idle_hour_some_go_with_each_request_and_none_is_given_again() -> None:
    kept = KeptAnswers()
    keys = [("", "", 0, "", str(number)) for number in range(1_000)]
    for key in keys:
        done(kept, key, ANSWER)
    last, left = keys[-1], [1_000]
    while left[-1]:
        assert kept.begin(last, b"other", 2 * KEPT_S) is None
        kept.forget(last)
        left.append(len(kept))
    assert max(before - after for before, after in pairwise(left)) <= EXPIRED_AT_ONCE + 1


def test_what_is_under_way_is_not_forgotten_after_an_hour() -> None:
    """A disk may stand still for so long, and what was asked for is carried out when it goes on."""
    kept = KeptAnswers()
    kept.begin(KEY, b"body", 0.0)
    with pytest.raises(Problem):
        kept.begin(KEY, b"body", KEPT_S)
    kept.keep(KEY, ANSWER, KEPT_S)
    assert kept.begin(KEY, b"body", KEPT_S) == ANSWER
    assert kept.begin(KEY, b"body", 2 * KEPT_S) is None


def test_a_large_answer_is_not_kept() -> None:
    kept = KeptAnswers()
    kept.begin(KEY, b"body", 0.0)
    kept.keep(KEY, KeptAnswer(200, (), b"x" * (ANSWER_BYTES_MAX + 1)), 0.0)
    assert kept.begin(KEY, b"body", 0.0) is None


def test_a_refusal_is_kept_when_it_is_short() -> None:
    kept = KeptAnswers()
    kept.begin(KEY, b"body", 0.0)
    kept.keep(KEY, KeptAnswer(422, (), b"x" * (REFUSAL_BYTES_MAX + 1)), 0.0)
    assert kept.begin(KEY, b"body", 0.0) is None
    kept.keep(KEY, KeptAnswer(422, (), b"x"), 0.0)
    assert kept.begin(KEY, b"body", 0.0) == KeptAnswer(422, (), b"x")


def done(kept: KeptAnswers, key: Key, answer: KeptAnswer, now_s: float = KEPT_S) -> None:
    assert kept.begin(key, b"", now_s) is None
    kept.keep(key, answer, now_s)


def test_answers_are_bounded_in_bytes_and_one_user_takes_no_room_of_others() -> None:
    kept = KeptAnswers()
    done(kept, KEY, ANSWER)
    under_way = ("eve", "", 0, "", "under way")
    kept.begin(under_way, b"", KEPT_S)
    for number in range(300):
        done(kept, ("eve", "", 0, "", str(number)), KeptAnswer(200, (), b"x" * ANSWER_BYTES_MAX))
        assert kept.size <= KEPT_BYTES_MAX
    assert kept.size > KEPT_BYTES_MAX - ANSWER_BYTES_MAX - 1_000
    assert kept.begin(KEY, b"", KEPT_S) == ANSWER
    with pytest.raises(Problem) as refusal:
        kept.begin(under_way, b"", KEPT_S)
    assert refusal.value.code is HttpCode.IDEMPOTENCY_BUSY
    assert kept.begin(("eve", "", 0, "", "0"), b"", KEPT_S) is None, "the oldest was forgotten"
    assert kept.begin(("eve", "", 0, "", "299"), b"", KEPT_S) is not None


def test_what_has_expired_goes_before_what_may_be_asked_for_again() -> None:
    kept = KeptAnswers()
    for number in range(KEPT_BYTES_MAX // ANSWER_BYTES_MAX + 100):
        done(kept, (f"user {number}", "", 0, "", "k"), KeptAnswer(200, (), b"x" * (ANSWER_BYTES_MAX // 20)), 0.0)
    assert kept.size > KEPT_BYTES_MAX // 2
    large = KeptAnswer(200, (), b"x" * (ANSWER_BYTES_MAX - 1_000))
    for number in range(KEPT_BYTES_MAX // ANSWER_BYTES_MAX):
        done(kept, ("ada", "", 0, "", str(number)), large, KEPT_S)
    for number in range(KEPT_BYTES_MAX // ANSWER_BYTES_MAX):
        assert kept.begin(("ada", "", 0, "", str(number)), b"", KEPT_S) == large


def test_what_is_forgotten_leaves_nothing() -> None:
    kept = KeptAnswers()
    done(kept, KEY, ANSWER)
    assert kept.size
    kept.begin(("bob", "", 0, "", "k"), b"", 3 * KEPT_S)
    kept.forget(("bob", "", 0, "", "k"))
    assert (len(kept), kept.size) == (0, 0)


@pytest.mark.parametrize("key", ["", "x" * 256, "ä", "a\nb"])
def test_keys_are_short_and_plain(key: str) -> None:
    with pytest.raises(InvalidPayload):
        checked_key(key)


@pytest.mark.parametrize(
    ("key", "described"), [("k", True), ("two words", True), ('a"!~', True), ("ä", False), ("a\tb", False)]
)
def test_keys_are_as_the_description_says(key: str, described: bool) -> None:
    assert (re.fullmatch(KEY_PATTERN, key) is not None) == described
    if described:
        assert checked_key(key) == key
    else:
        with pytest.raises(InvalidPayload):
            checked_key(key)


def test_what_may_pass_is_not_kept() -> None:
    answers = {200, 201, 202, 400, 401, 403, 404, 409, 412, 413, 422, 429, 500, 503, 504, 507}
    assert {status for status in answers if is_kept(status)} == {200, 201, 202, 400, 413, 422, 500, 504, 507}


def test_a_key_is_given_once() -> None:
    assert one_key([]) is None
    assert one_key(["k"]) == "k"
    with pytest.raises(InvalidPayload, match="more than once"):
        one_key(["k", "k"])
