"""Nothing is marked as long without a test that is always run in its place."""

from typing import cast

import pytest

from tests.long_tests import uncovered

LONG = pytest.mark.long.mark


class Item:
    def __init__(self, nodeid: str, mark: pytest.Mark | None = None) -> None:
        self.nodeid = nodeid
        self._mark = mark

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self._mark if name == "long" else None


def found(*items: Item) -> list[str]:
    return list(uncovered(cast("list[pytest.Item]", items)))


def covered_by(name: str) -> pytest.Mark:
    return pytest.mark.long(covered_by=name).mark


def test_a_form_has_a_shorter_one() -> None:
    assert found(Item("a.py::x[1]"), Item("a.py::x[2]", LONG)) == []
    assert found(Item("a.py::x[1]", LONG), Item("a.py::x[2]", LONG), Item("a.py::y")) == [
        "a.py::x: every form of it is marked as long, and covered_by names no other test"
    ]


def test_a_test_is_covered_by_one_that_is_there_and_always_run() -> None:
    assert found(Item("a.py::x", covered_by("b.py::y")), Item("b.py::y")) == []
    assert found(Item("a.py::x", covered_by("b.py::y"))) == [], "the other module was not asked for"
    complaint = "a.py::x: b.py::y, which is said to cover it, is not there or is long as well"
    assert found(Item("a.py::x", covered_by("b.py::y")), Item("b.py::z")) == [complaint]
    assert found(Item("a.py::x", covered_by("b.py::y")), Item("b.py::y", covered_by("b.py::z")), Item("b.py::z")) == [
        complaint
    ]
