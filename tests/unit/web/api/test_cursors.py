"""Cursors are this broker's own, and belong to one list, filter and user."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import InvalidPayload
from vibemq.web.api.cursors import CursorSeal

SEAL = CursorSeal(b"k" * 32)
FILTERS = {"queue": "orders"}


@given(st.one_of(st.integers(0, 2**63 - 1), st.text()))
def test_a_cursor_comes_back(position: int | str) -> None:
    cursor = SEAL.seal(position, "/queues", FILTERS, "ada")
    assert SEAL.open(cursor, "/queues", FILTERS, "ada") == position
    assert cursor.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    ("place", "filters", "user"),
    [("/dead-letters", FILTERS, "ada"), ("/queues", {"queue": "other"}, "ada"), ("/queues", FILTERS, "bob")],
)
def test_it_is_worth_nothing_elsewhere(place: str, filters: dict[str, str], user: str) -> None:
    cursor = SEAL.seal(7, "/queues", FILTERS, "ada")
    with pytest.raises(InvalidPayload, match="read the list from its beginning"):
        SEAL.open(cursor, place, filters, user)


def test_not_after_a_restart_either() -> None:
    cursor = SEAL.seal(7, "/queues", {}, "")
    with pytest.raises(InvalidPayload):
        CursorSeal(b"another key").open(cursor, "/queues", {}, "")


@given(st.text(max_size=100))
def test_garbage_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidPayload):
        SEAL.open(cursor, "/queues", {}, "")


@given(st.integers(0, 20), st.integers(1, 255))
def test_no_byte_may_differ(place: int, change: int) -> None:
    cursor = SEAL.seal(123, "/queues", {}, "")
    place %= len(cursor)
    altered = cursor[:place] + chr((ord(cursor[place]) ^ change) & 0x7F) + cursor[place + 1 :]
    if altered == cursor or place == len(cursor) - 1:
        # The last character has bits that stand for nothing.
        return
    with pytest.raises(InvalidPayload):
        SEAL.open(altered, "/queues", {}, "")
