"""Every example of docs/howto/spark, run for real: one broker, one session, and once as the program that it is."""

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import vibemq.sync
from tests.crash.ledger import BrokerProcess
from tests.docs.pages import DOCS, REPOSITORY, blocks, links
from tests.spark.world import drained, endpoint, needs_spark
from tests.waiting import wait_until
from vibemq.demos.spark import tidy


def spark_run(test: Callable[..., None]) -> Callable[..., None]:
    marked: Callable[..., None] = pytest.mark.slow(pytest.mark.spark(needs_spark(test)))
    return marked


CURSORS_ONLY = "fan-out-with-ack"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ENOUGH_S = 120


@pytest.fixture
def to(broker: BrokerProcess, tmp_path: Path) -> list[str]:
    """Arguments of a streaming example that ends when everything is processed."""
    return ["--endpoint", endpoint(broker), "--checkpoint", str(tmp_path / "checkpoint")]


EXAMPLES = REPOSITORY / "vibemq" / "spark" / "examples"
PAGES = sorted((DOCS / "howto" / "spark").glob("*.md"))


def example_of(page: Path) -> Path | None:
    """The program that the page is about: the first it links to."""
    return next(((page.parent / link).resolve() for link in links(page) if "/spark/examples/" in link), None)


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_every_example_has_a_page() -> None:
    programs = {path for path in EXAMPLES.glob("*.py") if path.name not in ("__init__.py", "common.py")}
    assert {example_of(page) for page in PAGES} - {None} == programs


@pytest.mark.parametrize("page", [page for page in PAGES if example_of(page)], ids=lambda page: page.name)
def test_pages_show_the_lines_of_their_example(page: Path) -> None:
    """Each fragment stands in the example as it is, but for its indentation; but those about reading by time."""
    example = example_of(page)
    assert example is not None
    program = lines_of(example.read_text())
    shown = [block for block in blocks(page) if block.words == ("python", "fragment")]
    assert shown
    for block in shown:
        lines = lines_of(block.text)
        places = range(len(program) - len(lines) + 1)
        assert any(program[at : at + len(lines)] == lines for at in places) or "Timestamp" in block.text, block.place


def finish(query: Any) -> None:
    assert query.awaitTermination(ENOUGH_S), "the query did not end"


def program(arguments: list[str], without: str = "", code: int = 0) -> str:
    """Run an example as a program; what it said on its standard error."""
    with tidy.folder() as folder:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            env=surroundings(folder, without),
            capture_output=True,
            text=True,
            check=False,
            timeout=ENOUGH_S,
        )
    assert done.returncode == code, done.stderr
    return done.stderr


def surroundings(folder: Path, without: str = "") -> dict[str, str]:
    """The environment of an example; `without` a setting."""
    settings = {key: value for key, value in tidy.settings(folder).items() if key != without}
    configured = [f"--conf {key}='{value}'" for key, value in settings.items()]
    submit = " ".join(["--master local[2]", *configured, "pyspark-shell"])
    return tidy.environment(folder) | {"PYSPARK_SUBMIT_ARGS": submit}


def readings(first: int, count: int) -> list[dict[str, Any]]:
    """One a minute for each of two sensors."""
    return [
        {"sensor": sensor, "celsius": float(minute % 7 + offset), "at": (BEGIN + timedelta(minutes=minute)).isoformat()}
        for minute in range(first, first + count)
        for offset, sensor in enumerate(("s1", "s2"))
    ]


def averages(sent: list[dict[str, Any]]) -> dict[tuple[str, datetime], tuple[int, float, float]]:
    windows: dict[tuple[str, datetime], list[float]] = {}
    for reading in sent:
        at = datetime.fromisoformat(reading["at"])
        windows.setdefault((reading["sensor"], at - timedelta(minutes=at.minute % 10)), []).append(reading["celsius"])
    return {key: (len(found), sum(found) / len(found), max(found)) for key, found in windows.items()}


@spark_run
@pytest.mark.long(covered_by="tests/spark/test_examples.py::test_rejects_and_what_becomes_of_them")
def test_windows(spark: Any, mq: vibemq.sync.Client, to: list[str]) -> None:
    from vibemq.spark.examples import windows

    mq.create_queue("readings", mode=CURSORS_ONLY)
    args = windows.options([*to, "--once"])
    sent, got = [], []
    for first in (0, 60):
        new = readings(first, 60)
        sent += new
        mq.publish_many("readings", new)
        finish(windows.start(spark, args))
        got += drained(mq, "readings.10min")
    found = {
        (row["sensor"], datetime.fromisoformat(row["begin"])): (row["readings"], row["mean"], row["most"])
        for row in got
    }
    assert len(found) == len(got), "a window came twice"
    # The last reading is of minute 119: windows that end by minute 109 are over, the younger ones wait.
    over = {key: value for key, value in averages(sent).items() if key[1] < BEGIN + timedelta(minutes=100)}
    assert found == over


@pytest.mark.spark_cluster
@spark_run
def test_windows_as_a_program_has_few_tasks(mq: vibemq.sync.Client, to: list[str], tmp_path: Path) -> None:
    """With nothing set, where Spark would have 200 of them."""
    mq.create_queue("few", mode=CURSORS_ONLY)
    mq.publish_many("few", readings(0, 5))
    program(["vibemq.spark.examples.windows", *to, "--once", "--source", "few"], "spark.sql.shuffle.partitions")
    states = [folder.name for folder in (tmp_path / "checkpoint" / "state" / "0").iterdir() if folder.name.isdigit()]
    assert sorted(states) == ["0", "1"], "one for each core"


@pytest.mark.spark_cluster
@spark_run
def test_a_program_that_fails_names_its_messages(mq: vibemq.sync.Client, to: list[str]) -> None:
    mq.create_queue("broken", mode=CURSORS_ONLY)
    mq.publish_many("broken", [{"order": 1, "country": "not a queue's name!"}])
    arguments = ["vibemq.spark.examples.route", *to, "--once", "--source", "broken"]
    said = program(arguments, code=1)
    assert "vibemq-admin group quarantine broken router 1-1" in said


@pytest.mark.spark_cluster
@spark_run
def test_ctrl_c_ends_a_program_without_a_word(mq: vibemq.sync.Client, to: list[str]) -> None:
    mq.create_queue("endless", mode=CURSORS_ONLY)
    mq.publish_many("endless", [{"order": 1, "country": "FR"}])
    arguments = ["vibemq.spark.examples.route", *to, "--source", "endless", "--prefix", "endless."]
    with tidy.folder() as folder:
        command = [sys.executable, "-m", *arguments]
        with subprocess.Popen(command, env=surroundings(folder), stderr=subprocess.PIPE, text=True) as driver:
            try:
                wait_until(lambda: acknowledged_below(mq, "endless") == 2)
                driver.send_signal(signal.SIGINT)
                _, said = driver.communicate(timeout=ENOUGH_S)
            finally:
                driver.kill()
    assert driver.returncode == 0, said
    assert "Traceback" not in said
    assert drained(mq, "endless.fr") == [{"order": 1, "country": "FR"}]


@spark_run
def test_rejects_and_what_becomes_of_them(
    spark: Any, mq: vibemq.sync.Client, to: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.sql import functions

    from vibemq.spark.examples import dead_letters, rejects

    mq.create_queue("incoming", mode=CURSORS_ONLY)
    good = [{"order": n, "amount": f"{n}.50"} for n in range(1, 91)]
    bad = [{"order": 91, "amount": "-1"}, {"order": 92}, {"amount": "3.00"}, "no order at all"]
    mq.publish_many("incoming", [*good[:40], *bad, *good[40:]])
    finish(rejects.start(spark, rejects.options([*to, "--once", "--source", "incoming", "--sink", "checked"])))
    assert Counter((row["order"], row["cents"]) for row in drained(mq, "checked")) == Counter(
        (n, n * 100 + 50) for n in range(1, 91)
    )

    args = ["--endpoint", to[1], "--queue", "incoming"]
    letters = dead_letters.load(spark, dead_letters.options(args))
    found = {(row["detail"], row["letters"], row["origin_group"]) for row in dead_letters.by_reason(letters).collect()}
    assert found == {
        ("no order number", 2, "checker"),
        ("the amount is not positive", 1, "checker"),
        ("no amount", 1, "checker"),
    }
    page = (DOCS / "howto" / "spark" / "dead-letters.md").read_text()
    [shown] = re.findall(r"```text\n(.*?\n)```", page, re.DOTALL)
    at_once = functions.lit("2026-01-01 10:00:00.5").cast("timestamp")
    table = dead_letters.by_reason(letters).withColumns({"first": at_once, "last": at_once})
    assert table._show_string(20, 60, vertical=False).rstrip() == shown.rstrip(), "but for the instants"
    mq.create_queue("repair")
    dead_letters.run(spark, dead_letters.options([*args, "--redrive", "no %", "--to", "repair"]))
    printed = capsys.readouterr().out
    assert "the amount is not positive" in printed
    assert "no amount" not in printed, "it was redriven"
    assert len(drained_texts(mq, "repair")) == 3
    left = dead_letters.load(spark, dead_letters.options(args)).collect()
    assert [row["detail"] for row in left] == ["the amount is not positive"]


def acknowledged_below(mq: vibemq.sync.Client, queue: str) -> int:
    """Where the only group of the queue stands; 0 before there is one."""
    info = mq.queue_info(queue)
    assert info is not None
    return max((group.head for group in info.groups), default=0)


def drained_texts(mq: vibemq.sync.Client, queue: str) -> list[bytes]:
    found = []
    for message in mq.fetch(queue, max=1000, timeout=1):
        found.append(bytes(message.payload))
        message.ack()
    return found


@spark_run
@pytest.mark.long(covered_by="tests/spark/test_session.py::test_a_replayed_batch_is_published_once")
def test_route_is_exactly_once(spark: Any, mq: vibemq.sync.Client, to: list[str]) -> None:
    from vibemq.spark.examples import route

    mq.create_queue("routed", mode=CURSORS_ONLY)
    args = route.options([*to, "--once", "--source", "routed", "--prefix", "to."])
    countries = ("FR", "DE", None)
    orders = [{"order": n, "country": countries[n % 3]} for n in range(300)]
    for part in (orders[:200], orders[200:], []):
        mq.publish_many("routed", part)
        finish(route.start(spark, args))
    for country, queue in zip(countries, ("to.fr", "to.de", "to.nowhere"), strict=True):
        expected = Counter(order["order"] for order in orders if order["country"] == country)
        assert Counter(order["order"] for order in drained(mq, queue)) == expected


@pytest.mark.parametrize("as_a_program", [False, pytest.param(True, marks=pytest.mark.long)])
@spark_run
@pytest.mark.long(covered_by="tests/spark/test_session.py::test_a_batch_is_written_and_read")
def test_backfill(spark: Any, mq: vibemq.sync.Client, to: list[str], tmp_path: Path, as_a_program: bool) -> None:
    """Two runs: the second takes up what has come since."""
    from vibemq.spark.examples import backfill

    queue = f"history-{as_a_program}"
    mq.create_queue(queue, mode=CURSORS_ONLY)
    into = str(tmp_path / "history.parquet")
    arguments = [*to, "--source", queue, "--into", into, "--batch", "400"]
    mq.publish_many(queue, [{"n": n} for n in range(1000)])
    if as_a_program:
        program(["vibemq.spark.examples.backfill", *arguments])
    else:
        finish(backfill.start(spark, backfill.options(arguments)))
    assert sorted(row["seq"] for row in spark.read.parquet(into).collect()) == list(range(1, 1001))
    mq.publish_many(queue, [{"n": n} for n in range(1000, 1100)])
    finish(backfill.start(spark, backfill.options(arguments)))
    rows = spark.read.parquet(into).collect()
    assert sorted(json.loads(row["body"])["n"] for row in rows) == list(range(1100))
    info = mq.queue_info(queue)
    assert info is not None
    [group] = [group for group in info.groups if group.name == "backfill"]
    assert group.head == 1101, "the last batch was not acknowledged"
