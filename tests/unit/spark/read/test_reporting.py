"""Lag, as progress reports tell it."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from vibemq.spark.listener import LagListener
from vibemq.spark.read.reporting import Lag, lag

OFFSET = {
    "q": {
        "orders": {"age_ms": 1500, "backlog": 10, "bytes": 1000, "i": "x", "s": 11},
        "returns": {"age_ms": 0, "backlog": 0, "bytes": 0, "i": "y", "s": 1},
    },
    "v": 1,
}
KAFKA = {"topic": {"0": 5}}


def progress(*offsets: Any) -> Any:
    class Progress(dict[str, Any]):
        name, id = "etl", "4711"

    return Progress(sources=[{"latestOffset": offset} for offset in offsets])


def test_lag_is_read_from_text_and_from_objects() -> None:
    for offset in (OFFSET, json.dumps(OFFSET)):
        assert lag(progress(KAFKA, json.dumps(KAFKA), "null", None, "no JSON", offset)) == Lag(
            10, 1000, 1500, {"orders": Lag(10, 1000, 1500), "returns": Lag(0, 0, 0)}
        )


def test_a_queue_that_is_read_by_two_groups_counts_for_both() -> None:
    orders = {"age_ms": 2000, "backlog": 3, "bytes": 300, "i": "x", "s": 11}
    found = lag(progress({"q": {"orders": orders}, "v": 1}, OFFSET))
    assert found == Lag(13, 1300, 2000, {"orders": Lag(13, 1300, 2000), "returns": Lag(0, 0, 0)})


@pytest.mark.parametrize("none", [None, {}, progress(), progress(KAFKA), progress({"v": 1, "q": {}})])
def test_without_a_report_there_is_no_lag(none: Any) -> None:
    assert lag(none) is None


def test_a_listener_keeps_the_last_lag_of_running_queries() -> None:
    seen: list[tuple[str, int]] = []
    listener = LagListener(lambda name, found: seen.append((name, found.messages)))
    listener.onQueryStarted(SimpleNamespace(id="4711", name="etl"))
    listener.onQueryProgress(SimpleNamespace(progress=progress(KAFKA)))
    assert listener.lags == {}
    listener.onQueryProgress(SimpleNamespace(progress=progress(OFFSET)))
    assert seen == [("etl", 10)]
    assert 'vibemq_spark_lag_messages{query="etl",queue="orders"} 10\n' in listener.prometheus()
    assert "# TYPE vibemq_spark_lag_bytes gauge\n" in listener.prometheus()
    listener.onQueryTerminated(SimpleNamespace(id="4711"))
    assert listener.lags == {}
