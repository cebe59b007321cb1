"""Offsets, as text that Spark compares and keeps."""

import json

import pytest

from vibemq.spark.errors import OptionError
from vibemq.spark.read.offsets import OffsetRange, QueuePosition, check_queues, dump, load, spans

GOLDEN = '{"q": {"orders": {"i": "f00d", "s": 1234}, "returns": {"i": "beef", "s": 9007199254740993}}, "v": 1}'


def test_the_text_is_the_same_whatever_the_order_of_the_queues() -> None:
    orders, returns = QueuePosition("f00d", 1234), QueuePosition("beef", 9007199254740993)
    assert json.dumps(dump({"orders": orders, "returns": returns})) == GOLDEN
    assert json.dumps(dump({"returns": returns, "orders": orders})) == GOLDEN


def test_what_was_written_is_read() -> None:
    assert json.dumps(dump(load(json.loads(GOLDEN)))) == GOLDEN


def test_details_are_sorted_in() -> None:
    assert json.dumps(dump({"q": QueuePosition("x", 1)}, {"q": {"backlog": 2, "age_ms": 3}})) == (
        '{"q": {"q": {"age_ms": 3, "backlog": 2, "i": "x", "s": 1}}, "v": 1}'
    )


@pytest.mark.parametrize("offset", [{"topic": {"0": 5}}, {"v": 2, "q": {}}, {"v": 1, "q": {"a": 5}}, {"v": 1}])
def test_offsets_of_others_are_refused(offset: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="checkpoint"):
        load(offset)


def test_a_checkpoint_of_other_queues_is_refused() -> None:
    check_queues(["a"], ["a", "b"])
    with pytest.raises(OptionError, match="checkpoint of other queues: it knows c, which"):
        check_queues(["a", "c"], ["a", "b"])


def test_a_batch_holds_what_lies_between_two_offsets() -> None:
    start = {"a": QueuePosition("x", 5), "b": QueuePosition("y", 7), "c": QueuePosition("z", 1)}
    end = {"a": QueuePosition("x", 9), "b": QueuePosition("y", 7), "c": QueuePosition("z", 2)}
    assert spans(start, end) == [OffsetRange("a", "x", 5, 9), OffsetRange("c", "z", 1, 2)]


def test_a_queue_that_enters_or_leaves_or_was_made_anew_or_goes_back_has_nothing_in_between() -> None:
    start = {"again": QueuePosition("old", 5), "gone": QueuePosition("g", 5), "back": QueuePosition("b", 5)}
    end = {"again": QueuePosition("new", 9), "enters": QueuePosition("e", 5), "back": QueuePosition("b", 4)}
    assert spans(start, end) == []
