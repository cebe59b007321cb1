"""Values in the sentences that refuse them."""

from typing import Any

import pytest

from vibemq.model.arguments import SHORT_CHARACTERS, short, utf16_units
from vibemq.spark.connection import wire


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "'a'"),
        (None, "None"),
        ({"a": [1, {}]}, "{'a': [1, {}]}"),
        ([[[[1]]], 2], "[[[…]], 2]"),
        ("a" * 50, "'" + "a" * 38 + "…"),
        ([0] * 50, "[" + "0, " * 12 + "0,…"),
        ({"a" * 50: 1}, "{'" + "a" * 37 + "…"),
    ],
)
def test_a_value_is_written_on_a_part_of_a_line(value: Any, text: str) -> None:
    assert short(value) == text
    assert len(text) <= SHORT_CHARACTERS


def test_of_a_very_large_value_no_more_is_written_than_is_told() -> None:
    written: list[object] = []

    class Leaf:
        def __repr__(self) -> str:
            written.append(self)
            return "0"

    value: Any = [Leaf()] * 1_000
    for _ in range(5):
        value = [value] * 1_000
        short({"a": value, **{str(at): value for at in range(1_000)}})
    assert len(written) <= 14**3


@pytest.mark.parametrize(
    ("text", "units"),
    [("", 0), ("queue", 5), ("zürich", 6), ("ก", 1), ("\uffff", 1), ("😀", 2), ("a😀b", 4), ("\ud83d", 1)],
)
def test_a_character_outside_the_basic_plane_is_two_units(text: str, units: int) -> None:
    assert utf16_units(text) == units
    assert wire.utf16_units(text) == units, "Spark's executors count with their own"
