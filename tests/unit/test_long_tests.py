"""Nothing is marked as long without a test that is always run in its place."""

from types import SimpleNamespace
from typing import cast

import pytest

from tests.long_tests import is_long_form, uncovered

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


class Form:
    def __init__(self, marks: list[pytest.Mark], **params: object) -> None:
        self.callspec = SimpleNamespace(params=params)
        self._marks = marks
        self.nodeid = "a.py::x"

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [mark for mark in self._marks if mark.name == name]


def is_long(form: Form) -> bool:
    return is_long_form(cast("pytest.Item", form))


def test_forms_are_chosen_by_their_parameters() -> None:
    marks = [pytest.mark.long_where(provider="sqlite", size=[1, 2]).mark]
    assert is_long(Form(marks, provider="sqlite", size=2))
    assert not is_long(Form(marks, provider="lmdb", size=2))
    assert not is_long(Form(marks, provider="sqlite", size=3))
    assert not is_long(Form([], provider="sqlite"))
    with pytest.raises(pytest.UsageError, match=r"a\.py::x has no parameter size"):
        is_long(Form(marks, provider="sqlite"))
