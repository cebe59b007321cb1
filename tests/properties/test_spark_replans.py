"""What people do by hand to a Spark query, at random, against sinks that know a batch by its number.

The reader is the real one, driven as Spark drives it: an offset log, a commit log, a process that may end anywhere. The
broker is the engine with the real operations over a disk of the simulation. Checkpoints are rolled back and deleted,
drivers and brokers killed, older drivers go on, groups are deleted and sought, and batches are planned under other
limits. `newCheckpoint` stays set when it was heeded. No acknowledged row may be missing from the outputs, and none may
be twice in one; a query may be refused instead.

The mutants at the end break the connector; the same programs must notice.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from tests.properties.spark_replans.broker import HOLD_MS
from tests.properties.spark_replans.program import carry_out, programs
from tests.properties.spark_replans.world import World


@example(
    program=[("without rows", 1, ""), ("publish", "a", 1), ("roll back", 1, 0)],
    ack_on="auto",
    hold_ms=0,
    is_lazy=False,
    queue_count=2,
    has_pattern=False,
)
@given(
    program=programs,
    ack_on=st.sampled_from(["auto", "auto", "commit", "never"]),
    hold_ms=st.sampled_from([0, HOLD_MS]),
    is_lazy=st.booleans(),
    queue_count=st.integers(1, 3),
    has_pattern=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_no_acknowledged_row_is_missing_and_none_is_twice(
    program: list[Any], ack_on: str, hold_ms: int, is_lazy: bool, queue_count: int, has_pattern: bool
) -> None:
    carry_out(World(ack_on, hold_ms, is_lazy=is_lazy, queue_count=queue_count, has_pattern=has_pattern), program)
