"""The bench of delays finds what it looks for; a short form of it, with one kill, runs here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.delays import CHUNK, DelayLedger, Plan

REPOSITORY = Path(__file__).parents[3]


def ledger() -> DelayLedger:
    return DelayLedger(Plan(messages=3, begin_ms=1_000, spread_ms=2, delays=2, mixed=True))


def test_stretches_fall_due_in_the_other_order() -> None:
    plan = Plan(messages=6, begin_ms=1_000, spread_ms=30, delays=3)
    assert [plan.due_ms(number) for number in range(6)] == [1_020, 1_020, 1_010, 1_010, 1_000, 1_000]


def test_messages_in_the_order_in_which_they_fall_due_are_in_order() -> None:
    books = ledger()
    for number, sequence in ((0, 1), (2, 3), (1, 2)):
        books.note(number, sequence, 0.0, redelivered=False)
    assert (books.left, books.repeated, books.doubled, books.faults) == (0, 0, 0, [])


def test_one_that_fell_due_earlier_and_comes_later_is_a_fault_unless_it_comes_again() -> None:
    books = ledger()
    books.note(1, 2, 0.0, redelivered=False)
    books.note(0, 1, 0.0, redelivered=True)
    assert not books.faults
    books.note(2, 3, 0.0, redelivered=False)
    assert books.faults == ["message 2 came after one that fell due 1 ms later"]


@pytest.mark.parametrize(
    ("killed_at", "fault"), [(None, "without a kill"), (1.0, None), (9.0, "acknowledged long before")]
)
def test_a_message_comes_again_only_because_of_a_kill(killed_at: float | None, fault: str | None) -> None:
    books = ledger()
    books.note(0, 1, 0.0, redelivered=False)
    books.kills += [] if killed_at is None else [killed_at]
    books.life = len(books.kills)
    books.note(0, 1, 9.5, redelivered=True)
    assert books.repeated == 1
    assert [fault in said for said in books.faults if fault] == ([True] if fault else [])
    assert bool(books.faults) is bool(fault)


def test_a_client_may_be_there_again_before_the_next_life_is_counted() -> None:
    books = ledger()
    books.note(0, 1, 0.0, redelivered=False)
    books.kills.append(1.0)
    books.note(0, 1, 2.0, redelivered=True)
    books.life = 1
    assert books.faults == []
    books.note(0, 1, 3.0, redelivered=True)
    books.note(0, 1, 4.0, redelivered=True)
    assert [said for said in books.faults if "without a kill" in said]


@pytest.mark.parametrize("chunk", [0, 1])
def test_a_message_is_there_twice_only_when_its_publish_was_not_answered(chunk: int) -> None:
    books = ledger()
    books.uncertain.add(chunk)
    books.note(0, 1, 0.0, redelivered=False)
    books.note(0, CHUNK, 0.0, redelivered=False)
    assert (books.doubled, bool(books.faults)) == (1, chunk == 1)


@pytest.mark.long(covered_by="tests/crash/test_kill_delays.py::test_no_delayed_message_is_lost_or_comes_early")
def test_delayed_messages_outlive_a_kill(tmp_path: Path) -> None:
    short = ["--messages", "1000", "--kills", "1", "--wait", "4", "--spread", "0.2", "--only", "killed"]
    command = [sys.executable, "-m", "bench.delays", *short, "--data-root", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert (said["lost"], said["kills"], said["faults"]) == (0, 1, [])
