"""Owners of cursors, at random: they join, acknowledge, reject and quarantine, and fence each other off.

Only on strong queues: a weak one leaves a gap of millions of sequences behind a restart, which a model of sets of
single sequences cannot hold. Readers of those have lives of their own: `ranges` in engine_sim.py.
"""

import random
from typing import Any

from tests.proof.sim_naive import Broken
from tests.proof.sim_world import World
from vibemq.errors import GroupFenced
from vibemq.model.commands import CommitCursor, JoinCursor, Quarantine, RejectAt, StartAt
from vibemq.model.effects import CursorInfo, Reply

READER = 6
GROUPS = ("r", "s")
Name = tuple[str, str]
"""(queue, group)."""


class Readers:
    """All owners of one life. What they know is what they were told, old news included."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[Name, CursorInfo] = {}
        self._asked: dict[Any, tuple[Name, int | None]] = {}
        """Token -> whose, and the epoch it was asked with."""

    def hear(self, reply: Reply) -> None:
        asked = self._asked.pop(reply.token, None)
        if asked is None:
            return
        name, epoch = asked
        known = self._known.get(name)
        if isinstance(reply.result, CursorInfo):
            if known is not None and known.incarnation == reply.result.incarnation:
                self._check(name, known, reply.result)
            self._known[name] = reply.result
        elif isinstance(reply.result, Exception):
            fenced = isinstance(reply.result, GroupFenced)
            if fenced and known is not None and known.epoch == epoch and name not in self._moved():
                raise Broken(f"{name} was fenced off with the epoch it has")
            if not fenced:
                self._known.pop(name, None)

    def _check(self, name: Name, before: CursorInfo, after: CursorInfo) -> None:
        if after.epoch < before.epoch or (after.epoch == before.epoch and after.committed < before.committed):
            raise Broken(f"the cursor {name} went back from {before.committed} to {after.committed}")

    def _moved(self) -> set[Name]:
        """Cursors whose newest owner has not been told yet."""
        return {name for name, _ in self._asked.values()}

    # -- what they do ---------------------------------------------------------------------------------------------

    def step(self, rng: random.Random, token: str) -> None:
        queues = [info.name for info in self._world.engine.queue_infos() if info.name.startswith("strong")]
        if not queues:
            return
        name = rng.choice(queues), rng.choice(GROUPS)
        known = self._known.get(name)
        if known is None or rng.random() < 0.15:
            self._join(rng, token, name)
            return
        rng.choice([self._commit] * 5 + [self._reject] * 2 + [self._quarantine])(rng, token, name, known)

    def _join(self, rng: random.Random, token: str, name: Name) -> None:
        queue, group = name
        start = rng.choice((StartAt.BEGINNING, StartAt.BEGINNING, StartAt.NOW))
        command = JoinCursor(READER, token, queue, group, start, owner="reader", hold_ms=rng.choice((None, 0, 400)))
        self._asked[token] = name, None
        self._world.ask(command)

    def _commit(self, rng: random.Random, token: str, name: Name, known: CursorInfo) -> None:
        below = known.committed + rng.choice((1, 1, 3, 10, 100))
        self._may_settle(name, below)
        self._asked[token] = name, known.epoch
        self._world.ask(CommitCursor(READER, token, *name, known.epoch, below))

    def _reject(self, rng: random.Random, token: str, name: Name, known: CursorInfo) -> None:
        rejects = [(known.committed + rng.randrange(8), rng.choice(("bad", "worse"))) for _ in range(rng.randint(1, 3))]
        self._asked[token] = name, known.epoch
        self._world.ask(RejectAt(READER, token, *name, rejects, rng.choice((None, known.epoch))))

    def _quarantine(self, rng: random.Random, token: str, name: Name, known: CursorInfo) -> None:
        first = known.committed + rng.randrange(8)
        self._asked[token] = name, None
        self._world.ask(Quarantine(READER, token, *name, [(first, first + rng.randrange(3))]))

    def _may_settle(self, name: Name, below: int) -> None:
        ledger = self._world.ledger
        for queue in self._world.engine._state.queues.values():
            if queue.name == name[0]:
                groups = [group for group in queue.groups.values() if group.name == name[1]]
                ledger.may_settle.update((queue.queue_id, g.group_id, s) for g in groups for s in range(1, below))
