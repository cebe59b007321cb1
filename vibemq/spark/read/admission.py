"""How far the next micro-batch goes: limits of messages and bytes over all queues, the long poll, the least batch."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from vibemq.spark.connection.client import VERBS_AT_ONCE, BrokerClient
from vibemq.spark.errors import GO_ON, DataLoss, Refused, explained
from vibemq.spark.options import SourceOptions
from vibemq.spark.read.fetching import check_losses, notice
from vibemq.spark.read.offsets import Positions, QueuePosition
from vibemq.spark.read.plans import QueryPlans, positions_of, tag_of


class AdmissionLimits(NamedTuple):
    """0 = none."""

    messages: int
    bytes: int
    least: int = 1

    @classmethod
    def of(cls, limit: Any, settings: SourceOptions) -> "AdmissionLimits":
        """Spark's limit wins over the option of its kind; ReadAllAvailable over both."""
        messages, size = settings.max_messages_per_trigger, settings.max_bytes_per_trigger
        match type(limit).__name__:
            case "ReadAllAvailable":
                return cls(0, 0)
            case "ReadMaxRows":
                messages = int(limit.max_rows)
            case "ReadMaxBytes":
                size = int(limit.max_bytes)
        return cls(messages, size, settings.min_messages_per_trigger)


class _Reach(NamedTuple):
    """The broker's answer for one queue."""

    end: int
    messages: int
    bytes: int
    tail: int
    lost: list[tuple[int, int]]
    planned: str = ""
    """Where the whole batch was planned to end, as the keeper of the plans says."""


class Admission:
    """Asks the broker; remembers since when too few messages have been waiting, and what it has told of."""

    def __init__(self, client: BrokerClient, plans: QueryPlans, settings: SourceOptions) -> None:
        self._client = client
        self._plans = plans
        self._settings = settings
        self._waiting_since: float | None = None
        self._told_beyond: dict[str, int] = {}
        """Queue -> where the query stands beyond its end."""

    def next(self, start: Positions, limits: AdmissionLimits, targets: Mapping[str, QueuePosition] | None) -> Positions:
        """Where the next batch ends; `start` when there is nothing, after a pause. Where it was planned to end before,
        if it was, whatever the limits and the targets are.

        Args:
            targets: AvailableNow: nothing at or above these, and no waiting.

        Raises:
            DataLoss: messages that were to be read are gone.
        """
        open_now = {queue: at for queue, at in start.items() if targets is None or _is_below(at, targets.get(queue))}
        if not open_now:
            if targets is None:
                time.sleep(self._settings.poll_timeout_ms / 1000)
            return start
        keeper = self._plans.keeper(start)
        asked = {**open_now, keeper: start[keeper]} if keeper else open_now
        wait_ms = 0 if targets is not None else self._settings.poll_timeout_ms
        reaches = self._reaches(asked, limits, tag_of(start), keeper, wait_ms=wait_ms)
        if keeper and reaches[keeper].planned:
            return positions_of(reaches[keeper].planned)
        reaches = {queue: reaches[queue] for queue in open_now}
        if targets is None and self._too_few(reaches, limits):
            time.sleep(self._settings.poll_timeout_ms / 1000)
            return start
        end = dict(start)
        for queue, reach in reaches.items():
            until = reach.end if targets is None else min(reach.end, targets[queue].sequence)
            self._check(queue, start[queue].sequence, reach, until)
            end[queue] = QueuePosition(start[queue].incarnation, max(until, start[queue].sequence))
        return end

    def _reaches(
        self, start: Positions, limits: AdmissionLimits, tag: str, keeper: str, *, wait_ms: int
    ) -> dict[str, _Reach]:
        # One queue is asked once. Of several the waiting is done only when none has anything, so that none is delayed.
        reaches = self._ask(start, dict.fromkeys(start, limits), wait_ms if len(start) == 1 else 0, {keeper: tag})
        if any(reach.planned for reach in reaches.values()):
            return reaches
        if len(start) > 1 and not any(reach.messages for reach in reaches.values()):
            if len(start) > VERBS_AT_ONCE:
                # The broker cannot wait for all of them at the same time.
                time.sleep(wait_ms / 1000)
                wait_ms = 0
            reaches = self._ask(start, dict.fromkeys(start, limits), wait_ms)
        over = max(
            sum(reach.messages for reach in reaches.values()) / limits.messages if limits.messages else 0,
            sum(reach.bytes for reach in reaches.values()) / limits.bytes if limits.bytes else 0,
        )
        if len(reaches) == 1 or over <= 1:
            return reaches
        # Together they have too much: each gets its share, but one message.
        shares = {
            queue: AdmissionLimits(max(1, int(reach.messages / over)), max(1, int(reach.bytes / over)))
            for queue, reach in reaches.items()
            if reach.messages
        }
        return reaches | self._ask({queue: start[queue] for queue in shares}, shares, 0)

    def _ask(
        self,
        start: Positions,
        limits: Mapping[str, AdmissionLimits],
        wait_ms: int,
        plans: Mapping[str, str] | None = None,
    ) -> dict[str, _Reach]:
        """`plans`: the queue that is asked for the plan of the batch, and its tag."""
        tags = plans or {}
        tickets = []
        for queue, at in start.items():
            arguments = self._arguments(at, limits[queue], wait_ms)
            if queue in tags:
                arguments["plan"] = tags[queue]
            tickets.append((queue, self._client.ask_verb("group.advance", queue, arguments)))
        found = {}
        for queue, ticket in tickets:
            try:
                found[queue] = _reach(self._client.json(ticket))
            except Refused as error:
                if error.code == "PLAN_UNKNOWN":
                    self._plans.may_be_forgotten(error, queue)
                    found |= self._ask({queue: start[queue]}, limits, 0)
                    continue
                if not self._may_be_skipped(error):
                    raise explained(error, queue, self._settings.group) from None
                found[queue] = self._nothing(queue, start[queue], error)
        return found

    def _arguments(self, at: QueuePosition, limits: AdmissionLimits, wait_ms: int) -> dict[str, object]:
        return {
            "group": self._settings.group,
            "from": at.sequence,
            "incarnation": at.incarnation,
            "max_messages": limits.messages,
            "max_bytes": limits.bytes,
            "wait_ms": wait_ms,
        }

    def _may_be_skipped(self, error: Refused) -> bool:
        losses = ("QUEUE_NOT_FOUND", "WRONG_INCARNATION", "OFFSET_GONE")
        return error.code in losses and not self._settings.fail_on_data_loss

    def _nothing(self, queue: str, at: QueuePosition, error: Refused) -> _Reach:
        """Of a queue that is gone, or whose messages here are gone: on to what is left."""
        head = at.sequence
        if error.code == "OFFSET_GONE":
            head = int(self._client.call("group.offsets", queue, {"group": self._settings.group})["head"])
            notice(f"queue {queue!r}: messages {at.sequence} to {head - 1} are gone ({error.code})")
        return _Reach(head, head - at.sequence, 0, head, [])

    def _too_few(self, reaches: Mapping[str, _Reach], limits: AdmissionLimits) -> bool:
        messages = sum(reach.messages for reach in reaches.values())
        # Where another limit has cut the batch, more messages would not make it larger.
        is_cut = any(reach.end < reach.tail for reach in reaches.values())
        if messages >= limits.least or not messages or is_cut:
            self._waiting_since = None
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if (now - self._waiting_since) * 1000 < self._settings.max_trigger_delay_ms:
            return True
        self._waiting_since = None
        return False

    def _check(self, queue: str, first: int, reach: _Reach, until: int) -> None:
        if reach.tail < first:
            what = (
                f"queue {queue!r} ends at {reach.tail}, and the query stands at {first}: messages that were read have"
                " been lost in the broker since (a power cut, with a durability below strong?), or the group was made"
                " to begin behind the end of the queue (startingOffsets, `vibemq-admin group seek`)"
            )
            if self._settings.fail_on_data_loss:
                raise DataLoss(f"{what}. {GO_ON}")
            if self._told_beyond.get(queue) != first:
                self._told_beyond[queue] = first
                notice(what)
        check_losses(queue, [(low, min(high, until - 1)) for low, high in reach.lost if low < until], self._settings)


def _is_below(at: QueuePosition, target: QueuePosition | None) -> bool:
    return target is not None and at.incarnation == target.incarnation and at.sequence < target.sequence


def _reach(answer: Mapping[str, Any]) -> _Reach:
    lost = [(int(first), int(last)) for first, last in answer.get("lost") or ()]
    end, messages, size, tail = (int(answer[name]) for name in ("end", "messages", "bytes", "tail"))
    return _Reach(end, messages, size, tail, lost, str(answer.get("planned", "")))
