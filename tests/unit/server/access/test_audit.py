import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from vibemq.model.access import Principal
from vibemq.server.access.audit import (
    ARGUMENTS_BYTES_MAX,
    AT_ONCE_MAX,
    DOWNLOADS_MAX,
    LOGINS_MAX,
    LOGINS_SUMMARY_S,
    REASON_BYTES_MAX,
    SHOWN_MAX,
    SUMMED_MAX,
    TEXT_MAX,
    AuditLog,
)
from vibemq.server.broker import Broker

pytestmark = pytest.mark.anyio


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


SECRET = "5e" * 32
WHOLE = f"vmq_0123456789ab_{SECRET}"


async def test_whole_tokens_in_the_place_of_names_are_written_without_their_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    kept = Kept()
    audit = AuditLog(lambda: 0.0, file=kept)
    for _ in range(AT_ONCE_MAX - 1):
        audit.login_failed(Somebody(), WHOLE, f"the token belongs to another user than {WHOLE[:64]!r}")
    audit.denied(Somebody(), None, "queue.purge", f"may not {WHOLE}", {"queue": WHOLE}.get)
    audit.login_failed(Somebody(), WHOLE, "wrong")
    await audit.summarize()
    nested = [{"queues": WHOLE.upper(), WHOLE: 1}]
    audit.changed(Somebody(), ROOT, "token.revoke", {"token_id": WHOLE, "x": nested}, f"no {WHOLE!r}")
    assert {record["event"] for record in kept.records} == {
        "auth.failed",
        "access.denied",
        "auth.failures",
        "access.changed",
    }
    for told in (kept.records, [record.__dict__ for record in caplog.records]):
        text = json.dumps(told, default=str).lower()
        assert SECRET[:8] not in text
        assert "vmq_0123456789ab_" in text, "so that it can be revoked"


def test_what_was_only_to_be_tried_is_said_of_a_refusal() -> None:
    kept = Kept()
    audit = AuditLog(lambda: 0.0, file=kept)
    audit.denied(Somebody(), ROOT, "queue.purge", "no", {"queue": "a", "dry_run": True}.get)
    audit.denied(Somebody(), ROOT, "queue.purge", "no", {"queue": "a", "dry_run": False}.get)
    assert [record["arguments"] for record in kept.records] == [{"queue": "a", "dry_run": True}, {"queue": "a"}]


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


# -- records ------------------------------------------------------------------------------------------------------


class Kept:
    """In the place of the file."""

    def __init__(self) -> None:
        self.trouble = ""
        self.records: list[dict[str, Any]] = []

    def put(self, record: Mapping[str, Any]) -> None:
        self.records.append(dict(record))


ROOT = Principal("root", True)


def test_a_record_says_who_from_where_what_and_what_became_of_it() -> None:
    kept = Kept()
    audit = AuditLog(lambda: 0.0, file=kept, wall=lambda: 5.0)
    audit.changed(Somebody(), ROOT, "queue.purge", {"queue": "jobs", "text": "x" * 1_000}, "", count=7)
    [record] = kept.records
    assert record["arguments"].pop("text").endswith("… 1000 characters in all")
    assert record == {
        "at": 5_000,
        "event": "access.changed",
        "request_id": "c1",
        "user": "root",
        "token": "",
        "address": "192.0.2.1",
        "protocol": "native",
        "operation": "queue.purge",
        "resource": "jobs",
        "arguments": {"queue": "jobs"},
        "outcome": "done",
        "reason": "",
        "count": 7,
    }


def test_what_changed_nothing_is_not_recorded_and_what_failed_is() -> None:
    kept = Kept()
    audit = AuditLog(lambda: 0.0, file=kept)
    audit.changed(Somebody(), ROOT, "queue.create", {"queue": "jobs"}, "", unchanged=True)
    audit.changed(Somebody(), ROOT, "queue.create", {"queue": "jobs"}, "no")
    audit.denied(Somebody(), ROOT, "user.add", "may not", {"user": "ann\n", "password": "secret", "queue": 5}.get)
    audit.reloaded({"by": "SIGHUP", "changed": ["log.level"]}, failed=False)
    assert [(r["operation"], r["outcome"]) for r in kept.records] == [
        ("queue.create", "failed"),
        ("user.add", "refused"),
        ("broker.reload", "done"),
    ]
    assert (kept.records[1]["resource"], kept.records[1]["arguments"]) == ("'ann\\n'", {"user": "'ann\\n'"})
    assert kept.records[2]["arguments"] == {"by": "SIGHUP", "changed": ["log.level"]}


async def test_programs_that_log_in_all_the_time_are_counted() -> None:
    kept, now_s = Kept(), 0.0
    audit = AuditLog(lambda: now_s, file=kept)
    for _ in range(LOGINS_MAX):
        audit.logged_in(Somebody(), ROOT)
        audit.logged_out(Somebody(), ROOT)
    assert len(kept.records) == LOGINS_MAX
    await audit.summarize()
    assert len(kept.records) == LOGINS_MAX
    now_s = LOGINS_SUMMARY_S
    await audit.summarize()
    assert kept.records[-1]["count"] == LOGINS_MAX
    assert kept.records[-1]["arguments"] == {"users": {"root": LOGINS_MAX}}
    await audit.summarize()
    assert len(kept.records) == LOGINS_MAX + 1


async def test_who_reads_very_many_bodies_pushes_out_no_record_of_others() -> None:
    kept, now_s = Kept(), 0.0
    audit = AuditLog(lambda: now_s, file=kept, reads=True)
    for number in range(LOGINS_MAX + 5):
        audit.read(Somebody(), ROOT, "message.show", {"queue": "q", "sequence": number})
    assert len(kept.records) == LOGINS_MAX
    assert (kept.records[0]["event"], kept.records[0]["resource"]) == ("access.read", "q")
    now_s = LOGINS_SUMMARY_S
    await audit.summarize()
    assert (kept.records[-1]["event"], kept.records[-1]["count"]) == ("access.reads", 5)
    assert kept.records[-1]["arguments"] == {"users": {"root": 5}}


def test_the_pages_of_one_download_over_http_are_one_record() -> None:
    kept = Kept()
    audit, off = AuditLog(lambda: 0.0, file=kept, reads=True), AuditLog(lambda: 0.0, file=kept)
    for request in ("r1", "r1", "r2"):
        audit.read(Somebody(connection_id=request, protocol="http"), ROOT, "dlq.list", {})
        off.read(Somebody(connection_id=request, protocol="http"), ROOT, "dlq.list", {})
    for _ in range(2):
        audit.read(Somebody(), ROOT, "dlq.list", {})
    assert [record["request_id"] for record in kept.records] == ["r1", "r2", "c1", "c1"]


def test_the_pages_of_two_downloads_at_a_time_are_two_records() -> None:
    kept = Kept()
    audit = AuditLog(lambda: 0.0, file=kept, reads=True)
    for request in ("r1", "r2", "r1", "r2", "r1"):
        audit.read(Somebody(connection_id=request, protocol="http"), ROOT, "dlq.list", {})
    assert [record["request_id"] for record in kept.records] == ["r1", "r2"]
    for number in range(DOWNLOADS_MAX):
        audit.read(Somebody(connection_id=f"n{number}", protocol="http"), ROOT, "dlq.list", {})
    assert len(audit._downloads) == DOWNLOADS_MAX


async def test_the_end_of_the_broker_tells_what_was_counted() -> None:
    kept = Kept()
    audit = AuditLog(lambda: 0.0, file=kept)
    for _ in range(AT_ONCE_MAX + 3):
        audit.login_failed(Somebody(), "ann", "wrong")
    for _ in range(LOGINS_MAX + 2):
        audit.logged_in(Somebody(), ROOT)
    broker: Any = SimpleNamespace(_inherited=False, _parts=SimpleNamespace(audit=audit, audit_writer=None))
    await Broker._close_audit(broker)
    assert [(record["event"], record["count"]) for record in kept.records[-2:]] == [
        ("auth.logins", 2),
        ("auth.failures", 3),
    ]


def test_strict_refuses_while_the_file_is_in_trouble_but_what_frees_space() -> None:
    kept = Kept()
    strict, lenient = AuditLog(lambda: 0.0, file=kept, strict=True), AuditLog(lambda: 0.0, file=kept)
    assert strict.refusal("queue.create") is None
    kept.trouble = "the disk is full; free some space"
    assert "free some space" in str(strict.refusal("queue.create"))
    assert strict.refusal("queue.purge") is None
    assert lenient.refusal("queue.create") is None


def test_off_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    AuditLog(lambda: 0.0, off=True).changed(Somebody(), ROOT, "queue.purge", {}, "")
    assert caplog.records == []


RULES = [{"queues": "é" * 256, "actions": ["*"]}] * 20
DEEP: Any = []
for _ in range(500):
    DEEP = [DEEP, {"x": DEEP}]


@pytest.mark.parametrize(
    "arguments",
    [
        {"user": "ann", "label": "é" * 128, "permissions": RULES},
        {"user": "ann", "a": "🎈" * 5_000, "b": "🎈" * 5_000, "c": "\x00" * 5_000},
        {"user": "ann", "permissions": [{f"{number}{'é' * 500}": "é" * 500 for number in range(500)}] * 500},
        {"user": "ann", "permissions": DEEP, "number": 10**4_000},
        {"user": "ann", "runs": [[2**63, 2**63]] * 100_000, "options": {f"o{number}": 2**63 for number in range(500)}},
    ],
    ids=["rules", "texts", "objects", "nested", "numbers"],
)
def test_a_record_is_small_whatever_its_arguments(arguments: dict[str, Any]) -> None:
    kept = Kept()
    audit = AuditLog(lambda: 0.0, file=kept)
    audit.changed(Somebody(), Principal("ann"), "token.create", arguments, "é" * 5_000)
    audit.changed(Somebody(), Principal("ann"), "token.create", {"user": "ann"}, "")
    whole = json.dumps(kept.records[0])
    assert len(whole) < ARGUMENTS_BYTES_MAX + REASON_BYTES_MAX + 800
    assert len(json.dumps(kept.records[0]["arguments"])) < ARGUMENTS_BYTES_MAX + 300
    assert kept.records[0]["arguments"]["user"] == "ann"
    assert kept.records[0]["resource"] == "ann"
    assert "… 5000 characters in all" in kept.records[0]["reason"]
    assert set(kept.records[0]["arguments"]) == set(arguments)


def test_what_was_cut_says_how_much_there_was() -> None:
    kept = Kept()
    options = {"max_attempts": 7, "filters": ["x" * 40, "y" * 600], "ttl_ms": None, "strict": True}
    told = {"queue": "jobs", "options": options, "ids": list(range(1_000)), "rules": RULES}
    AuditLog(lambda: 0.0, file=kept).changed(Somebody(), ROOT, "queue.create", told, "")
    arguments = kept.records[0]["arguments"]
    assert arguments["ids"] == [*range(20), "… 1000 in all"]
    assert arguments["rules"][-1] == "… 20 in all"
    assert arguments["options"] | {"filters": []} == options | {"filters": []}
    assert arguments["options"]["filters"][0] == "x" * 40
    assert arguments["options"]["filters"][1].endswith("y… 600 characters in all")
