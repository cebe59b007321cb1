"""Settlements by lease: many in one request, each with a result of its own."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vibemq.errors import InvalidPayload, VibeMQError, forget_frames
from vibemq.model.access import Principal
from vibemq.model.arguments import has_utf8
from vibemq.model.commands import Command, Extend, Settle, Settlement
from vibemq.model.effects import SettledRuns
from vibemq.model.runs import RunSet, run_count, runs_of
from vibemq.web.api.errors import Problem
from vibemq.web.api.messages.leases import LeaseSeal, gone
from vibemq.web.api.messages.peers import HttpPeer, HttpPeers

SETTLEMENTS_MAX = 1_000
LEASES_PER_TURN = 100
"""Looked at before the loop has its turn."""
REASON_MAX = 4_096
ACK_TIMEOUT_MS_MAX = 43_200_000
"""Twelve hours: a script that has died must give back what it holds."""
DELAY_MS_MAX = 604_800_000
VERBS = {
    "ack": frozenset[str](),
    "retry": frozenset({"delay_ms", "reason"}),
    "release": frozenset[str](),
    "reject": frozenset({"reason"}),
    "extend": frozenset({"ack_timeout_ms"}),
}
"""With what may stand beside each of them."""
_SETTLEMENTS = {
    "ack": Settlement.ACK,
    "retry": Settlement.RETRY,
    "release": Settlement.RELEASE,
    "reject": Settlement.REJECT,
}


class SettlementWish(NamedTuple):
    """What shall become of some messages; equal ones of one fetch are one command."""

    verb: str
    delay_ms: int | None = None
    reason: str = ""
    ack_timeout_ms: int | None = None


@dataclass(slots=True)
class SettlementOutcome:
    """Of one settlement."""

    error: VibeMQError | Problem | None = None
    expires_at: int = 0
    """Of one that was extended."""


@dataclass(slots=True)
class _Together:
    """One command."""

    peer: HttpPeer
    consumer: int
    wish: SettlementWish
    indexes: list[int]
    sequences: list[int]


async def settle(
    peers: HttpPeers, seal: LeaseSeal, principal: Principal, items: Sequence[Any]
) -> list[SettlementOutcome]:
    """In the order of `items`; what the engine keeps of it is kept when this returns."""
    outcomes = [SettlementOutcome() for _ in items]
    together: dict[tuple[int, int, SettlementWish], _Together] = {}
    for index, item in enumerate(items):
        if index % LEASES_PER_TURN == LEASES_PER_TURN - 1:
            await asyncio.sleep(0)
        try:
            wish = read_wish(item)
            lease = seal.open(item["lease"], principal)
            peer = peers.numbered(lease.session)
            if peer is None:
                raise _ended()
        except (VibeMQError, Problem) as error:
            forget_frames(error)
            outcomes[index].error = error
            continue
        key = (lease.session, lease.consumer, wish)
        some = together.setdefault(key, _Together(peer, lease.consumer, wish, [], []))
        some.indexes.append(index)
        some.sequences.append(lease.sequence)
    await asyncio.gather(*(_carry_out(some, outcomes) for some in together.values()))
    return outcomes


async def _carry_out(some: _Together, outcomes: list[SettlementOutcome]) -> None:
    wish, consumer = some.wish, some.consumer
    runs = runs_of(some.sequences)

    def command(session: int, token: Any) -> Command:
        if wish.verb == "extend":
            return Extend(session, token, consumer, runs, wish.ack_timeout_ms)
        return Settle(session, token, consumer, _SETTLEMENTS[wish.verb], runs, wish.delay_ms, wish.reason)

    expires_at = 0

    def heard(settled: SettledRuns) -> None:
        nonlocal expires_at
        if wish.verb != "extend":
            some.peer.session.settled(consumer, run_count(settled.runs))
        elif settled.runs:
            expires_at = some.peer.session.extended(consumer, wish.ack_timeout_ms)

    try:
        settled: SettledRuns = await some.peer.ask(command, heard)
    except VibeMQError as error:
        forget_frames(error)
        for index in some.indexes:
            outcomes[index].error = error
        return
    held = RunSet(sorted(settled.runs))
    for index, sequence in zip(some.indexes, some.sequences, strict=True):
        if sequence in held:
            outcomes[index].expires_at = expires_at
        else:
            outcomes[index].error = _over()


def read_wish(item: Any) -> SettlementWish:
    """Raises InvalidPayload."""
    if not isinstance(item, dict) or not isinstance(item.get("lease"), str):
        raise InvalidPayload('a settlement is {"lease": "…", "verb": "…"}, with the lease as the fetch has answered it')
    verb = item.get("verb")
    if not isinstance(verb, str) or verb not in VERBS:
        raise InvalidPayload(f"verb must be one of {', '.join(VERBS)}", "verb")
    for name in item:
        if name not in ("lease", "verb") and name not in VERBS[verb]:
            known = ", ".join(("lease", "verb", *sorted(VERBS[verb])))
            raise InvalidPayload(
                f"field {name[:40]!r} does not belong to {verb}, which has {known}; leave it out", name
            )
    reason = item.get("reason") or ""
    if not isinstance(reason, str) or len(reason) > REASON_MAX or not has_utf8(reason):
        raise InvalidPayload(f"reason must be text of at most {REASON_MAX:,} characters", "reason")
    return SettlementWish(
        verb,
        _number(item, "delay_ms", 0, DELAY_MS_MAX),
        reason,
        _number(item, "ack_timeout_ms", 1, ACK_TIMEOUT_MS_MAX),
    )


def _number(item: dict[str, Any], name: str, least: int, most: int) -> int | None:
    value = item.get(name)
    if value is not None and (type(value) is not int or not least <= value <= most):
        raise InvalidPayload(f"{name} must be a whole number from {least:,} to {most:,}", name)
    return value


def _ended() -> Problem:
    return gone("what this lease stands for was given back when the session of its user ended; it is handed out again")


def _over() -> Problem:
    return gone("the message is not held under this lease any more: it was settled, or its ack timeout is over")
