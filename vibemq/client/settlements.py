"""Settlements gathered into runs, so that a thousand acks travel as one pair of integers. Pure."""

from typing import NamedTuple

from vibemq.client.publishing.outgoing import Seconds, milliseconds
from vibemq.errors import LocalProtocolError
from vibemq.model.arguments import sendable
from vibemq.model.runs import Run
from vibemq.model.shared.settlement import Settlement

REASON_CHARACTERS_MAX = 1_000
_TRACEBACK = "Traceback (most recent call last)"
Reason = str | BaseException
"""Why a message failed; of an exception, its type and its text."""
BACKOFF = -1
"""delay_ms of a retry that leaves the delay to the queue."""


def limit_ms(timeout: Seconds, name: str) -> int:
    """A timeout for the wire, where 0 is no limit.

    Raises:
        LocalProtocolError: it is negative, infinite or no number.
    """
    return milliseconds(timeout, name, zero="no limit")


def delay_ms(delay: Seconds | None, name: str) -> int:
    """A delay for the wire. Raises LocalProtocolError as `limit_ms` does."""
    return BACKOFF if delay is None else milliseconds(delay, name, zero="at once")


def reason_text(reason: Reason) -> str:
    """As it is sent and kept, cut to what is kept.

    Raises:
        LocalProtocolError: it is neither text nor an exception.
    """
    if isinstance(reason, BaseException):
        reason = f"{type(reason).__name__}: {reason}"
    elif not isinstance(reason, str):
        raise LocalProtocolError(f"a reason is text or an exception, not {reason!r:.100}; nothing is settled")
    return sendable(_cut(reason))


def _cut(reason: str) -> str:
    """Its beginning; of a Python traceback its end, which says what happened, behind the line by which the broker knows
    one."""
    text = reason.strip()
    if len(reason) <= REASON_CHARACTERS_MAX or not text.startswith(_TRACEBACK):
        return reason[:REASON_CHARACTERS_MAX]
    heading = f"{_TRACEBACK}:\n  …\n"
    room = REASON_CHARACTERS_MAX - len(heading)
    last_line = text[text.rfind("\n") + 1 :]
    return heading + (text[-room:] if len(last_line) < room else last_line[:room])


class SettleRuns(NamedTuple):
    """One Settle frame to be: everything that shares a verb, a delay and a reason."""

    verb: Settlement
    delay_ms: int
    reason: str
    runs: list[Run]


class SettlementBuffer:
    """What was settled since the last `take`."""

    __slots__ = ("_acks", "_runs", "count")

    def __init__(self) -> None:
        self.count = 0
        """Messages in here."""
        self._acks: list[Run] = []
        """Apart, because they are nearly all there is, and looking the verb up costs more than noting the ack."""
        self._runs: dict[tuple[Settlement, int, str], list[Run]] = {}

    def add(self, verb: Settlement, first: int, last: int, delay_ms: int = BACKOFF, reason: str = "") -> None:
        self.count += last - first + 1
        if verb is Settlement.ACK:
            runs = self._acks
        else:
            runs = self._runs.setdefault((verb, delay_ms, reason), [])
        if runs and runs[-1][1] + 1 == first:
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))

    def take(self) -> list[SettleRuns]:
        taken = [SettleRuns(Settlement.ACK, BACKOFF, "", merged(self._acks))] if self._acks else []
        taken += [SettleRuns(*key, merged(runs)) for key, runs in self._runs.items()]
        self._acks = []
        self._runs.clear()
        self.count = 0
        return taken


def merged(runs: list[Run]) -> list[Run]:
    """The same sequences as sorted, disjoint, never adjacent runs."""
    if len(runs) < 2:
        return runs
    runs = sorted(runs)
    result = [runs[0]]
    for first, last in runs[1:]:
        start, end = result[-1]
        if first <= end + 1:
            result[-1] = (start, max(end, last))
        else:
            result.append((first, last))
    return result
