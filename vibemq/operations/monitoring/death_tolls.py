"""How many messages have died in the last minutes, as sentences: for the overview and for the checks of the broker."""

from collections.abc import Mapping
from heapq import nlargest
from typing import NamedTuple

DEATHS_ALARM = 1_000
"""Of one queue in 15 minutes: with as many something is broken, not a message."""
TOLD_MAX = 3
"""Queues above that with a sentence of their own; of the others only the first has one."""
REMEDY = "see what they died of, repair it, then replay them"


class DeathSentence(NamedTuple):
    is_alarm: bool
    text: str
    queue: str
    """Empty: of several."""


def death_sentences(deaths: Mapping[str, int]) -> list[DeathSentence]:
    """`deaths`: of the last 15 minutes, by queue. Those with most first."""
    most = nlargest(TOLD_MAX, deaths.items(), key=lambda death: death[1])
    most = [death for death in most if death[1] >= DEATHS_ALARM] or most[:1]
    told = [
        DeathSentence(count >= DEATHS_ALARM, f"{_became(count)} in the last 15 minutes in queue {name}", name)
        for name, count in most
        if count > 0
    ]
    rest = [count for name, count in deaths.items() if count > 0 and name not in dict(most)]
    if rest:
        queues = "1 more queue" if len(rest) == 1 else f"{len(rest):,} more queues"
        is_alarm = max(rest) >= DEATHS_ALARM
        told.append(DeathSentence(is_alarm, f"{_became(sum(rest))} in the last 15 minutes in {queues}", ""))
    return told


def _became(count: int) -> str:
    return "1 message became a dead letter" if count == 1 else f"{count:,} messages became dead letters"
