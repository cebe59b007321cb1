"""The messages of a batch that failed."""

import pytest

pytest.importorskip("pyspark")

from vibemq.spark import failed_batch

OFFSET = '{{"q": {{"orders": {{"i": "abc", "s": {orders}}}, "returns": {{"i": "def", "s": 7}}}}, "v": 1}}'
SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@657d3e7f"
ERROR = """[STREAM_FAILED] Query [id = 1] terminated with exception: {why}
=== Streaming Query ===
Current Committed Offsets: {committed}
Current Available Offsets: {{{source}: {available}}}

Current State: ACTIVE"""


def text(committed: str, why: str = "[CAST_INVALID_INPUT] …", orders: int = 61) -> str:
    return ERROR.format(why=why, committed=committed, source=SOURCE, available=OFFSET.format(orders=orders))


def test_the_range_and_the_command() -> None:
    said = failed_batch(text(f"{{{SOURCE}: {OFFSET.format(orders=41)}}}"), "checker")
    assert "reads the messages 41 to 60, of queue 'orders'" in said
    assert said.endswith("vibemq-admin group quarantine orders checker 41-60")
    assert "returns" not in said


def test_the_command_can_be_copied_whatever_the_name_of_the_group() -> None:
    said = failed_batch(text(f"{{{SOURCE}: {OFFSET.format(orders=41)}}}"), "hourly; totals")
    assert said.endswith("vibemq-admin group quarantine orders 'hourly; totals' 41-60")


def test_in_the_first_batch_the_cursor_is_the_start() -> None:
    said = failed_batch(RuntimeError(text("{}")), "checker").splitlines()
    assert len(said) == 2
    assert "messages up to 60, from the cursor of group 'checker', of queue 'orders'" in said[0]
    assert said[0].endswith("quarantine orders checker 1-60")


def test_a_row_that_the_broker_refuses_has_its_message() -> None:
    refused = "vibemq.spark.errors.Refused: queue name 'a b' is not allowed [INVALID_QUEUE_NAME]"
    assert "1-60" in failed_batch(text("{}", why=refused), "checker")


@pytest.mark.parametrize(
    "error",
    [
        "no offsets",
        text(f"{{{SOURCE}: {OFFSET.format(orders=61)}}}"),
        text("{}", why="vibemq.spark.errors.Refused: group 'checker' of queue 'orders' is another query's now"),
    ],
)
def test_healthy_messages_are_not_named(error: str) -> None:
    assert failed_batch(error, "checker") == ""
