from hypothesis import given
from hypothesis import strategies as st

from vibemq.model.extras.columns import ExtraColumns, columns_of, each_of
from vibemq.model.extras.message_extra import MessageExtra

instants = st.integers(0, 3)
extras = st.builds(MessageExtra, st.integers(0, 2), instants, instants, st.sampled_from([b"", b"a", b"b"]))


@given(st.dictionaries(st.integers(0, 9), extras, min_size=1))
def test_columns_say_the_same_as_one_extra_for_each_message(by_index: dict[int, MessageExtra]) -> None:
    columns = columns_of(by_index)
    assert columns == by_index
    assert list(columns) == sorted(by_index)
    assert {index: index in columns for index in range(10)} == {index: index in by_index for index in range(10)}
    assert columns_of(columns) is columns
    assert columns.delayed_after(1) is any(extra.deliver_at > 1 for extra in by_index.values())
    assert dict(columns.with_dedup_ids()) == {i: extra.dedup_id for i, extra in by_index.items() if extra.dedup_id}


@given(st.dictionaries(st.integers(0, 9), extras, min_size=1))
def test_whole_columns_name_the_sequences_of_those_that_have_something(by_index: dict[int, MessageExtra]) -> None:
    columns = columns_of(by_index)
    sequences, dues = columns.deliveries_after(1, 100)
    found = dict(zip(sequences, each_of(dues, len(sequences)), strict=True))
    assert found == {100 + i: extra.deliver_at for i, extra in by_index.items() if extra.deliver_at > 1}
    sequences, dues = columns.expiries(100)
    found = dict(zip(sequences, each_of(dues, len(sequences)), strict=True))
    assert found == {100 + i: extra.expires_at for i, extra in by_index.items() if extra.expires_at}
    by_priority = {priority: list(some) for priority, some in columns.by_priority(100).items()}
    wanted = {priority: [100 + i for i in sorted(by_index) if by_index[i].priority == priority] for priority in (0, 2)}
    assert by_priority == {priority: some for priority, some in wanted.items() if some}


def test_what_all_have_in_common_is_kept_once() -> None:
    columns = columns_of(dict.fromkeys(range(1000), MessageExtra(deliver_at=7)))
    assert (columns.indexes, columns.deliver_at, columns.dedup_ids) == (range(1000), 7, ())
    assert columns.deliveries_after(6, 50) == (range(50, 1050), 7)
    assert repr(ExtraColumns(range(1))) == f"ExtraColumns({ {0: MessageExtra()} })"


@given(st.dictionaries(st.integers(0, 9), extras, min_size=1), st.sets(st.integers(0, 9), min_size=1))
def test_some_of_them_are_counted_anew(by_index: dict[int, MessageExtra], wanted: set[int]) -> None:
    indexes = sorted(wanted)
    picked = columns_of(by_index).picked(indexes)
    assert dict(picked or {}) == {new: by_index[old] for new, old in enumerate(indexes) if old in by_index}
