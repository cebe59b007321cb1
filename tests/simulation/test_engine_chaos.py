"""Everything at once, at random: all commands, full disks, crashes. Checked are the promises that hold always.

- the law of conservation, and every message in one place
- with nothing on its way, the reducer's state and the engine agree on every group
- what is handed out can be read: its row is stored and alive once the outcome's records are applied
- every command is answered exactly once, and a confirmed message is never lost without a trace
- a change of users is on the disk when it is answered, and not when it was refused
"""

import random
from typing import Any

import pytest

from tests.short_steps import steps_of
from tests.simulation.engine_driver import Driver, rows_of, sequences
from vibemq.engine import EngineSettings
from vibemq.errors import VibeMQError
from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.commands import (
    ChangeAccounts,
    ChangeJob,
    ChangeQueue,
    CloseSession,
    Command,
    CreateQueue,
    DeleteGroup,
    DeleteQueue,
    Extend,
    ForgetMade,
    GiveUp,
    Pressure,
    Publish,
    PurgeDead,
    PurgeQueue,
    RemoveMessages,
    ReplayDead,
    Requester,
    Respond,
    SeekGroup,
    SetCapacity,
    SetFlow,
    SetPressure,
    SetShare,
    Settle,
    Settlement,
    SharedCapacity,
    StartAt,
    StartJob,
    Subscribe,
    Unsubscribe,
)
from vibemq.model.effects import ConsumerEnded, Deliver, Effect, Published, Reply, Responded
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.jobs.job import JobKind, JobPlan, JobState, JobStep
from vibemq.model.options import (
    DeliveryMode,
    Durability,
    LostConnection,
    Overflow,
    QueueOptions,
    Retention,
)
from vibemq.model.records import MessagesAdded, TokenRemoved, TokenStored, UserRemoved, UserStored
from vibemq.model.steps import at_once
from vibemq.storage.state.liveness import is_alive

QUEUES = ["q1", "q2", "q3"]


class Chaos:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.driver = Driver(EngineSettings(block_timeout_ms=3_000), jitter=self.random.random)
        self.driver.watch = self.watch
        self.open: dict[str, Command] = {}
        self.held: dict[tuple[int, int], list[int]] = {}
        self.consumers: dict[tuple[int, int], str] = {}
        self.number = 0
        self.removing: set[str] = set()
        """Users whose removal was asked for."""
        self.users: set[str] = set()
        """As the answers say."""
        self.users_changed = 0
        self.asked: dict[str, int] = {}
        """Requests that wait, with their sessions."""
        self.left: set[str] = set()
        """Requests that were refused, or whose sessions have closed: they may be told of once more."""

    def live(self, steps: int) -> None:
        for step in range(steps):
            self.driver.now += self.random.choice([0, 1, 50, 700])
            self.driver.hold = self.random.random() < 0.6
            if self.random.random() < 0.5:
                self.driver.tick()
            chance = self.random.random()
            if chance < 0.10:
                self.driver.keep(self.random.choice([1, None]))
            elif chance < 0.13:
                self.driver.refuse()
            elif chance < 0.14 and step > 50:
                self.crash()
            else:
                self.driver.handle(*self.batch())
            self.driver.check()
        self.driver.hold = False
        self.driver.keep()
        self.driver.advance(10_000)
        self.driver.check()
        assert not self.open, "left without an answer"
        assert not self.asked, f"requests without an end: {sorted(self.asked)}"

    def crash(self) -> None:
        self.driver.keep(self.random.randrange(3))
        self.open.clear()
        self.held.clear()
        self.consumers.clear()
        self.asked.clear()
        self.driver.restart(down_ms=self.random.choice([0, 5_000]))
        self.check_whole_users()

    # -- what the engine tells ------------------------------------------------------------------------------------

    def watch(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply():
                    command = self.open.pop(effect.token)
                    self.check_reply(command, effect.result)
                case ConsumerEnded():
                    self.held.pop((effect.session, effect.consumer), None)
                    self.consumers.pop((effect.session, effect.consumer), None)
                case Responded():
                    address = effect.token.removeprefix("request ")
                    assert address in self.asked or address in self.left, f"request {address} has ended twice"
                    self.asked.pop(address, None)
                    self.left.discard(address)
                case Deliver():
                    self.check_readable(effect)
                    if not effect.settled:
                        key = (effect.session, effect.consumer)
                        self.held.setdefault(key, []).extend(sequences(effect.runs))

    def check_reply(self, command: Command, result: Any) -> None:
        if isinstance(command, Publish) and command.requester is not None:
            refused = isinstance(result, VibeMQError) or bool(result.refused)
            if refused and self.asked.pop(command.requester.address, None) is not None:
                # What became of it before its refusal was known may still be told; the first word counts.
                self.left.add(command.requester.address)
        if isinstance(command, ChangeAccounts):
            self.check_users(command, taken=not isinstance(result, VibeMQError))
        if isinstance(result, VibeMQError):
            return
        if isinstance(command, Publish):
            assert isinstance(result, Published)
            refused, duplicates = result.refused or {}, result.duplicates or {}
            assert not refused.keys() & duplicates.keys()
            assert bool(result.first_sequence) == (len(refused) + len(duplicates) < command.rows.count)

    def check_users(self, command: ChangeAccounts, *, taken: bool) -> None:
        disk, wanted = self.driver.disk, command.records[-1]
        if isinstance(wanted, UserStored):
            name, token = wanted.user.name, command.records[0]
            assert isinstance(token, TokenStored)
            is_there = name in disk.users and token.token.token_id in disk.tokens
            assert is_there == taken or (taken and name in self.removing), f"{name} was answered with {taken}"
        else:
            assert isinstance(wanted, UserRemoved)
            assert (wanted.name in disk.users) != taken, f"the removal of {wanted.name} was answered with {taken}"
        self.users_changed += taken
        if taken:
            (self.users.discard if isinstance(wanted, UserRemoved) else self.users.add)(name_of(wanted))

    def check_whole_users(self) -> None:
        """Every user has its token, as they were stored together; and there are those of whom the answers said so."""
        assert self.driver.disk.users.keys() == self.users, "what a full disk has refused is in force after a restart"
        assert {token.user for token in self.driver.disk.tokens.values()} == self.driver.disk.users.keys()

    def check_readable(self, deliver: Deliver) -> None:
        """As the server would find it after appending everything made so far."""
        queue = self.driver.engine._state.queues_by_id[deliver.queue_id]
        stored = self.driver.disk.queues.get(deliver.queue_id)
        coming = {
            sequence
            for outcome in [*self.driver.waiting, *self.driver.submitting]
            for record in outcome.records
            if isinstance(record, MessagesAdded) and record.queue_id == deliver.queue_id
            for sequence in range(record.first_sequence, record.first_sequence + record.rows.count)
        }
        for sequence in sequences(deliver.runs):
            if sequence not in coming:
                assert stored is not None
                assert is_alive(stored, sequence), f"{queue.name}: {sequence} cannot be read"
                assert sequence in self.driver.rows[deliver.queue_id]

    # -- commands -------------------------------------------------------------------------------------------------

    def batch(self) -> list[Command]:
        if self.random.random() < 0.04:
            return [self.close()]
        return [self.command() for _ in range(self.random.choice([1, 1, 1, 3]))]

    def command(self) -> Command:
        makers = [self.publish] * 6 + [self.subscribe] * 3 + [self.settle] * 6 + [self.unsubscribe]
        makers += [
            self.flow,
            self.capacity,
            self.share,
            self.extend,
            self.request,
            self.request,
            self.respond,
            self.give_up,
        ]
        if self.random.random() < 0.15:
            makers = [self.create, self.delete, self.change, self.purge, self.remove, self.drop_group, self.seek]
            makers += [self.replay, self.purge_dead, self.pressure]
        if self.random.random() < 0.08:
            makers = [self.start_job, self.change_job, self.replay, self.purge_dead, self.replay, self.purge_dead]
            makers.append(self.forget_made)
        if self.random.random() < 0.05:
            makers = [self.add_user, self.add_user, self.remove_user]
        return self.random.choice(makers)()

    def token(self, command: Any) -> Any:
        self.number += 1
        command.token = f"t{self.number}"
        self.open[command.token] = command
        return command

    def queue(self) -> str:
        return self.random.choice(QUEUES)

    def publish(self) -> Command:
        count = self.random.choice([1, 1, 3, 10])
        extras = {index: self.extra() for index in range(count) if self.random.random() < 0.4}
        rows = rows_of(count, self.random.choice([10, 200]))
        return self.token(Publish(self.random.choice([1, 2]), None, self.queue(), rows, extras or None))

    def extra(self) -> MessageExtra:
        now, pick = self.driver.now, self.random.choice
        return MessageExtra(
            priority=pick([0, 1, 1, 2, 3]),
            expires_at=pick([0, 0, now + 500]),
            deliver_at=pick([0, 0, now + 900]),
            dedup_id=pick([b"", b"", b"a", b"b", b"%d" % self.number]),
        )

    def subscribe(self) -> Command:
        pick = self.random.choice
        key = (self.random.randint(10, 16), self.random.randint(1, 2))
        queue = self.queue()
        self.consumers[key] = queue
        return self.token(
            Subscribe(
                key[0],
                None,
                key[1],
                queue,
                group=pick([None, None, "g", "h"]),
                capacity_messages=pick([None, 0, 1, 5]),
                capacity_bytes=pick([0, 0, 300]),
                share=pick([None, SharedCapacity("s"), SharedCapacity("t", 3, 200)]),
                credit=pick([None, None, 7]),
                priority=pick([0, 0, 1]),
                ack_timeout_ms=pick([None, 0, 1_000]),
                start=pick(list(StartAt)),
                start_sequence=self.random.randint(0, 60),
            )
        )

    def request(self) -> Command:
        """Of sessions that ask only; each hears of it once, unless it is refused or closed."""
        self.number += 1
        address = f"{self.number}"
        self.asked[address] = session = self.random.randint(20, 23)
        timeout_ms = self.random.choice([50, 400, 3_000])
        extras = {0: self.extra()._replace(dedup_id=b"")}
        requester = Requester(address, f"request {address}", timeout_ms)
        return self.token(Publish(session, None, self.queue(), rows_of(1), extras, requester=requester))

    def respond(self) -> Command:
        address = self.random.choice(list(self.asked)) if self.asked else "nobody"
        return self.token(Respond(30, None, address, rows_of(1)))

    def give_up(self) -> Command:
        address = self.random.choice(list(self.asked)) if self.asked else "nobody"
        session = self.asked.pop(address, 20)
        # Its message may have failed already, which a full disk puts off.
        self.left.add(address)
        return self.token(GiveUp(session, None, address))

    def key(self) -> tuple[int, int]:
        return self.random.choice(list(self.consumers)) if self.consumers else (99, 1)

    def settle(self) -> Command:
        key = self.key()
        held = self.held.get(key, [])
        chosen = [held.pop(self.random.randrange(len(held))) for _ in range(min(len(held), self.random.randint(1, 6)))]
        runs = [(s, s) for s in chosen] or [(1, 3)]
        delay = self.random.choice([None, 0, 400])
        verb = self.random.choice([Settlement.ACK] * 4 + list(Settlement))
        return self.token(Settle(key[0], None, key[1], verb, runs, delay_ms=delay, reason="because"))

    def extend(self) -> Command:
        key = self.key()
        return self.token(Extend(*key[:1], None, key[1], [(1, self.random.randint(1, 80))], 2_000))

    def unsubscribe(self) -> Command:
        key = self.key()
        return self.token(Unsubscribe(key[0], None, key[1]))

    def capacity(self) -> Command:
        key = self.key()
        pick = self.random.choice
        return self.token(SetCapacity(key[0], None, key[1], pick([0, 2, 20]), pick([0, 100]), pick([0, 0, 3])))

    def share(self) -> Command:
        pick = self.random.choice
        session = self.random.randint(10, 16)
        return self.token(SetShare(session, None, pick(["s", "t"]), pick([0, 1, 2, 20]), pick([0, 0, 100])))

    def flow(self) -> Command:
        return SetFlow(self.random.randint(10, 16), self.random.random() < 0.7)

    def close(self) -> Command:
        session = self.random.choice([1, 2, *range(10, 17), *range(20, 24)])
        for address in [address for address, asking in self.asked.items() if asking == session]:
            del self.asked[address]
            self.left.add(address)
        for key in [key for key in self.consumers if key[0] == session]:
            del self.consumers[key]
            self.held.pop(key, None)
        for token in [t for t, c in self.open.items() if isinstance(c, Publish) and c.session == session]:
            # A parked publish of a gone session is not answered.
            if any(p.token == token for q in self.driver.engine._state.parking for p in q.parked):
                del self.open[token]
        return CloseSession(session, self.random.random() < 0.5)

    def create(self) -> Command:
        pick = self.random.choice
        options = QueueOptions(
            mode=pick(list(DeliveryMode)),
            durability=pick(list(Durability)),
            retention=pick(list(Retention)),
            overflow=pick([Overflow.DROP_OLDEST, Overflow.DROP_NEWEST, Overflow.BLOCK_PUBLISHER]),
            max_messages=pick([0, 15]),
            max_bytes=pick([0, 0, 2_000]),
            message_ttl_ms=pick([None, 3_000]),
            dead_letter=pick([True, False]),
            max_attempts=pick([1, 3]),
            ack_timeout_ms=pick([0, 2_000]),
            lost_connection=pick(list(LostConnection)),
            retain_ms=pick([0, 4_000]),
            retain_messages=pick([0, 30]),
            retain_bytes=pick([0, 3_000]),
        )
        return self.token(CreateQueue(3, None, self.queue(), options, must_match=pick([True, False])))

    def change(self) -> Command:
        options = [{"max_messages": 8}, {"max_messages": 0}, {"durability": "weak"}, {"overflow": "redirect_to_dlq"}]
        return self.token(ChangeQueue(3, None, self.queue(), self.random.choice(options)))

    def delete(self) -> Command:
        return self.token(DeleteQueue(3, None, self.queue()))

    def purge(self) -> Command:
        return self.token(PurgeQueue(3, None, self.queue()))

    def remove(self) -> Command:
        first = self.random.randint(1, 60)
        return self.token(RemoveMessages(3, None, self.queue(), [(first, first + 5)]))

    def drop_group(self) -> Command:
        return self.token(DeleteGroup(3, None, self.queue(), self.random.choice(["g", "h", ""])))

    def seek(self) -> Command:
        start = self.random.choice(list(StartAt))
        group = self.random.choice(["g", "h", ""])
        return self.token(SeekGroup(3, None, self.queue(), group, start, self.random.randint(0, 60)))

    def letters(self) -> dict[int, int]:
        chosen = self.random.sample(sorted(self.driver.dead.entries), min(2, len(self.driver.dead.entries)))
        return {dead_id: self.driver.dead.entries[dead_id].queue_id for dead_id in chosen}

    def replay(self) -> Command:
        letters = self.letters()
        rows = rows_of(len(letters))
        command = ReplayDead(3, None, self.queue(), list(letters), rows, None, letters, step=self.job_step(letters))
        return self.token(command)

    def purge_dead(self) -> Command:
        letters = self.letters()
        return self.token(PurgeDead(3, None, list(letters), letters, step=self.job_step(letters)))

    def job_step(self, letters: dict[int, int]) -> JobStep | None:
        """Of some job, whether or not it runs; it is refused when it does not."""
        jobs = list(self.driver.engine.jobs.by_id)
        if not jobs or self.random.random() < 0.3:
            return None
        cursor = self.random.choice([0, max(letters, default=0)])
        return JobStep(self.random.choice(jobs), cursor, len(letters), 0)

    def start_job(self) -> Command:
        pick = self.random.choice
        plan = JobPlan(
            kind=JobKind.REPLAY,
            filter={},
            last_id=1 << 40,
            limit=pick([0, 5]),
            canary=pick([0, 0, 2]),
            stop_after_dead_again=pick([0, 0, 1, 3]),
            key=pick(["", "", "a"]),
        )
        return self.token(StartJob(3, None, plan))

    def forget_made(self) -> Command:
        number = self.random.choice([*self.driver.engine.jobs.by_id, 1])
        return self.token(ForgetMade(3, None, number, at_once(self.driver.engine.settled(number))))

    def change_job(self) -> Command:
        state = self.random.choice([JobState.PAUSED, JobState.RUNNING, JobState.RUNNING, JobState.CANCELLED])
        number = self.random.choice([*self.driver.engine.jobs.by_id, 1])
        return self.token(ChangeJob(3, None, number, state, by=self.random.choice(["ann", ""])))

    def add_user(self) -> Command:
        now, name = self.driver.now, f"user-{self.number}"
        token = StoredToken(f"token of {name}", name, b"", b"", "", now, 0, 0)
        records = [TokenStored(token), UserStored(StoredUser(name, "", False, (), now, now))]
        return self.token(ChangeAccounts(3, None, records))

    def remove_user(self) -> Command:
        left = sorted(self.driver.disk.users.keys() - self.removing)
        if not left:
            return self.add_user()
        name = self.random.choice(left)
        self.removing.add(name)
        return self.token(ChangeAccounts(3, None, [TokenRemoved(f"token of {name}"), UserRemoved(name)]))

    def pressure(self) -> Command:
        return SetPressure(self.random.choice([*list(Pressure), Pressure.NONE, Pressure.NONE]))


@pytest.mark.parametrize("seed", range(24))
def test_the_promises_hold_whatever_happens(seed: int) -> None:
    Chaos(seed).live(200)


@pytest.mark.parametrize("seed", [*range(8), 176])
def test_the_promises_hold_where_two_groups_are_very_many(seed: int) -> None:
    with steps_of(2):
        Chaos(seed).live(200)


def name_of(record: UserStored | UserRemoved) -> str:
    return record.user.name if isinstance(record, UserStored) else record.name


class FullDisk(Chaos):
    """Outcomes that build on each other fail in series, and some time after they were decided."""

    def live(self, steps: int) -> None:
        for step in range(steps):
            self.driver.hold = True
            for _ in range(self.random.randint(2, 6)):
                self.driver.handle(*self.batch())
                if self.random.random() < 0.3:
                    self.driver.tick()
            if self.random.random() < 0.5:
                self.driver.now += self.random.choice([0, 50, 700])
                self.random.choice([self.driver.refuse, self.driver.refuse_for_good])()
                self.driver.check()
            self.driver.hold = False
            self.driver.keep()
            self.driver.advance(self.random.choice([0, 2_000]))
            self.driver.check()
            if step % 10 == 9:
                self.crash()
                self.driver.check()

    def command(self) -> Command:
        makers = [self.create, self.publish, self.publish, self.publish, self.more, self.more, self.settle]
        return self.random.choice(makers)() if self.random.random() < 0.8 else super().command()

    def publish(self) -> Command:
        command = super().publish()
        assert isinstance(command, Publish)
        until = self.driver.now + 500
        command.extras = {n: MessageExtra(expires_at=until) for n in range(command.rows.count)}
        return command

    def more(self) -> Command:
        """A consumer that has just come, or asks for more."""
        if self.consumers and self.random.random() < 0.5:
            key = max(self.consumers)
            return self.token(SetCapacity(key[0], None, key[1], 20, 0, 0))
        return self.subscribe()

    def subscribe(self) -> Command:
        command: Any = super().subscribe()
        del self.consumers[command.session, command.consumer]
        self.number += 1
        command.session, command.consumer, command.share = 100 + self.number, 1, None
        self.consumers[command.session, 1] = command.queue
        return command


@pytest.mark.parametrize("seed", [*range(4), 6, 27, 43, 60, 61, 80])
def test_disk_and_engine_agree_when_outcomes_fail_in_series(seed: int) -> None:
    FullDisk(seed).live(40)


def test_users_change_too() -> None:
    chaos = Chaos(3)
    chaos.live(200)
    assert chaos.users_changed > 3
    assert chaos.removing
