from typing import Any

import pytest
from pydantic import TypeAdapter

from vibemq.errors import InvalidPayload
from vibemq.operations.monitoring.kept_lists import KEPT_MAX, KEPT_S, KeptLists, ListPlace

KEYS: TypeAdapter[tuple[float, str]] = TypeAdapter(tuple[float, str])


def read(text: Any) -> ListPlace[tuple[float, str]]:
    return ListPlace.read(text, KEYS, "queue.rows")


@pytest.mark.parametrize("name", ["", "a:b:c", 'quote " and \\', "ü\n"])
def test_a_place_is_read_as_it_was_written(name: str) -> None:
    place = ListPlace(3, 50, (0.1, name))
    assert read(place.text()) == place


def test_without_a_place_a_list_begins() -> None:
    assert read(None) == ListPlace(0, 0, None)


@pytest.mark.parametrize(
    "text", ["", "1", 7, "1:2", "1:2:", "1:2:[1]", "1:2:[1,2]", '0:2:[1,"a"]', '1:-2:[1,"a"]', 'x:2:[1,"a"]']
)
def test_another_text_is_refused(text: object) -> None:
    with pytest.raises(InvalidPayload, match=r"argument after of queue\.rows"):
        read(text)


def test_a_list_is_kept_for_a_while_and_with_few_others() -> None:
    now = 0.0
    lists: KeptLists[str] = KeptLists(lambda: now)
    first = lists.add("asked", "items")
    assert lists.find(first.number, "asked") is first
    assert lists.find(first.number, "something else") is None
    now = KEPT_S + 1
    assert lists.find(first.number, "asked") is None
    second = lists.add("asked", "items")
    for _ in range(KEPT_MAX):
        lists.add("others", "items")
    assert lists.find(second.number, "asked") is None


def test_a_place_of_before_a_restart_is_in_none_of_the_lists_made_since() -> None:
    before, since = KeptLists[str](lambda: 0.0), KeptLists[str](lambda: 0.0)
    place = before.add("asked", "items")
    for _ in range(KEPT_MAX):
        since.add("asked", "items")
    assert since.find(place.number, "asked") is None
