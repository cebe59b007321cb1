import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.client.settlements import REASON_CHARACTERS_MAX, SettlementBuffer, merged, reason_text
from vibemq.model.commands import Settlement
from vibemq.model.dead.fingerprint import fingerprint, telling_line
from vibemq.model.runs import runs_of


def test_acks_in_order_are_one_run() -> None:
    buffer = SettlementBuffer()
    for sequence in range(1, 1001):
        buffer.add(Settlement.ACK, sequence, sequence)
    assert buffer.count == 1000
    assert [settled.runs for settled in buffer.take()] == [[(1, 1000)]]
    assert buffer.count == 0


def test_acks_out_of_order_are_merged() -> None:
    buffer = SettlementBuffer()
    for sequence in (5, 1, 3, 2, 9):
        buffer.add(Settlement.ACK, sequence, sequence)
    assert buffer.take()[0].runs == [(1, 3), (5, 5), (9, 9)]


def test_verbs_delays_and_reasons_stay_apart() -> None:
    buffer = SettlementBuffer()
    buffer.add(Settlement.ACK, 1, 1)
    buffer.add(Settlement.RETRY, 2, 2, 50, "late")
    buffer.add(Settlement.RETRY, 3, 3, 50, "late")
    buffer.add(Settlement.RETRY, 4, 4, 60, "late")
    assert [(s.verb, s.delay_ms, s.reason, s.runs) for s in buffer.take()] == [
        (Settlement.ACK, -1, "", [(1, 1)]),
        (Settlement.RETRY, 50, "late", [(2, 3)]),
        (Settlement.RETRY, 60, "late", [(4, 4)]),
    ]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), max_size=20))
def test_merged_keeps_every_sequence(starts: list[tuple[int, int]]) -> None:
    runs = [(first, first + more) for first, more in starts]
    assert merged(runs) == runs_of(n for first, last in runs for n in range(first, last + 1))


@pytest.mark.parametrize("what", ["KeyError: 'total'", "ValueError: " + "long " * 500])
def test_a_long_traceback_keeps_the_line_that_says_what_happened(what: str) -> None:
    frames = "".join(f'  File "/app/worker.py", line {n}, in step\n    step()\n' for n in range(100))
    text = f"Traceback (most recent call last):\n{frames}{what}\n"
    told = reason_text(text)
    assert len(told) == REASON_CHARACTERS_MAX
    assert telling_line(told) == telling_line(text)
    assert fingerprint(told) == fingerprint(text) == fingerprint(what)


@pytest.mark.parametrize("text", ["x" * 2_000, "no traceback\n" + "line\n" * 500])
def test_of_another_long_reason_the_beginning_is_kept(text: str) -> None:
    assert reason_text(text) == text[:REASON_CHARACTERS_MAX]
