"""How batches are cut, remembered in the broker: a batch that begins where one began before ends where that one ended.

A sink knows a batch by its number. When somebody rolls a checkpoint back, Spark asks for the end of a batch that it has
run before; were the end another one, the sink would take a larger batch for a replay, and rows would be missing. So the
end is durable in the broker before Spark sees it. One queue keeps the plans of all, the first by name: a plan is there
or it is not, and a crash between queues cannot leave half of one.
"""

import hashlib
import json

from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import DataLoss, OptionError, Refused, explained
from vibemq.spark.options import SourceOptions
from vibemq.spark.read.cursors import QueryCursors
from vibemq.spark.read.fetching import PlannedBatch, notice
from vibemq.spark.read.offsets import Positions, QueuePosition, dump, load

PLAN_CHARACTERS_MAX = 1 << 18
"""Of a position that the broker keeps."""


def text_of(positions: Positions) -> str:
    """The canonical text of an offset; what the broker keeps, and what a tag is made of."""
    return json.dumps(dump(positions), separators=(",", ":"), ensure_ascii=False)


def text_to_keep(positions: Positions) -> str:
    """The same. Raises OptionError for more queues than the broker keeps a position of."""
    text = text_of(positions)
    if len(text) > PLAN_CHARACTERS_MAX:
        raise OptionError(
            f"the query reads {len(positions):,} queues, and a position of all of them has {len(text):,} characters;"
            f" the broker keeps {PLAN_CHARACTERS_MAX:,}. Read them with several queries, each with a group and a"
            " narrower queuePattern of its own"
        )
    return text


def tag_of(positions: Positions) -> str:
    return hashlib.sha256(text_of(positions).encode()).hexdigest()[:16]


def positions_of(text: str) -> Positions:
    return load(json.loads(text))


def _what_leads_to(end: Positions, start: Positions) -> Positions:
    """Of a start the queues that neither go back from there nor are others in the end."""
    return {
        queue: at
        for queue, at in start.items()
        if queue in end and end[queue].incarnation == at.incarnation and end[queue].sequence >= at.sequence
    }


class QueryPlans:
    """Of one query, in the group of one of its queues. `failOnDataLoss=false` begins anew where a plan is forgotten."""

    def __init__(self, client: BrokerClient, cursors: QueryCursors, settings: SourceOptions) -> None:
        self._client = client
        self._cursors = cursors
        self._settings = settings
        self._settled: tuple[Positions, Positions] | None = None
        self._is_new = False
        """Whether nobody had begun to read the batch that was settled last."""
        self._is_sure = False
        """Whether such a batch has been read then: from there on no number was used before."""
        self.empty_behind = 0
        """How many batches without rows follow the last plan that was settled."""

    def epoch(self, start: Positions) -> int:
        """Of the group that keeps the plan of the batch that begins there."""
        cursor = self._cursors.get(self.keeper(start))
        return 0 if cursor is None else cursor.epoch

    def check_read(self, start: Positions) -> None:
        """Before the batch is acknowledged that ends there: somebody must have begun to read it.

        A file sink, and a program that keeps a table of its batches, leave out a batch whose number they know, and run
        no task. When the batch is not the one that they have, nobody has its rows. Spark runs no task either when the
        result has no rows whatever the batch has, as in a join with an empty table; that cannot be told from here.

        Raises:
            Refused: nobody has, and `unreadBatches` does not allow it.
        """
        keeper = self.keeper(start)
        cursor = self._cursors.get(keeper)
        if self._is_sure or cursor is None:
            return
        if self._ends_unread(keeper, start):
            self._unread(f"the batch that ends at {start[keeper].sequence} of queue {keeper!r}", keeper)
            return
        self._is_sure = self._is_new and self._settled is not None and self._settled[1] == start

    def _unread(self, batch: str, keeper: str) -> None:
        if self._settings.unread_batches == "allow":
            notice(f"{batch} is done and is acknowledged, and no task has read it (unreadBatches=allow)")
            return
        sentence = (
            f"{batch} is done, and no task has read it. Either the sink has left it out, as it does with a number that"
            " it knows; or a function of foreachBatch has not read it, or its result is empty without it, as in a join"
            " with a table that has no rows: Spark then runs no task, and if you are certain of that, set"
            " unreadBatches=allow (docs/howto/spark/run.md#a-batch-that-nobody-has-read)"
        )
        raise explained(Refused("BATCH_CHANGED", sentence), keeper, self._settings.group)

    def _ends_unread(self, keeper: str, start: Positions) -> bool:
        arguments = {
            "group": self._settings.group,
            "incarnation": start[keeper].incarnation,
            "plan": tag_of(start),
        }
        try:
            return bool(self._client.call("group.offsets", keeper, arguments)["unread"])
        except Refused as error:
            if not error.says_queue_is_gone:
                raise explained(error, keeper, self._settings.group) from None
            return False  # Whoever reads on finds the same, and decides what it means.

    def planned(self, start: Positions, end: Positions) -> PlannedBatch | None:
        """What the tasks of a batch say of it. Made now if it is in the checkpoint alone; None without a queue.

        Raises:
            Refused: it was planned to end elsewhere.
        """
        leading = _what_leads_to(end, start)
        if leading != start and self._settled != (start, end) and self.find(start) != end:
            # With failOnDataLoss=false groups may stand behind the batch 0 of the checkpoint, or in other queues. A
            # plan that leads back would have the query go in a circle.
            start = leading
        keeper = self.keeper(start)
        if self._cursors.get(keeper) is None or end == start:
            return None
        is_known = self._settled == (start, end)
        # The queue that kept the plan may have been deleted: the checkpoint says where the batch ends, all the same.
        is_remade = not is_known and not self._settings.fail_on_data_loss and self.find(start) is None
        if not is_known and self.settle(start, end) != end:
            raise explained(
                Refused(
                    "BATCH_CHANGED",
                    f"group {self._settings.group!r} of queue {keeper!r} has planned another end of the batch that the"
                    " checkpoint repeats",
                ),
                keeper,
                self._settings.group,
            )
        batch = self._batch(start, end)
        if batch is not None and is_remade:
            batch["remade"] = True
        return batch

    def without_rows(self, start: Positions) -> PlannedBatch | None:
        """What a task says of a batch that ends where it begins. None without a queue."""
        return self._batch(start, start)

    def _batch(self, start: Positions, end: Positions) -> PlannedBatch | None:
        cursor = self._cursors.get(keeper := self.keeper(start))
        if cursor is None:
            return None
        return {
            "keeper": keeper,
            "incarnation": cursor.incarnation,
            "epoch": cursor.epoch,
            "tag": tag_of(start),
            "end": tag_of(end),
        }

    def note_empty(self, start: Positions, mark: str, *, patient: bool) -> None:
        """A batch that began there had no rows."""
        keeper = self.keeper(start)
        cursor = self._cursors.get(keeper)
        if cursor is None:
            return
        arguments = {
            "group": self._settings.group,
            "epoch": cursor.epoch,
            "incarnation": cursor.incarnation,
            "tag": tag_of(start),
            "end": text_to_keep(start),
            "empty": mark,
        }
        try:
            self._client.call("group.plan", keeper, arguments, patient=patient)
        except Refused as error:
            if not error.says_queue_is_gone:
                raise explained(error, keeper, self._settings.group) from None
            # Whoever reads on finds the same, and decides what it means.

    def keeper(self, start: Positions) -> str:
        """The queue that keeps the plan of the batch that begins there; "" when there is none of these queues."""
        for queue in sorted(start):
            cursor = self._cursors.get(queue)
            if cursor is not None and cursor.incarnation == start[queue].incarnation:
                return queue
        return ""

    def check(self, start: Positions) -> None:
        """Once, when a checkpoint's position is first seen: it must be one that the groups can know.

        Raises:
            DataLoss: a group was made anew or sought, and stands elsewhere.
            Refused: how the batch was cut that begins there is forgotten, or the position is another query's.
        """
        keeper = self.keeper(start)
        # Of a group that knows nothing the broker could only say that what lies below it is gone.
        is_planned = self._knows_batches(keeper) and self.find(start) is not None
        for queue, position in sorted(start.items()):
            if not (is_planned and queue == keeper):
                self._check_stands(queue, position)

    def _knows_batches(self, queue: str) -> bool:
        """Whether the group of the queue has acknowledged or planned anything since it was made or sought."""
        cursor = self._cursors.get(queue)
        return cursor is not None and (cursor.moved or cursor.plans > 0)

    def _check_stands(self, queue: str, position: QueuePosition) -> None:
        cursor, at = self._cursors.get(queue), position.sequence
        if cursor is None or cursor.incarnation != position.incarnation:
            return
        if self._knows_batches(queue) or cursor.committed == at:
            return
        what = (
            f"group {self._settings.group!r} of queue {cursor.queue!r} stands at {cursor.committed}, the checkpoint at"
            f" {at}: an operator has moved the group or made it anew. Use the newest checkpoint if it stands there, or"
            " begin with a new one and an output that is new"
        )
        self._lost(what)

    def check_first(self, start: Positions, end: Positions) -> None:
        """Before batch 0 of a checkpoint is repeated: the groups must stand where they stood when it was planned.

        Raises:
            DataLoss: a group was deleted, made anew or sought since.
        """
        # Queues that are not in the end have entered the pattern later.
        begun = {queue: start[queue] for queue in end if queue in start}
        if begun == end:
            if not any(cursor.is_new for queue in end if (cursor := self._cursors.get(queue)) is not None):
                return
        elif self._leads_to(begun, end):
            return
        self._lost(
            f"the checkpoint has planned its first batch, and group {self._settings.group!r} of queue"
            f" {self.keeper(start)!r} does not know it: the group was deleted or moved since, or the broker's data were"
            " restored from a backup. The batch could have other rows than the sink has under its number. Begin with"
            " a new checkpoint and an output that is new"
        )

    def _leads_to(self, start: Positions, end: Positions) -> bool:
        """Whether one batch or several were planned from one to the other."""
        try:
            while (following := self.find(start)) is not None:
                if following == end:
                    return True
                start = following
        except Refused as error:
            if error.code != "PLAN_UNKNOWN":
                raise
        return False

    def _lost(self, what: str) -> None:
        if self._settings.fail_on_data_loss:
            raise DataLoss(what)
        notice(what)

    def find(self, start: Positions) -> Positions | None:
        """Where the batch that begins there was planned to end, if it was.

        Raises:
            Refused: it was and is forgotten, or the start is another query's.
        """
        cursor = self._cursors.get(keeper := self.keeper(start))
        if cursor is None:
            return None
        arguments = {
            "group": self._settings.group,
            "incarnation": start[keeper].incarnation,
            "from": start[keeper].sequence,
            "plan": tag_of(start),
        }
        try:
            planned = self._client.call("group.advance", keeper, arguments).get("planned")
        except Refused as error:
            self.may_be_forgotten(error, keeper)
            return None
        return None if planned is None else positions_of(planned)

    def settle(self, start: Positions, end: Positions) -> Positions:
        """The end that holds for the batch, durable in the broker: an earlier one, or else this one."""
        keeper = self.keeper(start)
        if not keeper or end == start:
            return end
        for queue in start:
            if queue != keeper and end.get(queue) != start[queue]:
                self._mark(queue, start, end)
        known = self._plan(keeper, start, end)
        self._note_plan(keeper, start)
        self._settled = start, known
        return known

    def _mark(self, queue: str, start: Positions, end: Positions) -> None:
        """A group that keeps no plans is told of one, once: so it can be seen later whether it was sought."""
        cursor = self._cursors.get(queue)
        if cursor is not None and not cursor.plans and cursor.incarnation == start[queue].incarnation:
            self._plan(queue, start, end, elsewhere=True)
            self._note_plan(queue, start)

    def _note_plan(self, queue: str, start: Positions) -> None:
        """Only of a group that stands where the batch begins: `check` finds out later that another one was sought."""
        cursor = self._cursors.get(queue)
        if cursor is not None and cursor.committed == start[queue].sequence:
            cursor.plans = max(cursor.plans, 1)

    def _plan(self, queue: str, start: Positions, end: Positions, *, elsewhere: bool = False) -> Positions:
        """`elsewhere`: the queue does not keep the plans, and may one day, when the one that does is gone."""
        cursor = self._cursors.get(queue)
        assert cursor is not None
        arguments = {
            "group": self._settings.group,
            "epoch": cursor.epoch,
            "incarnation": cursor.incarnation,
            "tag": tag_of(start),
            "end": text_to_keep(end),
            "anew": elsewhere or not self._settings.fail_on_data_loss,
            "elsewhere": elsewhere,
        }
        try:
            answer = self._client.call("group.plan", queue, arguments)
            self.empty_behind, self._is_new = int(answer["empty"]), bool(answer["unread"])
            return positions_of(answer["end"])
        except Refused as error:
            raise explained(error, queue, self._settings.group) from None

    def may_be_forgotten(self, error: Refused, queue: str) -> None:
        """Raise, unless the plan is not needed: the messages are gone, or somebody wants to go on anyway."""
        if self._settings.fail_on_data_loss or error.code not in ("PLAN_UNKNOWN", "OFFSET_GONE"):
            raise explained(error, queue, self._settings.group) from None
        notice(f"queue {queue!r}: how this batch was cut before is not known any more ({error.code})")
