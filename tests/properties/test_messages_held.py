"""What a list of messages in flight shows agrees with what the consumers hold, page by page."""

from hypothesis import given
from hypothesis import strategies as st

from vibemq.engine.queue.unacked import Unacked

STRETCHES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(1, 3)), max_size=40)


@given(STRETCHES, st.integers(0, 200), st.booleans())
def test_stretches_from_a_sequence_on(stretches: list[tuple[int, int, int]], start: int, divided: bool) -> None:
    held = Unacked()
    known: dict[int, int] = {}
    at = 0
    for gap, length, deadline in stretches:
        first, last = at + gap, at + gap + length
        held.add(first, last, deadline, 1)
        known |= dict.fromkeys(range(first, last + 1), deadline)
        at = last + 1
    if divided and held.run_count > 1:
        held._divide()
    shown = {sequence: deadline for first, last, deadline in held.from_(start) for sequence in range(first, last + 1)}
    assert shown == {sequence: deadline for sequence, deadline in known.items() if sequence >= start}
    assert list(shown) == sorted(shown)
