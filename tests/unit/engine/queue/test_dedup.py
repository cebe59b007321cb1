import gc

import pytest

from vibemq.engine.queue import dedup
from vibemq.engine.queue.dedup import DedupWindow


def test_nothing_is_left_for_the_collector_to_look_at() -> None:
    window = DedupWindow()
    for sequence in range(1, 1_001):
        window.remember([b"%d" % sequence], [sequence], published_at=sequence)
    # The first looks at what is new, and stops looking at tuples that hold nothing of interest.
    gc.collect()
    gc.collect()
    before = sum(1 for found in gc.get_objects() if type(found) in (list, tuple))
    del window
    gc.collect()
    assert before - sum(1 for found in gc.get_objects() if type(found) in (list, tuple)) < 100


def test_ids_of_refused_messages_push_none_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "DEDUP_IDS_MAX", 10)
    window = DedupWindow()
    window.remember([b"kept", b"too"], [1, 2], published_at=1)
    for sequence in range(3, 1_003, 2):
        ids = [b"a%d" % sequence, b"b%d" % sequence]
        window.remember(ids, range(sequence, sequence + 2), published_at=2)
        window.forget(ids, sequence, sequence + 1)
        window.prune(0)
    assert window.known(b"kept", 0) == 1
    for sequence in range(2_000, 2_012):
        window.remember([b"c%d" % sequence], [sequence], published_at=3)
        window.prune(0)
    assert [window.known(b"kept", 0), window.known(b"too", 0), window.known(b"c2002", 0)] == [0, 0, 2_002]
    assert len(window.ids) == 10


def test_a_refused_batch_that_was_pruned_in_part_counts_no_more() -> None:
    window = DedupWindow()
    window.remember([b"1", b"2", b"3"], range(1, 4), published_at=1)
    window.remember([b"4"], [4], published_at=9)
    window.prune(5, most=1)
    window.forget([b"1", b"2", b"3"], 1, 3)
    assert list(window.ids) == [b"4"]
    window.prune(10)
    assert not window
    assert not window.ids
