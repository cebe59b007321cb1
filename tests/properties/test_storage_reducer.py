"""The reducer against a naive model that keeps one word per message and group."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import Retention
from vibemq.model.records import (
    ALL_GROUPS,
    DeadLettered,
    DeadRemoved,
    Dropped,
    GroupCreated,
    GroupDeleted,
    GroupMoved,
    HandedOut,
    MessagesAdded,
    QueueCreated,
    QueueDeleted,
    Record,
    Returned,
    Settled,
    StageMoved,
)
from vibemq.storage.kvstore.store import load_state, write_dirty
from vibemq.storage.state.reducer import DeadTable, Dirty, alive_runs, apply, is_alive, is_waiting, waiting_runs
from vibemq.testing.memory_kv import MemoryKV
from vibemq.testing.storage_workload import Model, Workload


class Naive:
    """queue -> group -> sequence -> "fresh" | "pending" | "settled"."""

    def __init__(self) -> None:
        self.log: set[int] = set()
        self.next: dict[int, int] = {}
        self.groups: dict[int, dict[int, dict[int, str]]] = {}
        self.dropped: dict[int, set[int]] = {}
        self.dead: dict[int, tuple[int, int]] = {}
        self.extras: dict[tuple[int, int], MessageExtra] = {}

    def apply(self, record: Record) -> None:
        match record:
            case QueueCreated(queue_id=q):
                self.next[q], self.groups[q], self.dropped[q] = 1, {}, set()
                if record.options.retention is Retention.LOG:
                    self.log.add(q)
            case QueueDeleted(queue_id=q):
                del self.next[q], self.groups[q], self.dropped[q]
            case GroupCreated(queue_id=q):
                self.groups[q][record.group_id] = self._from(q, record.head)
            case GroupDeleted(queue_id=q):
                del self.groups[q][record.group_id]
            case GroupMoved(queue_id=q):
                self.groups[q][record.group_id] = self._from(q, record.head)
            case MessagesAdded(queue_id=q):
                self._leave_holes(q, record.first_sequence)
                self.next[q] += record.rows.count
                self.extras.update(((q, record.first_sequence + i), e) for i, e in (record.extras or {}).items())
                for words in self.groups[q].values():
                    words.update((record.first_sequence + i, "fresh") for i in range(record.rows.count))
            case StageMoved(queue_id=q):
                self.next[q] = record.first_sequence + record.count
                for words in self.groups[q].values():
                    words.update((s, "fresh") for s in range(record.first_sequence, self.next[q]))
            case HandedOut() | Settled() | Dropped():
                self._mark(record)
            case Returned(queue_id=q):
                self.groups[q][record.group_id].update(dict.fromkeys(record.attempts, "pending"))
            case DeadLettered(queue_id=q):
                for letter in record.letters:
                    for group_id, words in self.groups[q].items():
                        if record.group_id in (group_id, ALL_GROUPS):
                            words[letter.sequence] = "settled"
                    self.dead[letter.dead_id] = (q, letter.sequence)
            case DeadRemoved():
                for dead_id in record.dead_ids:
                    del self.dead[dead_id]

    def _leave_holes(self, queue_id: int, first: int) -> None:
        for words in self.groups[queue_id].values():
            words.update((s, "fresh") for s in range(self.next[queue_id], first))
        self.next[queue_id] = first

    def _from(self, queue_id: int, head: int) -> dict[int, str]:
        return {s: "fresh" if s >= head else "settled" for s in range(1, self.next[queue_id])}

    def _mark(self, record: HandedOut | Settled | Dropped) -> None:
        sequences = [s for first, last in record.runs for s in range(first, last + 1)]
        groups = self.groups[record.queue_id]
        chosen = list(groups.values()) if isinstance(record, Dropped) else [groups[record.group_id]]
        for words in chosen:
            words.update(dict.fromkeys(sequences, "pending" if isinstance(record, HandedOut) else "settled"))
        if isinstance(record, Dropped):
            self.dropped[record.queue_id].update(sequences)

    def waiting(self, queue_id: int) -> set[int]:
        if queue_id not in self.next:
            return set()
        everything = range(1, self.next[queue_id])
        if queue_id in self.log:
            return set(everything) - self.dropped[queue_id]
        return {s for s in everything if any(words[s] != "settled" for words in self.groups[queue_id].values())}


def members(runs: list[tuple[int, int]]) -> set[int]:
    return {s for first, last in runs for s in range(first, last + 1)}


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_the_reducer_agrees_with_one_word_per_message(random: Random, batches: int) -> None:
    model, naive, workload = Model(), Naive(), Workload(random)
    for _ in range(batches):
        for record in workload.batch(model):
            model.apply_one(record)
            naive.apply(record)
    for queue_id, queue in model.state.queues.items():
        last = queue.next_sequence - 1
        waiting = naive.waiting(queue_id)
        dead = {sequence for q, sequence in naive.dead.values() if q == queue_id}
        assert members(waiting_runs(queue, 1, last)) == waiting
        assert members(alive_runs(queue, 1, last)) == waiting | dead
        assert {s for s in range(1, last + 1) if is_alive(queue, s)} == waiting | dead
        assert {s for s in range(1, last + 1) if is_waiting(queue, s)} == waiting
        for group_id, group in queue.groups.items():
            words = naive.groups[queue_id][group_id]
            assert set(group.pending) == {s for s, word in words.items() if word == "pending"}
            fresh = {s for s in range(group.head, last + 1) if s not in group.taken}
            assert fresh == {s for s, word in words.items() if word == "fresh"}
            assert not group.taken or group.taken.first > group.head
            assert set(group.attempts) <= set(group.pending)
        # Facts about messages live exactly as long as they do, and chunks cover what waits.
        extras = {s: naive.extras[queue_id, s] for s in waiting | dead if (queue_id, s) in naive.extras}
        assert queue.expires == {s: e.expires_at for s, e in extras.items() if s in waiting and e.expires_at}
        assert set(queue.delayed) <= {s for s, e in extras.items() if s in waiting and e.deliver_at}
        stored = {s: priority for priority, runs in queue.priorities.items() for s in runs}
        assert stored == {s: e.priority for s, e in extras.items() if e.priority != 1}
        assert all(runs for runs in queue.priorities.values())
        covered = {s for chunk in queue.chunks for s in range(chunk.first, chunk.last + 1)}
        assert waiting <= covered
        assert all(waiting & set(range(chunk.first, chunk.last + 1)) for chunk in queue.chunks)
    assert model.state.dead_count == len(naive.dead)
    assert set(model.state.queues) == set(naive.next) | {q for q, _ in naive.dead.values()}


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_writing_only_what_is_dirty_keeps_the_whole_state(random: Random, batches: int) -> None:
    model, workload = Model(), Workload(random, transient=False)
    state, dead, dirty, kv = model.state, DeadTable(), Dirty(), MemoryKV()
    for _ in range(batches):
        records = workload.batch(Model.of(state, dead))
        for record in records:
            apply(state, record, dead, dirty)
        state.lsn += 1
        if random.random() < 0.6:
            write_dirty(kv, state, dirty)
            dirty.clear()
    write_dirty(kv, state, dirty)
    assert load_state(kv) == state
    assert kv.count() == MemoryKV.of_state(state).count(), "a key outlived what it stood for"
