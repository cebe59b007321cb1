"""Verdicts: each kind of loss and of return is found, and what a policy allows is not called one."""

import pytest

from tests.proof.account import Account, Contents, Found, Place, judge

QUEUE, DEAD = Place("queue", 0), Place("dead", 0)


def publish(account: Account, name: str, policy: str, at: int, *, confirmed: int | None = None) -> str:
    message_id = f"{name}-1-10"
    account.published(message_id, name, policy, at)
    if confirmed is not None:
        account.confirmed(message_id, 1, confirmed)
    return message_id


def holding(**places: Place) -> Contents:
    contents = Contents()
    for name, place in places.items():
        contents.add(f"{name}-1-10", Found(name, place, 1, True))
    return contents


@pytest.mark.parametrize(
    ("policy", "power_cut", "lost"),
    [("strong", True, 1), ("strong", False, 1), ("weak", True, 0), ("weak", False, 1), ("async", False, 0)],
)
def test_a_confirm_is_safe_as_its_policy_says(policy: str, power_cut: bool, lost: int) -> None:
    account = Account()
    publish(account, "m", policy, 1, confirmed=2)
    verdict = judge(account, Contents(), power_cut=power_cut)
    assert len(verdict.lost) == lost
    assert verdict.confirmed == 1


def test_a_later_strong_confirm_takes_everything_before_it_along() -> None:
    account = Account()
    publish(account, "w", "weak", 1, confirmed=2)
    publish(account, "s", "strong", 3, confirmed=4)
    assert "w-1-10" in judge(account, holding(s=QUEUE), power_cut=True).lost[0]
    # Sent before the weak confirm was known, it proves nothing about it; that the store has it does.
    early = Account()
    publish(early, "w", "weak", 1, confirmed=3)
    publish(early, "s", "strong", 2, confirmed=4)
    assert judge(early, holding(s=QUEUE), power_cut=True).sound


def test_what_was_not_confirmed_may_be_there_or_not() -> None:
    account = Account()
    publish(account, "s", "strong", 1)
    assert judge(account, Contents(), power_cut=True).sound
    assert judge(account, holding(s=QUEUE), power_cut=True).sound


def test_what_nobody_published_or_what_was_refused_is_no_message() -> None:
    account = Account()
    assert len(judge(account, holding(ghost=QUEUE), power_cut=False).resurrected) == 1
    account.refused(publish(account, "s", "strong", 1))
    assert judge(account, Contents(), power_cut=False).sound
    assert len(judge(account, holding(s=QUEUE), power_cut=False).resurrected) == 1


def test_a_hole_is_a_loss_under_every_policy() -> None:
    account = Account()
    publish(account, "first", "async", 1, confirmed=2)
    publish(account, "second", "async", 3, confirmed=4)
    assert judge(account, holding(first=QUEUE), power_cut=True).sound
    assert judge(account, Contents(), power_cut=True).sound
    (hole,) = judge(account, holding(second=QUEUE), power_cut=True).lost
    assert "first-1-10 is missing" in hole


def test_an_ack_may_be_forgotten_until_something_strong_follows() -> None:
    account = Account()
    message = publish(account, "s", "strong", 1, confirmed=2)
    account.issued(message, "ack", 3).done_at = 4
    assert judge(account, holding(s=QUEUE), power_cut=True).sound
    assert judge(account, Contents(), power_cut=True).sound
    publish(account, "t", "strong", 5, confirmed=6)
    assert len(judge(account, holding(s=QUEUE, t=QUEUE), power_cut=True).resurrected) == 1
    assert judge(account, holding(t=QUEUE), power_cut=True).sound


def test_a_dead_letter_is_in_one_place_and_comes_back_once() -> None:
    account = Account()
    message = publish(account, "s", "strong", 1, confirmed=2)
    account.issued(message, "reject", 3).done_at = 4
    account.issued(message, "replay", 5)
    for place in (QUEUE, DEAD, Place("queue", 1)):
        assert judge(account, holding(s=place), power_cut=True).sound
    assert len(judge(account, holding(s=Place("dead", 1)), power_cut=True).resurrected) == 1
    assert len(judge(account, Contents(), power_cut=True).lost) == 1
    twice = holding(s=DEAD)
    twice.add(message, Found("s", Place("queue", 1), 2, True))
    assert len(judge(account, twice, power_cut=True).resurrected) == 1


def test_the_instant_of_the_cut_decides_what_was_promised() -> None:
    account = Account()
    publish(account, "s", "strong", 10, confirmed=20)
    assert judge(account, Contents(), power_cut=True, cut_at=19).sound
    assert not judge(account, Contents(), power_cut=True, cut_at=20).sound
    assert not judge(account, holding(s=QUEUE), power_cut=True, cut_at=9).sound, "it was not sent yet"


def test_old_weak_messages_are_not_lost() -> None:
    account = Account()
    publish(account, "w", "weak", 1, confirmed=2_000_000)
    young = judge(account, Contents(), power_cut=True, noticed_at=102_000_000, weak_limit_ms=200)
    assert (young.sound, young.worst_weak_ms, young.weak_lost) == (True, 100.0, 1)
    assert not judge(account, Contents(), power_cut=True, noticed_at=302_000_000, weak_limit_ms=200).sound


@pytest.mark.parametrize("found", [Found("s", QUEUE, 1, False), Found("t", QUEUE, 1, True), Found("s", QUEUE, 2, True)])
def test_body_queue_and_sequence_are_compared(found: Found) -> None:
    account, contents = Account(), Contents()
    contents.add(publish(account, "s", "strong", 1, confirmed=2), found)
    assert not judge(account, contents, power_cut=False).sound


def test_a_queue_that_was_created_is_there() -> None:
    account = Account()
    account.creating("q", 1).done_at = 2
    assert not judge(account, Contents(), power_cut=True).sound
    assert judge(account, Contents({"q"}), power_cut=True).sound


def test_after_a_crash_what_is_there_has_happened_and_what_is_gone_stays_away() -> None:
    account = Account()
    kept = publish(account, "kept", "async", 1, confirmed=2)
    account.issued(kept, "reject", 3)
    publish(account, "gone", "async", 4, confirmed=5)
    before = holding(kept=QUEUE)
    assert judge(account, before, power_cut=False).sound
    account.rebase(before, 10)
    assert judge(account, before, power_cut=True).sound
    assert not judge(account, Contents(), power_cut=True).sound
    assert not judge(account, holding(kept=DEAD), power_cut=True).sound
    assert not judge(account, holding(kept=QUEUE, gone=QUEUE), power_cut=True).sound


def test_what_was_confirmed_by_a_lying_disk_may_be_gone() -> None:
    account = Account()
    for message_id, confirmed_at in (("q-1-10", 5), ("q-2-10", 50)):
        account.published(message_id, "q", "strong", 1)
        account.confirmed(message_id, 1, confirmed_at)
    (lost,) = judge(account, Contents({"q"}), power_cut=True, trusted_until=20).lost
    assert "q-1-10" in lost
    assert len(judge(account, Contents({"q"}), power_cut=True).lost) == 2


def test_a_queue_that_a_crash_kept_from_being_made_is_made_again() -> None:
    account = Account()
    account.creating("kept", 1).done_at = 2
    account.creating("undone", 3)
    account.rebase(Contents({"kept"}), 10)
    assert list(account.queues) == ["kept"]


@pytest.mark.parametrize(
    ("found", "power_cut", "lost", "resurrected"),
    [(4, False, 1, 0), (5, False, 0, 0), (6, False, 0, 0), (7, False, 0, 1), (4, True, 0, 0), (None, False, 0, 0)],
)
def test_a_reader_is_between_what_it_was_told_and_what_it_has_asked(
    found: int | None, power_cut: bool, lost: int, resurrected: int
) -> None:
    account = Account()
    account.acknowledged, account.acknowledging = 5, 6
    verdict = judge(account, Contents(committed=found), power_cut=power_cut)
    assert (len(verdict.lost), len(verdict.resurrected)) == (lost, resurrected)
