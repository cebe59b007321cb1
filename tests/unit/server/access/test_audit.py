import logging
from dataclasses import dataclass

import pytest

from vibemq.model.access import Principal
from vibemq.server.access.audit import AT_ONCE_MAX, SHOWN_MAX, SUMMED_MAX, TEXT_MAX, AuditLog

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Somebody:
    host: str = "192.0.2.1"
    connection_id: str = "c1"
    protocol: str = "native"


async def test_thousands_of_failures_are_some_lines_and_a_summary(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(lambda: 0.0)
    for number in range(5_000):
        audit.login_failed(Somebody(f"10.0.{number // 250}.{number % 250}"), "ann", "wrong")
    assert len(caplog.records) == AT_ONCE_MAX
    await audit.summarize()
    summary = caplog.records[-1].__dict__
    assert summary["event"] == "auth.failures"
    assert summary["count"] == 5_000 - AT_ONCE_MAX
    assert summary["users"] == {"ann": 5_000 - AT_ONCE_MAX}
    assert len(summary["addresses"]) == SHOWN_MAX
    assert len(audit._addresses) == 0
    await audit.summarize()
    assert caplog.records[-1].__dict__ is summary


def test_what_is_counted_is_bounded() -> None:
    audit = AuditLog(lambda: 0.0)
    for number in range(3 * SUMMED_MAX):
        audit.login_failed(Somebody(f"h{number}"), f"u{number}", "wrong")
    assert len(audit._addresses) == len(audit._users) == SUMMED_MAX


def test_names_of_strangers_are_short_and_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    AuditLog(lambda: 0.0).login_failed(Somebody(), "a\nb" + "x" * 10_000, "wrong")
    shown = caplog.records[0].__dict__["user"]
    assert "\n" not in shown
    assert len(shown) <= TEXT_MAX + 4


def test_a_change_is_always_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    audit = AuditLog(lambda: 0.0)
    for _ in range(2 * AT_ONCE_MAX):
        audit.changed(Somebody(), Principal("root", True), "user.remove", {"user": "ann"}, "")
    assert len(caplog.records) == 2 * AT_ONCE_MAX
    audit.changed(Somebody(), Principal("root", True), "user.remove", {"user": "ann"}, "there is none")
    last = caplog.records[-1].__dict__
    assert (last["outcome"], last["reason"], last["user"], last["remote"]) == (
        "failed",
        "there is none",
        "root",
        "192.0.2.1",
    )
