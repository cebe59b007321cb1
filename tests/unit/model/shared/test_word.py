"""Words are compared and shown as the dataclasses that they are."""

import pickle
from dataclasses import dataclass, field, replace

import pytest

from vibemq.model.shared.word import word


@word
class Said:
    number: int
    text: str = ""
    note: object = field(default=None, compare=False, repr=False)


@word
class SaidMore(Said):
    more: int = 0


@dataclass(slots=True)
class Usual:
    number: int
    text: str = ""
    note: object = field(default=None, compare=False, repr=False)


def test_they_are_compared_by_their_fields() -> None:
    assert Said(1, "a") == Said(1, "a", note="not compared")
    assert Said(1, "a") != Said(1, "b")
    assert Said(1) != SaidMore(1)
    assert SaidMore(1, more=2) == replace(SaidMore(1), more=2)
    assert SaidMore(1, more=2) != SaidMore(1, more=3)
    assert Said(1).__eq__(Usual(1)) is NotImplemented
    # The same object counts as equal, as in a tuple.
    odd = float("nan")
    assert Said(odd) == Said(odd)  # type: ignore[arg-type]


def test_they_are_shown_as_others_are() -> None:
    assert repr(Said(1, "a", note="not shown")) == repr(Usual(1, "a", note="not shown")).replace("Usual", "Said")
    assert repr(SaidMore(1, more=2)) == "SaidMore(number=1, text='', more=2)"
    endless = Said(1)
    endless.text = endless  # type: ignore[assignment]
    assert repr(endless) == "Said(number=1, text=...)"


def test_they_have_no_other_fields_and_no_hash() -> None:
    with pytest.raises(AttributeError):
        Said(1).other = 2  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        hash(Said(1))
    assert pickle.loads(pickle.dumps(Said(1, "a"))) == Said(1, "a")
