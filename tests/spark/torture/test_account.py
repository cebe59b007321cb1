"""The account of the torture sees what it is there to see."""

import pytest

pytest.importorskip("pyspark")

from tests.spark.torture.account import Account, place  # behind the check for pyspark
from tests.spark.torture.driver import SINKS


def account() -> Account:
    """Three messages everywhere, all of them arrived."""
    found = Account()
    for name in SINKS:
        found.published[name] = {0, 1, 2}
        found.arrived[name] = [(1, 0), (2, 1), (3, 2)]
    return found


def test_all_is_well() -> None:
    assert account().problems() == []


@pytest.mark.parametrize("name", SINKS)
def test_what_is_lost_is_a_problem_for_every_sink(name: str) -> None:
    found = account()
    found.arrived[name].pop()
    assert found.problems() == [f"sink {name}: 1 messages lost"]


@pytest.mark.parametrize("name", SINKS)
def test_duplicates_are_a_problem_where_they_must_not_be(name: str) -> None:
    found = account()
    found.arrived[name].append((2, 1))
    assert found.duplicates(name) == 1
    assert found.copies(name) == 2
    assert bool(found.problems()) == (name != "plain")


def test_what_its_publisher_has_sent_twice_is_no_duplicate_of_the_sink() -> None:
    found = account()
    found.arrived["once"].append((4, 1))
    assert found.duplicates("once") == 0
    assert found.stored_twice("once") == 1


def test_a_message_may_be_in_two_outputs_and_not_twice_in_one() -> None:
    """A query whose checkpoint was deleted has another output."""
    found = account()
    found.arrived["once"].append((place(1, 3), 2))
    assert found.problems() == []
    assert found.stored_twice("once") == 0
    found.arrived["once"].append((place(1, 3), 2))
    assert found.problems() == ["sink once: 1 duplicates"]


def test_why_drivers_ended() -> None:
    found = account()
    for why in ("… [OFFSET_GONE: …]", "3 messages are gone before", "Python worker failed to connect back.", "else"):
        found.ended(why)
    assert (found.gone, found.gaps, found.too_slow, found.other) == (1, 1, 1, ["else"])
    assert len(found.problems()) == 3
