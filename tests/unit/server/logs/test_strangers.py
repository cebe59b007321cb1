"""A crowd of strangers does not fill the log."""

import logging

from vibemq.server.logs.strangers import AT_ONCE_MAX, StrangersFilter


def test_what_strangers_cause_in_any_number_is_few_lines_and_a_count() -> None:
    now = 0.0
    strangers = StrangersFilter(lambda: now)

    def written(event: str | None) -> list[str]:
        record = logging.makeLogRecord({"msg": "refused: %s", "args": ("100 %s",), "event": event})
        return [record.getMessage()] if strangers.filter(record) else []

    lines = [line for _ in range(1_000) for line in written("conn.rejected")]
    assert lines == ["refused: 100 %s"] * AT_ONCE_MAX
    assert written("conn.dropped") == ["refused: 100 %s"], "each event has lines of its own"
    assert len([line for _ in range(1_000) for line in written("admin")]) == 1_000
    now = 1.0
    assert written("conn.rejected") == [f"refused: 100 %s (and {1_000 - AT_ONCE_MAX} more before)"]
    assert written("conn.rejected") == ["refused: 100 %s"]
