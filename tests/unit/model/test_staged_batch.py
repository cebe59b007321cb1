"""Staged batches: what a transaction stages comes back as it was, and garbage is damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import StorageDamaged
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.rows import Rows, pack_row
from vibemq.model.staged_batch import pack_staged_batch, unpack_staged_batch


@given(
    st.lists(st.binary(max_size=30), min_size=1, max_size=5),
    st.dictionaries(
        st.integers(0, 4),
        st.builds(MessageExtra, st.integers(0, 31), st.integers(0, 1 << 50), st.integers(0, 1 << 50), st.binary()),
    ),
)
def test_a_staged_batch_holds_rows_and_extras(payloads: list[bytes], extras: dict[int, MessageExtra]) -> None:
    rows = Rows.of([pack_row(f"m{n}", payload, [("k", "v")]) for n, payload in enumerate(payloads)])
    staged = pack_staged_batch("stage/0", "orders", rows, extras)
    assert staged.count == 1
    assert unpack_staged_batch(staged[0]) == ("orders", rows, extras or None)


@given(st.binary(max_size=60))
def test_garbage_is_damage_and_nothing_else(payload: bytes) -> None:
    try:
        unpack_staged_batch(pack_row("m", payload))
    except StorageDamaged:
        return


def test_a_cut_staged_batch_is_damage() -> None:
    rows = Rows.of([pack_row("m", b"payload")])
    payload = pack_staged_batch("s/0", "q", rows, None).payloads()[0]
    for size in range(len(payload)):
        with pytest.raises(StorageDamaged):
            unpack_staged_batch(pack_row("m", payload[:size]))
