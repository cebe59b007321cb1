"""A query's cursors, one for each queue, joined by the one process that lives as long as the query runs."""

import hashlib
import json
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from vibemq.spark.connection.client import BrokerClient, Ticket
from vibemq.spark.errors import Refused, explained, without_checkpoint
from vibemq.spark.options import SourceOptions
from vibemq.spark.read.fetching import notice
from vibemq.spark.read.offsets import OffsetRange, Positions, QueuePosition

JOINS_SUSPICIOUS = 3


@dataclass
class QueryCursor:
    queue: str
    incarnation: str
    epoch: int
    committed: int
    joins: int
    moved: bool
    """By acknowledgements, since the group was made or sought."""
    plans: int
    """How many the group is known to keep."""
    is_new: bool
    """Whether nobody has read the group before: the join has made it, or it was sought since."""

    @property
    def position(self) -> QueuePosition:
        return QueuePosition(self.incarnation, self.committed)


AskedOfCursor = tuple[QueryCursor, Ticket]


class Standing(NamedTuple):
    """A group as it stands. Every join raises the epoch."""

    queue: str
    incarnation: str
    epoch: int
    moved: bool


def name_of_loss(group: str, standings: list[Standing]) -> str:
    """Of a checkpoint that is lost while the groups stand so. After a join it can never be the name of another loss."""
    facts = json.dumps([group, sorted(standings)], separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


class QueryCursors:
    """Joins are lazy and happen once a process: a join fences the query that had the group before."""

    def __init__(self, client: BrokerClient, settings: SourceOptions) -> None:
        self._client = client
        self._settings = settings
        self._joined: dict[str, QueryCursor] = {}
        self._decided: dict[str, Standing] = {}
        """By queue: the group for which `newCheckpoint` was decided."""
        self.has_begun = False
        """Whether the query has a position: queues that come later are read from their first message on."""

    def decide(self, queues: Iterable[str]) -> None:
        """For queues of which there is no position, before any of them is joined: whether `newCheckpoint` counts.

        The option often stays set when it was heeded. If it counted again, a sink that knows batches by number would
        skip those of a second new checkpoint. So its value names one loss, by the epochs that the groups have then.

        Raises:
            Refused: groups were moved, and the option does not name this loss.
        """
        standings = self._look_at([queue for queue in queues if queue not in self._joined])
        moved = [found.queue for found in standings if found.moved]
        # Groups that were made, and not moved, may be those of a start that failed before its first batch.
        self.has_begun = self.has_begun or bool(moved)
        if not moved:
            return
        chosen, group = self._settings.new_checkpoint, self._settings.group
        name = name_of_loss(group, standings)
        if chosen.word == "refuse" or chosen.loss != name:
            raise without_checkpoint(group, moved, str(chosen), name)
        self._decided.update((found.queue, found) for found in standings)

    def in_order(self, queues: list[str]) -> list[str]:
        """Moved groups last: a driver that dies before it has joined them all is asked again."""
        decided = self._decided
        return sorted(queues, key=lambda queue: (queue in decided and decided[queue].moved, queue))

    def _look_at(self, queues: list[str]) -> list[Standing]:
        """What cannot be looked at is left out: the join is refused and says why."""
        asked = [
            (queue, self._client.ask_verb("group.offsets", queue, {"group": self._settings.group})) for queue in queues
        ]
        found = []
        for queue, ticket in asked:
            try:
                answer = self._client.json(ticket)
            except Refused:
                continue
            if not answer["expired"]:
                epoch, moved = int(answer["epoch"]), bool(answer["moved"])
                found.append(Standing(queue, str(answer["incarnation"]), epoch, moved))
        return found

    def of(self, queue: str, at: QueuePosition | None) -> QueryCursor:
        """The cursor; joined now if it is not yet. `at`: the checkpoint's position, if any; then the group must exist.

        Raises:
            DataLoss: the queue is another one than the checkpoint's.
            Refused: there is no such queue, the group has expired, it was moved and there is no position of a
                checkpoint, and so on.
        """
        cursor = self._joined.get(queue)
        if cursor is None:
            try:
                cursor = self._join(queue, at)
            except Refused as error:
                if error.code != "WRONG_INCARNATION" or self._settings.fail_on_data_loss:
                    raise explained(error, queue, self._settings.group) from None
                notice(f"queue {queue!r} is another one than the checkpoint's; continuing with what there is now")
                cursor = self._join_anew(queue)
            self._joined[queue] = cursor
        return cursor

    def _join_anew(self, queue: str) -> QueryCursor:
        try:
            return self._join(queue, None, begin="continue")
        except Refused as error:
            raise explained(error, queue, self._settings.group) from None

    def get(self, queue: str) -> QueryCursor | None:
        """If it is joined."""
        return self._joined.get(queue)

    def leave_those_gone(self) -> None:
        """Queues that are not there any more, or are others now."""
        for queue, _, ticket in self._ask_for_offsets():
            try:
                self._client.json(ticket)
            except Refused as error:
                if not error.says_queue_is_gone:
                    raise explained(error, queue, self._settings.group) from None
                self.leave(queue)

    def _ask_for_offsets(self) -> list[tuple[str, QueryCursor, Ticket]]:
        """Of all joined queues at once."""
        return [
            (queue, cursor, self._client.ask_verb("group.offsets", queue, self._about(cursor)))
            for queue, cursor in self._joined.items()
        ]

    def _about(self, cursor: QueryCursor) -> dict[str, object]:
        return {"group": self._settings.group, "incarnation": cursor.incarnation}

    def leave(self, queue: str) -> None:
        """The queue is gone, or not the one we joined."""
        self._joined.pop(queue, None)

    def acknowledge(self, positions: Positions, tag: str) -> None:
        """As `ask_to_acknowledge`, once, without patience, and waits for the answer."""
        self.acknowledged(self.ask_to_acknowledge(positions, tag, patient=False), patient=False)

    def ask_to_acknowledge(self, positions: Positions, tag: str | None, *, patient: bool = True) -> list[AskedOfCursor]:
        """Everything below these is done, and with it every batch that was planned before. Asked every time, also when
        nothing moved: the answer tells whether the group is still ours.

        Args:
            tag: of all the positions together; None: of plans nothing is said.

        Returns:
            What `acknowledged` takes. Other requests may be sent before.
        """
        return [
            (cursor, self._client.ask_verb("group.commit", queue, self._commit(cursor, position, tag), patient=patient))
            for queue, position in positions.items()
            if (cursor := self._joined.get(queue)) is not None and cursor.incarnation == position.incarnation
        ]

    def acknowledged(self, asked: list[AskedOfCursor], *, patient: bool = True) -> None:
        """Wait for the answers. Raises Refused when the group is another query's."""
        for cursor, ticket in asked:
            try:
                committed = int(self._client.json(ticket, patient=patient)["committed"])
            except Refused as error:
                if not error.says_queue_is_gone:
                    raise explained(error, cursor.queue, self._settings.group) from None
                self.leave(cursor.queue)  # Whoever reads on finds the same, and decides what it means.
                continue
            if committed > cursor.committed:
                cursor.committed = committed
                cursor.joins = 0

    def _commit(self, cursor: QueryCursor, position: QueuePosition, tag: str | None) -> dict[str, object]:
        asked: dict[str, object] = {
            "group": self._settings.group,
            "epoch": cursor.epoch,
            "sequence": position.sequence,
            "incarnation": cursor.incarnation,
        }
        return asked if tag is None else {**asked, "plan": tag}

    def go_on_where_they_stand(self, positions: Positions) -> None:
        """For queries that do not acknowledge when they begin a batch: says that a reader with a checkpoint goes on
        where a group was sought to. Without its checkpoint it is then asked what it wants, as anywhere else."""
        standing = {
            queue: position
            for queue, position in positions.items()
            if (cursor := self._joined.get(queue)) is not None and not cursor.moved and cursor.position == position
        }
        if standing:
            self.acknowledged(self.ask_to_acknowledge(standing, None))

    def check_owned(self) -> None:
        """Raise when another query has joined, for queries that do not acknowledge."""
        for queue, cursor, ticket in self._ask_for_offsets():
            try:
                epoch = int(self._client.json(ticket)["epoch"])
            except Refused as error:
                if error.says_queue_is_gone:
                    continue  # Whoever reads on finds the same, and decides what it means.
                raise explained(error, queue, self._settings.group) from None
            if epoch != cursor.epoch:
                fenced = Refused("GROUP_FENCED", f"epoch {cursor.epoch} has become {epoch}")
                raise explained(fenced, queue, self._settings.group)

    def warn_of_standstill(self, spans: list[OffsetRange]) -> None:
        """A batch was started again and again. Its messages are not named: drivers may only have been killed."""
        for span in spans:
            cursor = self._joined.get(span.queue)
            if cursor is not None and cursor.joins >= JOINS_SUSPICIOUS:
                notice(
                    f"no progress: group {self._settings.group!r} of queue {span.queue!r} was joined"
                    f" {cursor.joins} times and stands at {cursor.committed}. If drivers were killed, nothing is wrong."
                    " If the query fails with the same error at every start, see the documentation of failed_batch"
                )
                cursor.joins = 0

    def _join(self, queue: str, at: QueuePosition | None, begin: str = "") -> QueryCursor:
        """`begin`: in the place of what was decided, where there is no position; a new group then begins at the first
        message."""
        settings = self._settings
        start = "earliest" if begin else self._start(queue)
        arguments: dict[str, object] = {
            "group": settings.group,
            "start": f"sequence:{at.sequence}" if at else start,
            "owner": f"spark {socket.gethostname()} {os.getpid()}",
        }
        if at:
            arguments["incarnation"] = at.incarnation
            # Of a group that was deleted nobody knows what was held for it since, and how its batches were cut.
            arguments["create"] = not settings.fail_on_data_loss
        elif begin:
            arguments["begin"] = begin
        elif queue in self._decided:
            arguments["begin"] = settings.new_checkpoint.word
            arguments["begin_epoch"] = self._decided[queue].epoch
        else:
            arguments["begin"] = "refuse"
        for name in ("hold_ms", "max_lag_ms", "max_lag_bytes"):
            value = getattr(settings, name)
            if value is not None:
                arguments[name] = value
        answer = self._client.call("group.join", queue, arguments)
        epoch, committed, joins = (int(answer[name]) for name in ("epoch", "committed", "joins"))
        moved, plans = bool(answer["moved"]), int(answer["plans"])
        is_new = joins == 1 and not moved and not plans
        return QueryCursor(queue, str(answer["incarnation"]), epoch, committed, joins, moved, plans, is_new)

    def _start(self, queue: str) -> str:
        starts = self._settings.starting_offsets
        if self._settings.queue_pattern and self.has_begun and starts.of(queue) is None:
            # What was published before it was discovered is the query's, too.
            return "earliest"
        if self._settings.starting_timestamp is not None:
            return f"time:{self._settings.starting_timestamp}"
        asked = starts.word or starts.of(queue)
        if isinstance(asked, int):
            return f"sequence:{asked}"
        return "latest" if asked == "latest" else "earliest"
