import gc

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
