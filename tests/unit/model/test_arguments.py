"""Values in the sentences that refuse them."""

from typing import Any

import pytest

from vibemq.model.arguments import SHORT_CHARACTERS, short


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
