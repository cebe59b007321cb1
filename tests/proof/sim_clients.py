"""Publishers, consumers and an operator, at random: what they ask follows from (seed, life, step) alone.

A step that is left out changes the later ones as little as can be, so that a failing run can be shrunk step by step.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from tests.proof.sim_accounts import ACCOUNTANT, AccountOperator
from tests.proof.sim_jobs import FOREMAN, JobOperator
from tests.proof.sim_naive import Broken
from tests.proof.sim_readers import READER, Readers
from tests.proof.sim_stages import STAGER, StageOperator
from tests.proof.sim_world import World
from vibemq.model.commands import (
    CloseSession,
    CreateQueue,
    DeleteGroup,
    DeleteQueue,
    Publish,
    PurgeDead,
    PurgeQueue,
    ReplayDead,
    Settle,
    Settlement,
    Subscribe,
)
from vibemq.model.effects import ConsumerEnded, Deliver, Effect, Published, Reply
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode, Durability, Overflow, QueueOptions, Retention
from vibemq.model.rows import LargeRow, Rows, pack_row
from vibemq.model.runs import runs_of

PUBLISHERS = (1, 2, 3)
CONSUMERS = tuple(range(10, 16))
LARGE_PUBLISHER = 4
OPERATOR = 5
DEDUP_MS = 60_000
LARGE_SHARE = 0.1
MIXES = (
    (("async", 19), ("strong", 1)),
    (("async", 6), ("weak", 6), ("strong", 2), ("transient", 2)),
    (("weak", 10), ("async", 2)),
    (("strong", 1),),
    (("strong", 1), ("weak", 1)),
    (("async", 1),),
)
"""Shares of the policies in what is published; the first is the design's own worst case."""

_POLICY = {"async": Durability.ASYNC, "weak": Durability.WEAK, "strong": Durability.STRONG}
_POLICY["transient"] = Durability.TRANSIENT


@dataclass(slots=True)
class Held:
    queue_id: int
    group_id: int
    sequences: list[int] = field(default_factory=list)


def options_of(rng: random.Random, policy: str) -> QueueOptions:
    pick = rng.choice
    mode = pick([DeliveryMode.ROUND_ROBIN] * 4 + list(DeliveryMode))
    retention = Retention.LOG if rng.random() < 0.15 else Retention.SETTLED
    return QueueOptions(
        mode=mode,
        durability=_POLICY[policy],
        retention=retention,
        retain_messages=20 if retention is Retention.LOG else 0,
        max_attempts=pick([1, 2, 3]),
        dead_letter=rng.random() < 0.85,
        max_messages=pick([0, 0, 0, 25]),
        overflow=pick([Overflow.DROP_NEWEST, Overflow.DROP_OLDEST]),
        ack_timeout_ms=pick([2_000, 20_000]),
        retry_base_ms=200,
        retry_max_ms=1_000,
        dedup_window_ms=DEDUP_MS,
    )


class Clients:
    """All who are connected to one `World`. Dead with it."""

    def __init__(self, world: World, seed: str) -> None:
        self._world = world
        self._seed = seed
        plan = random.Random(seed)
        self._mix = plan.choice(MIXES)
        self._random = plan
        self._held: dict[tuple[int, int], Held] = {}
        self._written: list[tuple[int, int, int]] = []
        """(session, consumer, sequence) of what nobody acknowledges: the server settles it when it is written."""
        self._sent: list[tuple[str, bytes, Rows]] = []
        """(queue, dedup id, row) of publishes that may be sent again."""
        self._resent: dict[object, tuple[str, bytes]] = {}
        self._readers = Readers(world)
        self._accounts = AccountOperator(world)
        self._jobs = JobOperator(world)
        self._stages = StageOperator(world)
        for session in (*PUBLISHERS, LARGE_PUBLISHER, *CONSUMERS, OPERATOR, READER, ACCOUNTANT, FOREMAN, STAGER):
            world.connect(session, self._take)

    # -- what they hear -------------------------------------------------------------------------------------------

    def _take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Deliver():
                    self._delivered(effect)
                case ConsumerEnded():
                    self._held.pop((effect.session, effect.consumer), None)
                case Reply(token=token, result=Published() as result) if token in self._resent:
                    self._check_resent(*self._resent.pop(token), result)
                case Reply():
                    self._readers.hear(effect)

    def _delivered(self, effect: Deliver) -> None:
        """The server reads the rows now; so does this, and compares."""
        ledger = self._world.ledger
        for first, last in effect.runs:
            found: dict[int, bytes] = {}
            for part in self._world.provider.read(effect.queue_id, first, last, 1 << 20):
                found.update(enumerate(part.rows, part.first_sequence))
            # While a hand-out waits for its turn, its queue may go, a log may be trimmed, and what settles itself goes.
            alive = ledger.naive[ledger.last_lsn].alive(effect.queue_id)
            for sequence in range(first, last + 1):
                if sequence not in found and (sequence not in alive or effect.settled):
                    continue
                if found.get(sequence) != ledger.rows[effect.queue_id, sequence][0]:
                    raise Broken(f"message {sequence} of {effect.queue} was handed out with other bytes")
                if effect.settled:
                    ledger.may_settle.add((effect.queue_id, effect.group_id, sequence))
                    self._written.append((effect.session, effect.consumer, sequence))
                else:
                    key = (effect.session, effect.consumer)
                    held = self._held.setdefault(key, Held(effect.queue_id, effect.group_id))
                    held.sequences.append(sequence)

    def _check_resent(self, queue: str, dedup_id: bytes, result: Published) -> None:
        if not result.duplicates and not result.refused:
            raise Broken(f"{dedup_id!r} was published twice to {queue} within its window")

    # -- what they do ---------------------------------------------------------------------------------------------

    def step(self, number: int) -> None:
        rng = self._random = random.Random(f"{self._seed}/{number}")
        self._settle_written()
        # Dice of its own: what the others do stays as it is.
        self._accounts.step(random.Random(f"{self._seed}/{number}/accounts"))
        self._jobs.step(random.Random(f"{self._seed}/{number}/jobs"))
        self._publish_large(random.Random(f"{self._seed}/{number}/large"))
        self._stages.step(random.Random(f"{self._seed}/{number}/stages"))
        if self._world.aside:
            self._promise(random.Random(f"{self._seed}/{number}/promises"))
        actions = [self._publish] * 10 + [self._subscribe] * 3 + [self._settle] * 7 + [self._wait] * 4
        actions += [self._read_on] * 3
        actions += [self._resend, self._close, self._maintain, self._maintain, self._flood, self._beside_a_flush]
        if rng.random() < 0.25:
            actions = [self._create] * 3 + [self._replay] * 4 + [self._purge_dead, self._delete, self._purge]
            actions += [self._drop_group, self._compact, self._kill_checkpointer, self._kill_checkpointer]
        rng.choice(actions)()
        self._world.pass_time(rng.choice((0, 0, 1, 3, 10, 60)))

    def _promise(self, rng: random.Random) -> None:
        """Where appends take time, more of what is answered behind them and says that something is done."""
        strong = [name for name in self._names() if name.startswith("strong")]
        if not strong:
            self._world.ask(CreateQueue(OPERATOR, self._token(), "strong.1", options_of(rng, "strong")))
        elif rng.random() < 0.3:
            rows = Rows.of([self._row(20) for _ in range(3)])
            self._world.ask(Publish(PUBLISHERS[0], self._token(), rng.choice(strong), rows))
        else:
            self._readers.step(rng, self._token())

    def _token(self) -> str:
        return f"t{next(self._world.tokens)}"

    def _names(self) -> list[str]:
        return sorted(info.name for info in self._world.engine.queue_infos())

    def _some_queue(self) -> str | None:
        names = self._names()
        if len(names) < 3:
            self._create()
        if not names:
            return None
        policies, weights = zip(*self._mix, strict=True)
        policy = self._random.choices(policies, weights)[0]
        fitting = [name for name in names if name.startswith(policy)]
        return self._random.choice(fitting or names)

    def _create(self) -> None:
        rng = self._random
        policies = [policy for policy, _ in self._mix]
        have = {name.partition(".")[0] for name in self._names()}
        policy = rng.choice([p for p in policies if p not in have] or policies)
        name = f"{policy}.{rng.randint(1, 2)}"
        self._world.ask(CreateQueue(OPERATOR, self._token(), name, options_of(rng, policy)))

    def _row(self, size: int) -> bytes:
        # The id tells rows apart for ever: no two publishes of a run have the same bytes.
        return pack_row(f"m{next(self._world.tokens)}-{self._world.ledger.life}", self._random.randbytes(size))

    def _publish(self) -> None:
        rng = self._random
        queue = self._some_queue()
        if queue is None:
            return
        count = rng.choice((1, 1, 1, 2, 6, 20))
        rows = [self._row(rng.choice((0, 20, 60, 300, 700, 1_500 if count < 6 else 30))) for _ in range(count)]
        extras = {index: self._extra() for index in range(count) if rng.random() < 0.3}
        for index, extra in extras.items():
            if extra.dedup_id:
                self._sent.append((queue, extra.dedup_id, Rows.of([rows[index]])))
        self._world.ask(Publish(rng.choice(PUBLISHERS), self._token(), queue, Rows.of(rows), extras or None))

    def _publish_large(self, rng: random.Random) -> None:
        """A row that is written ahead of its record, now and then; some are never asked for, as when a peer goes."""
        names = self._names()
        if not names or rng.random() >= LARGE_SHARE:
            return
        message_id = f"l{next(self._world.tokens)}-{self._world.ledger.life}"
        row = LargeRow(pack_row(message_id, rng.randbytes(rng.choice((2_100, 3_500, 9_000)))))
        wanted = rng.random() < 0.9
        self._world.ask_large(Publish(LARGE_PUBLISHER, self._token(), rng.choice(names), row) if wanted else None, row)

    def _flood(self) -> None:
        """Several segments within one moment, flushed by nobody unless their policy asks for it."""
        queue = self._some_queue()
        for _ in range(self._random.randint(4, 12) if queue is not None else 0):
            rows = Rows.of([self._row(self._random.choice((600, 1_500, 3_000)))])
            self._world.ask(Publish(PUBLISHERS[0], self._token(), queue or "", rows))
            self._world.pass_time(0)

    def _beside_a_flush(self) -> None:
        """What comes while a flush runs is not covered by it: neither told of nor left alone as if it were."""
        rng, names = self._random, self._names()
        strong = [name for name in names if name.startswith("strong")]
        late = [name for name in names if name.startswith(rng.choice(("strong", "weak", "weak")))]
        if not strong or not late:
            return
        self._world.ask(Publish(PUBLISHERS[0], self._token(), rng.choice(strong), Rows.of([self._row(20)])))
        self._world.pass_time(0)  # its flush has begun, and stands in the middle
        queue, dedup_id, rows = rng.choice(late), self._new_dedup_id(), Rows.of([self._row(20)])
        extras = {0: MessageExtra(dedup_id=dedup_id)}
        self._sent.append((queue, dedup_id, rows))
        self._world.ask(Publish(PUBLISHERS[1], self._token(), queue, rows, extras))
        self._world.pass_time(rng.choice((0, 1, 2, 5)))
        if rng.random() < 0.5:
            self._world.ask(Publish(PUBLISHERS[2], self._token(), queue, rows, extras))
            self._world.pass_time(0)
            self._publish()  # a write, and so a moment that is photographed, while the second flush may still run
        self._world.pass_time(rng.choice((0, 20, 700, 700)))

    def _new_dedup_id(self) -> bytes:
        return b"d%d-%d" % (next(self._world.tokens), self._world.ledger.life)

    def _extra(self) -> MessageExtra:
        pick, now = self._random.choice, self._world.clock.now()
        return MessageExtra(
            priority=pick((1, 1, 0, 2, 3)),
            expires_at=pick((0, 0, 0, now + 2_000)),
            deliver_at=pick((0, 0, 0, now + 700)),
            dedup_id=self._new_dedup_id() if pick((0, 1)) else b"",
        )

    def _resend(self) -> None:
        """As a client does that heard no confirm. Within its window the second must not count."""
        if not self._sent:
            return
        queue, dedup_id, rows = self._random.choice(self._sent)
        if queue not in self._names():
            return
        token = self._token()
        naive = self._world.ledger.naive[self._world.ledger.last_lsn]
        for known in naive.queues.values():
            entry = known.dedup.get(dedup_id) if known.name == queue and not known.deleted else None
            if entry is not None and entry[1] > self._world.clock.now() - DEDUP_MS:
                self._resent[token] = (queue, dedup_id)
        extras = {0: MessageExtra(dedup_id=dedup_id)}
        self._world.ask(Publish(self._random.choice(PUBLISHERS), token, queue, rows, extras))

    def _subscribe(self) -> None:
        queue = self._some_queue()
        if queue is None:
            return
        pick = self._random.choice
        command = Subscribe(
            pick(CONSUMERS),
            self._token(),
            pick((1, 2)),
            queue,
            group=pick((None, None, "g", "h")),
            capacity_messages=pick((1, 5, 30)),
        )
        self._world.ask(command)

    def _settle(self) -> None:
        rng = self._random
        if not self._held:
            return
        key = rng.choice(sorted(self._held))
        held = self._held[key]
        count = min(len(held.sequences), rng.randint(1, 12))
        chosen = [held.sequences.pop(rng.randrange(len(held.sequences))) for _ in range(count)]
        if not held.sequences:
            del self._held[key]
        verb = rng.choice([Settlement.ACK] * 4 + [Settlement.RETRY, Settlement.RELEASE, Settlement.REJECT])
        if verb is Settlement.ACK:
            self._world.ledger.may_settle.update((held.queue_id, held.group_id, s) for s in chosen)
            self._world.ledger.counts.settled += len(chosen)
        delay = rng.choice((None, 0, 300))
        runs = [(s, s) for s in chosen]
        self._world.ask(Settle(*key[:1], self._token(), key[1], verb, runs, delay_ms=delay, reason="no"))

    def _settle_written(self) -> None:
        written, self._written = self._written, []
        for (session, consumer), found in groupby(written, itemgetter(0, 1)):
            runs = runs_of(sequence for _, _, sequence in found)
            self._world.ask(Settle(session, None, consumer, Settlement.ACK, runs))

    def _read_on(self) -> None:
        self._readers.step(self._random, self._token())

    def _close(self) -> None:
        session = self._random.choice(CONSUMERS)
        for key in [key for key in self._held if key[0] == session]:
            del self._held[key]
        self._world.ask(CloseSession(session, self._random.random() < 0.5))

    def _wait(self) -> None:
        self._world.pass_time(self._random.choice((20, 100, 500, 1_500)))

    # -- the operator ---------------------------------------------------------------------------------------------

    def _letters(self) -> dict[int, int]:
        """dead_id -> queue_id."""
        return {letter.facts.dead_id: letter.queue_id for letter in self._world.provider.dead_letters(limit=50)}

    def _replay(self) -> None:
        queue = self._some_queue()
        letters = self._world.provider.dead_letters(limit=50)
        if queue is None or not letters or queue.startswith("transient"):
            return  # what goes into a transient queue is gone with the next restart, as its policy says
        some = self._random.sample(letters, min(len(letters), self._random.randint(1, 4)))
        ids = [letter.facts.dead_id for letter in some]
        # The engine knows which letters are gone already although storage was not told yet.
        origins = {letter.facts.dead_id: letter.queue_id for letter in some}
        rows = Rows.of([self._row(40) for _ in some])
        self._world.ledger.counts.replayed += len(some)
        step = self._jobs.step_of(random.Random(f"{self._seed}/{ids}"), ids)
        self._world.ask(ReplayDead(OPERATOR, self._token(), queue, ids, rows, None, origins, step=step))

    def _purge_dead(self) -> None:
        letters = dict(list(self._letters().items())[:2])
        if letters:
            step = self._jobs.step_of(random.Random(f"{self._seed}/{letters}"), list(letters))
            self._world.ask(PurgeDead(OPERATOR, self._token(), list(letters), letters, step=step))

    def _purge(self) -> None:
        queue = self._some_queue()
        if queue is not None:
            self._world.ask(PurgeQueue(OPERATOR, self._token(), queue), before_step=lambda: self._may_vanish(queue))

    def _delete(self) -> None:
        queue = self._some_queue()
        if queue is not None:
            self._world.ask(DeleteQueue(OPERATOR, self._token(), queue))

    def _drop_group(self) -> None:
        queue = self._some_queue()
        if queue is not None:
            self._world.ask(DeleteGroup(OPERATOR, self._token(), queue, self._random.choice(("g", "h"))))

    def _may_vanish(self, name: str) -> None:
        ledger = self._world.ledger
        for queue in self._world.engine._state.queues.values():
            if queue.name == name:
                groups = queue.groups.values()
                ledger.may_settle.update((queue.queue_id, g.group_id, s) for g in groups for s in g.unsettled_set())

    # -- the machine ----------------------------------------------------------------------------------------------

    def _maintain(self) -> None:
        machinery = self._world.machinery
        worker = machinery.crew.start(self._world.provider.maintain)

        def done() -> None:
            if worker.error is not None:
                raise worker.error

        machinery.drive(worker, done)

    def _compact(self) -> None:
        self._world.settle_down()
        self._world.provider.compact()

    def _kill_checkpointer(self) -> None:
        """In the middle of its work, if it has any; the next one starts at once."""
        self._maintain()
        self._world.pass_time(self._random.choice((0, 1, 3, 6)))
        self._world.kill_checkpointer()
        self._maintain()
