"""Instants as RFC 3339 with milliseconds, and back."""

from hypothesis import given
from hypothesis import strategies as st

from vibemq.model.quantities import instant_ms
from vibemq.operations.reading.instants import with_instants, written

LAST = 253_402_300_799_999


@given(st.integers(0, LAST))
def test_there_and_back(instant: int) -> None:
    assert instant_ms(written(instant)) == instant


def test_the_form() -> None:
    assert written(1_764_117_300_007) == "2025-11-26T00:35:00.007Z"
    assert written(2**63) == "9999-12-31T23:59:59.999Z"


def test_fields_by_their_names() -> None:
    given_ = {"at": 1, "dead_at": 2, "days": 3, "items": [{"created_at": 0}], "headers": {"sent_at": 4}, "is_at": True}
    assert with_instants(given_) == {
        "at": "1970-01-01T00:00:00.001Z",
        "dead_at": "1970-01-01T00:00:00.002Z",
        "days": 3,
        "items": [{"created_at": None}],
        "headers": {"sent_at": 4},
        "is_at": True,
    }
