"""Pages of the audit file: chosen, in both orders, each record once."""

from pathlib import Path
from typing import Any

import pytest

from vibemq.auth.policy import Actor
from vibemq.auth.users import ANONYMOUS
from vibemq.errors import InvalidOptions, InvalidPayload
from vibemq.operations.monitoring.audit_records import AuditArguments, AuditRecords
from vibemq.operations.registry import Caller
from vibemq.server.access import audit_reader
from vibemq.server.access.audit_file import AuditFile
from vibemq.server.access.audit_reader import AuditReader

pytestmark = pytest.mark.anyio


CALLER = Caller(ANONYMOUS, Actor(""))
USERS, OPERATIONS = ("ann", "bob"), ("queue.create", "queue.delete", "login")


def record(number: int) -> dict[str, Any]:
    return {
        "at": number,
        "user": USERS[number % 2],
        "operation": OPERATIONS[number % 3],
        "arguments": {"queue": f"q{number % 5}"},
        "outcome": "failed" if number % 7 == 0 else "done",
    }


RECORDS = [record(number) for number in range(500)]


@pytest.fixture
def records(tmp_path: Path) -> AuditRecords:
    file = AuditFile(tmp_path, file_bytes_max=8_000, files_max=100)
    for one in RECORDS:
        file.append([one])
    file.close()
    return AuditRecords(AuditReader(tmp_path))


async def ask(records: AuditRecords, **arguments: Any) -> dict[str, Any]:
    return await records.page(CALLER, AuditArguments(**arguments))


async def every(records: AuditRecords, **arguments: Any) -> list[int]:
    found: list[int] = []
    after = None
    while True:
        page = await ask(records, after=after, **arguments)
        found += [one["at"] for one in page["records"]]
        after = page["next"]
        if after is None:
            return found


@pytest.mark.parametrize("limit", [1, 7, 100, 1_000])
async def test_pages_have_every_record_once_in_both_orders(records: AuditRecords, limit: int) -> None:
    assert await every(records, limit=limit) == list(range(499, -1, -1))
    assert await every(records, limit=limit, order="oldest") == list(range(500))


@pytest.mark.parametrize(
    ("chosen", "fits"),
    [
        ({"user": "ann"}, lambda r: r["user"] == "ann"),
        ({"operation": "queue.delete"}, lambda r: r["operation"] == "queue.delete"),
        ({"operation": "queue"}, lambda r: r["operation"].startswith("queue.")),
        ({"queue": "q3", "outcome": "failed"}, lambda r: r["arguments"]["queue"] == "q3" and r["outcome"] == "failed"),
        ({"user": "nobody"}, lambda r: False),
    ],
)
async def test_filters_agree_with_a_plain_look(records: AuditRecords, chosen: dict[str, Any], fits: Any) -> None:
    assert await every(records, **chosen, order="oldest", limit=9) == [r["at"] for r in RECORDS if fits(r)]


async def test_who_follows_misses_nothing_and_sees_nothing_twice(tmp_path: Path) -> None:
    records = AuditRecords(AuditReader(tmp_path))
    assert (await ask(records))["records"] == []
    file = AuditFile(tmp_path, file_bytes_max=200)
    position = (await ask(records))["position"]
    seen: list[int] = []
    for number in range(30):
        file.append([record(number)])
        if number % 4 == 0:
            page = await ask(records, order="oldest", after=position)
            seen += [one["at"] for one in page["records"]]
            position = page["position"]
    page = await ask(records, order="oldest", after=position)
    assert seen + [one["at"] for one in page["records"]] == list(range(30))


async def test_a_filter_that_fits_little_is_answered_before_all_was_read(
    records: AuditRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_reader, "EXAMINED_BYTES_MAX", 1_000)
    page = await ask(records, user="nobody")
    assert page["records"] == []
    assert page["next"] is not None
    assert 0 < page["examined"] < 50
    assert await every(records, user="bob", order="oldest") == [r["at"] for r in RECORDS if r["user"] == "bob"]


async def test_a_row_has_every_field(records: AuditRecords) -> None:
    [row] = (await ask(records, limit=1))["records"]
    assert {"at", "request_id", "user", "address", "protocol", "resource", "count", "outcome"} <= row.keys()


async def test_a_forged_position_and_a_broker_without_a_file_are_told(records: AuditRecords) -> None:
    for forged in ("x", "1", "1.", "-1.5", "1.5.2", "١.٢"):
        with pytest.raises(InvalidPayload, match="as it was"):
            await ask(records, after=forged)
    with pytest.raises(InvalidOptions, match="keeps no audit file"):
        await ask(AuditRecords(None))


async def test_only_the_newest_by_the_clock_of_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_reader, "STRAY_MS", 50)
    monkeypatch.setattr(audit_reader, "STRAY_BYTES", 1)
    file = AuditFile(tmp_path)
    # The clock was set back once: 470 was written behind 499.
    for one in [*RECORDS, record(470), record(430)]:
        file.append([one])
    file.close()
    records = AuditRecords(AuditReader(tmp_path), wall=lambda: 0.5)
    page = await ask(records, newer_than_ms=31)
    assert [one["at"] for one in page["records"]] == [470, *range(499, 468, -1)]
    assert page["examined"] < 100
    assert await every(records, newer_than_ms=31, order="oldest") == [*range(469, 500), 470]


async def test_newer_records_are_found_behind_those_of_a_clock_that_was_years_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 10 * audit_reader.STRAY_MS
    before, wrong, after = ([record(at + number) for number in range(20)] for at in (now - 100, 1, now - 50))
    file = AuditFile(tmp_path)
    file.append([*before, *wrong, *after])
    file.close()
    records = AuditRecords(AuditReader(tmp_path), wall=lambda: now / 1000)
    wanted = [*(one["at"] for one in reversed(after)), *(one["at"] for one in reversed(before))]
    assert await every(records, newer_than_ms=1_000) == wanted
    # Not behind any number of them: most of what is old is old.
    monkeypatch.setattr(audit_reader, "STRAY_BYTES", 1)
    assert await every(records, newer_than_ms=1_000) == wanted[:20]
