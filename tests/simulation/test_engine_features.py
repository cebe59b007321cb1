"""As `test_engine_chaos`, with what changes queues while messages wait: options, moves, imports, cursors, filters, and
queues that go away. Besides, the engine and the disk know the same of every message, so that a restart changes nothing;
and nothing is late.
"""

from typing import Any

import pytest

from tests.short_steps import steps_of
from tests.simulation.engine_driver import rows_of, sequences
from tests.simulation.test_engine_chaos import QUEUES, Chaos
from vibemq.engine.handlers.cursors import ranges
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import Queue
from vibemq.model.commands import (
    Begin,
    ChangeQueue,
    Command,
    CommitCursor,
    CreateQueue,
    FilterGroup,
    ImportMessages,
    JoinCursor,
    MoveMessages,
    Quarantine,
    RejectAt,
    RemoveListed,
    SeekGroup,
    StartAt,
)
from vibemq.model.effects import Deliver
from vibemq.model.options import DeliveryMode, Overflow, Retention
from vibemq.model.records import Attempts
from vibemq.model.runs import END
from vibemq.model.selector import Selector
from vibemq.model.stored import StoredGroup, StoredQueue

CURSORS = ["c", "d"]
CHANGES: dict[str, list[Any]] = {
    "max_messages": [0, 3, 8],
    "max_bytes": [0, 300],
    "durability": ["weak", "async", "strong"],
    "overflow": [int(overflow) for overflow in Overflow],
    "dead_letter": [True, False],
    "max_attempts": [1, 2, 5],
    "hold_behind_failed": [True, False],
    "auto_delete": [True, False],
    "expires_ms": [0, 3_000],
    "retain_messages": [0, 5],
    "retain_ms": [0, 500],
    "ack_timeout_ms": [0, 500],
}


class Features(Chaos):
    def live(self, steps: int) -> None:
        for name in QUEUES:
            made: Any = self.create()
            made.queue = name
            self.driver.handle(made)
        super().live(steps)

    def command(self) -> Command:
        if self.random.random() < 0.85:
            return super().command()
        makers = [self.move, self.move, self.remove_listed, self.import_some, self.change, self.create, self.seek]
        makers += [self.join_cursor, self.commit, self.reject_some, self.quarantine, self.filter_group]
        return self.random.choice(makers)()

    # -- commands -------------------------------------------------------------------------------------------------

    def create(self) -> Command:
        command, pick = super().create(), self.random.choice
        assert isinstance(command, CreateQueue)
        assert command.options is not None
        changes: dict[str, Any] = {
            "hold_behind_failed": pick([False, False, True]),
            "dedup_window_ms": pick([0, 700, 5_000]),
            "expires_ms": pick([0, 0, 0, 4_000]),
            "auto_delete": pick([False, False, False, True]),
            "retry_base_ms": pick([0, 100]),
        }
        if pick([False, False, True]):
            changes |= {"overflow": Overflow.REDIRECT_TO_DLQ, "dead_letter": True}
        if pick([False, False, True]):
            # Others cannot be moved.
            modes = [DeliveryMode.ROUND_ROBIN, DeliveryMode.PRIORITY_BASED]
            changes |= {"mode": pick(modes), "retention": Retention.SETTLED}
            changes |= dict.fromkeys(("retain_ms", "retain_messages", "retain_bytes"), 0)
        command.options = command.options.with_changes(**changes)
        return command

    def change(self) -> Command:
        name = self.random.choice(list(CHANGES))
        return self.token(ChangeQueue(3, None, self.queue(), {name: self.random.choice(CHANGES[name])}))

    def move(self) -> Command:
        source = self.driver.engine._state.queues.get(self.queue())
        if source is None:
            return self.publish()
        waiting = sequences(run for group in source.groups.values() for run in group.waiting_within(0, END))
        chosen = sorted(self.random.sample(waiting, min(len(waiting), 4))) or [1]
        instants = [source.sizes.published_at(sequence) for sequence in chosen]
        rows = rows_of(len(chosen))
        return self.token(
            MoveMessages(3, None, source.name, source.incarnation, self.queue(), chosen, instants, rows, {})
        )

    def remove_listed(self) -> Command:
        chosen = [self.random.randint(1, 60) for _ in range(4)]
        return self.token(RemoveListed(3, None, self.queue(), chosen, dry_run=self.random.random() < 0.3))

    def import_some(self) -> Command:
        extras = {0: self.extra()._replace(dedup_id=b"")}
        file = f"file-{self.random.randint(1, 3)}"
        rows = rows_of(self.random.randint(1, 5))
        return self.token(ImportMessages(3, None, self.queue(), file, self.random.choice([0, 0, 3]), rows, extras))

    def join_cursor(self) -> Command:
        pick = self.random.choice
        return self.token(
            JoinCursor(
                3,
                None,
                self.queue(),
                pick(CURSORS),
                start=pick([StartAt.BEGINNING, StartAt.NOW]),
                hold_ms=pick([None, 0, 500]),
                max_lag_ms=pick([None, 0, 2_000]),
                begin=pick([None, None, Begin.CONTINUE, Begin.REPLAY]),
            )
        )

    def _cursor(self) -> tuple[str, str, int, int]:
        """A queue, the name of a cursor, its epoch, and some sequence."""
        name, cursor = self.queue(), self.random.choice(CURSORS)
        queue = self.driver.engine._state.queues.get(name)
        group = None if queue is None else queue.groups.get(cursor)
        sequence = self.random.randint(1, 1 if queue is None else queue.next_sequence)
        return name, cursor, 1 if group is None else group.epoch, sequence

    def commit(self) -> Command:
        return self.token(CommitCursor(3, None, *self._cursor()))

    def reject_some(self) -> Command:
        name, cursor, epoch, sequence = self._cursor()
        return self.token(RejectAt(3, None, name, cursor, [(sequence, "bad"), (sequence + 2, "worse")], epoch))

    def quarantine(self) -> Command:
        name, cursor, _, sequence = self._cursor()
        return self.token(Quarantine(3, None, name, cursor, [(sequence, sequence + 3)]))

    def filter_group(self) -> Command:
        where = self.random.choice([None, Selector.parse("n > 10")])
        return self.token(FilterGroup(3, None, self.queue(), self.random.choice(["g", "h"]), where))

    def seek(self) -> Command:
        command = super().seek()
        assert isinstance(command, SeekGroup)
        if command.start is StartAt.DEFAULT:
            # No operation asks for it.
            command.start = StartAt.BEGINNING
        return command

    # -- checks ---------------------------------------------------------------------------------------------------

    def check_readable(self, deliver: Deliver) -> None:
        super().check_readable(deliver)
        queue = self.driver.engine._state.queues_by_id[deliver.queue_id]
        late = [s for s in sequences(deliver.runs) if queue.is_expired(s, self.driver.now)]
        assert not late, f"{queue.name}: {late} have expired, and are handed out"

    def check(self) -> None:
        state = self.driver.engine._state
        at = self.driver.engine.next_deadline()
        if at is None or at > self.driver.now:
            for queue in state.queues.values():
                self.check_deadlines(queue, END if at is None else at)
        if not (self.driver.waiting or state.owes):
            for queue in state.queues.values():
                self.check_disk(queue, self.driver.disk.queues[queue.queue_id])

    def check_deadlines(self, queue: Queue, at: int) -> None:
        """Nothing is due before the engine wants to be called."""
        for group in queue.groups.values():
            assert at <= group.next_due(), f"{queue.name}/{group.name}: a message is due before"
            for consumer in group.consumers:
                assert at <= consumer.unacked.earliest, f"{queue.name}: a consumer's time is over before"
            for sequence in sequences(group.waiting_within(0, END)):
                assert at <= (queue.expires.get(sequence) or END), f"{queue.name}: {sequence} expires before"

    def check_disk(self, queue: Queue, stored: StoredQueue) -> None:
        assert stored.attended == queue.attended
        for group in queue.groups.values():
            kept = stored.groups[group.group_id]
            assert kept.cursor == (None if group.cursor is None else group.cursor.facts(group.epoch))
            unsettled = sequences(group.unsettled_set().runs())
            for sequence in unsettled:
                self.check_message(queue, stored, sequence)
                self.check_history(group, kept, sequence)

    def check_message(self, queue: Queue, stored: StoredQueue, sequence: int) -> None:
        assert stored.expires.get(sequence) == queue.expires.get(sequence), f"{queue.name}: when {sequence} expires"
        due = {stored.delayed.get(sequence), queue.delayed.get(sequence)}
        assert len(due) == 1 or max(due) <= self.driver.now, f"{queue.name}: when {sequence} is due"
        if queue.levels is not None:
            levels = {level for level, members in stored.priorities.items() if sequence in members and level != 1}
            assert levels == {level for level, members in queue.levels.items() if sequence in members}

    def check_history(self, group: Group, kept: StoredGroup, sequence: int) -> None:
        histories = [group.attempts.get(sequence, Attempts()), kept.attempts.get(sequence, Attempts())]
        # An instant that has passed means nothing any more.
        known = {h if h.due_at > self.driver.now else h._replace(due_at=0) for h in histories}
        assert len(known) == 1, f"{group.name}: what is known of the attempts of {sequence}"


class Checked(Features):
    """Every step."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        promises = self.driver.check

        def check() -> None:
            promises()
            self.check()

        self.driver.check = check  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def short_leaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a restart skips is looked at sequence by sequence."""
    monkeypatch.setattr(ranges, "LEAP", 64)


@pytest.mark.parametrize("seed", [0, 1, 186, 908])
def test_engine_and_disk_know_the_same_of_every_message(seed: int) -> None:
    Checked(seed).live(250)


@pytest.mark.parametrize("seed", range(100, 102))
def test_engine_and_disk_know_the_same_where_two_groups_are_very_many(seed: int) -> None:
    with steps_of(2):
        Checked(seed).live(250)
