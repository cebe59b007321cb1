"""Which job made a message is found whatever else was made between."""

from hypothesis import given
from hypothesis import strategies as st

from vibemq.engine.jobs.made import MadeIn


def makers(made: MadeIn, end: int) -> dict[int, int]:
    """Of each message, found one by one, by halves and all at once."""
    runs = [[(n, n) for n in range(end + 1)], [(0, end // 2), (end // 2 + 1, end)], [(0, end)]]
    one, halves, whole = (
        {n: job_id for run in some for job_id, (first, last) in made.within(*run) for n in range(first, last + 1)}
        for some in runs
    )
    assert one == halves == whole
    return one


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 4)), max_size=20),
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 4)).map(lambda t: (t[0], t[0] + t[1])), max_size=8),
)
def test_each_message_has_its_maker(stretches: list[tuple[int, int, int]], removed: list[tuple[int, int]]) -> None:
    """(messages of others before, messages, job)"""
    made, expected, at = MadeIn(), dict[int, int](), 1
    for others, count, job_id in stretches:
        at += others
        made.add(at, at + count - 1, job_id)
        expected |= dict.fromkeys(range(at, at + count), job_id)
        at += count
    assert makers(made, at) == expected
    for first, last in removed:
        if len({expected.get(n) for n in range(first, last + 1)}) == 1:
            made.remove(first, last)
            expected = {n: job_id for n, job_id in expected.items() if not first <= n <= last}
    assert makers(made, at) == expected
    made.keep(lambda job_id: job_id != 2)
    assert makers(made, at) == {n: j for n, j in expected.items() if j != 2}
    assert bool(made) is any(job_id != 2 for job_id in expected.values())
