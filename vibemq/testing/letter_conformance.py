"""What `IStorageProvider` promises of the index of dead letters, as checks that any provider must pass.

The index is compared with what looking at all letters says, while letters come and go, between two checkpoints, behind
them and after restarts.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from vibemq.model.dead.fingerprint import OTHER, fingerprint, sample_of
from vibemq.model.dead.groups import GROUPS_MAX, DeadGroup, DeadGroupPage, DeadGroupsWanted, GroupKey, LetterChoice
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.records import (
    ALL_GROUPS,
    DeadFacts,
    DeadLettered,
    DeadRemoved,
    GroupCreated,
    MessagesAdded,
    QueueCreated,
    QueueDeleted,
    Reason,
    Record,
)
from vibemq.model.stored import DeadPage, DeadPageWanted
from vibemq.storage.interface import IStorageProvider
from vibemq.testing.storage_conformance import Check, Subject
from vibemq.testing.storage_workload import rows

ERRORS = ("order {n} is unknown", "timeout after {n} ms", "no stock", "'c{n}' has no address\n  at {n}", "über {n}", "")
REASONS = (Reason.MAX_ATTEMPTS, Reason.EXPIRED, Reason.REJECTED)
TRANSIENT_QUEUE = 3
NAMES = {1: "a", 2: "b", TRANSIENT_QUEUE: "t", 4: "a"}
"""The fourth has the name of the first; it is deleted and leaves its letters."""
ROUNDS = 12
TOO_MANY = GROUPS_MAX + 7


@dataclass
class Letters:
    """Every dead letter there is, and nothing clever."""

    there: dict[int, tuple[int, DeadFacts]] = field(default_factory=dict)
    samples: dict[int, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    next_id: int = 1
    now: int = 1_000
    deleted: set[int] = field(default_factory=set)
    options: QueueOptions = field(default_factory=QueueOptions)

    def groups(self, fits: Callable[[GroupKey], bool]) -> dict[GroupKey, tuple[int, int, int, int, int]]:
        found: dict[GroupKey, list[DeadFacts]] = defaultdict(list)
        for _, (queue_id, facts) in sorted(self.there.items()):
            key = GroupKey(queue_id, int(facts.reason), fingerprint(facts.error))
            if fits(key):
                found[key].append(facts)
        return {
            key: (len(some), some[0].dead_id, some[0].dead_at, some[-1].dead_id, some[-1].dead_at)
            for key, some in found.items()
        }

    def ids(self, wanted: DeadPageWanted) -> list[int]:
        choice = wanted.choice
        found = [
            dead_id
            for dead_id, (queue_id, facts) in sorted(self.there.items())
            if wanted.after < dead_id < wanted.below
            and choice.since <= facts.dead_at <= choice.until
            and (choice.queue_ids is None or queue_id in choice.queue_ids)
            and choice.reason in (None, facts.reason)
            and choice.fingerprint in (None, fingerprint(facts.error))
        ]
        return found[::-1] if wanted.newest_first else found


def check_the_index_says_what_all_letters_say(subject: Subject) -> None:
    random = Random(subject.name)  # noqa: S311 - it must come out the same each time
    letters = Letters()
    if not subject.durable:
        letters.options = QueueOptions(durability=Durability.TRANSIENT)
    for opened in range(4):
        with subject.opened() as (storage, state):
            if not opened:
                storage.append(list(_queues(subject)))
            elif not subject.durable:
                return
            # What is transient is gone, and its sequences begin elsewhere.
            letters.there = {n: one for n, one in letters.there.items() if one[0] != TRANSIENT_QUEUE}
            assert state.dead_count == len(letters.there)
            sequences = dict.fromkeys(NAMES, 1) | {q.queue_id: q.next_sequence for q in state.queues.values()}
            for _ in range(ROUNDS):
                _change(random, storage, letters, sequences)
                _compare(random, storage, letters)
            assert list(storage.check()) == []


def _queues(subject: Subject) -> Iterator[Record]:
    for queue_id, name in list(NAMES.items())[:3]:
        transient = queue_id == TRANSIENT_QUEUE or not subject.durable
        options = QueueOptions(durability=Durability.TRANSIENT if transient else Durability.STRONG)
        yield QueueCreated(queue_id, name, options, 1_000, f"{queue_id:032x}")
        yield GroupCreated(queue_id, 0, "", True, 1)


def _change(random: Random, storage: IStorageProvider, letters: Letters, sequences: dict[int, int]) -> None:
    """One of: letters die, letters go, a queue is deleted, a checkpoint. `sequences`: the next one of each queue."""
    match random.choice(("die", "die", "die", "go", "go", "upkeep", "checkpoint", "delete")):
        case "die":
            queue_id = random.choice((1, 2, TRANSIENT_QUEUE))
            count, sequence = random.choice((1, 5, 40)), sequences[queue_id]
            found = [_letter(random, letters, sequence + at) for at in range(count)]
            storage.append([MessagesAdded(queue_id, sequence, letters.now, rows(sequence, count))])
            storage.append([DeadLettered(queue_id, ALL_GROUPS, found)])
            letters.there |= {facts.dead_id: (queue_id, facts) for facts in found}
            sequences[queue_id] += count
        case "go":
            some = random.sample(sorted(letters.there), len(letters.there) * random.choice((0, 1, 2, 3)) // 3)
            if random.random() < 0.5:
                some = sorted(letters.there)[: len(some)]
            storage.append([DeadRemoved([*some, 10**9])])
            letters.there = {n: one for n, one in letters.there.items() if n not in set(some)}
        case "upkeep":
            storage.maintain()
        case "checkpoint":
            getattr(storage, "checkpoint", storage.maintain)()
        case "delete":
            if 4 not in letters.deleted:
                _delete(random, storage, letters, sequences)


def _delete(random: Random, storage: IStorageProvider, letters: Letters, sequences: dict[int, int]) -> None:
    """A queue of the name of another one, with letters that it leaves."""
    letters.deleted.add(4)
    storage.append([QueueCreated(4, NAMES[4], letters.options, 1_000, f"{4:032x}"), GroupCreated(4, 0, "", True, 1)])
    found = [_letter(random, letters, sequences[4] + at) for at in range(3)]
    storage.append([MessagesAdded(4, 1, letters.now, rows(1, 3)), DeadLettered(4, ALL_GROUPS, found)])
    letters.there |= {facts.dead_id: (4, facts) for facts in found}
    storage.append([QueueDeleted(4)])


def _letter(random: Random, letters: Letters, sequence: int) -> DeadFacts:
    error = random.choice(ERRORS).format(n=random.randrange(10**6))
    letters.samples[fingerprint(error)].add(sample_of(error))
    # An imported letter may be older than one that came before.
    at = letters.now = letters.now + random.randrange(3) - (20 if random.random() < 0.01 else 0)
    facts = DeadFacts(letters.next_id, sequence, random.choice(REASONS), error, 1, 1, at, at)
    letters.next_id += random.choice((1, 1, 1, 2, 9))
    return facts


def _compare(random: Random, storage: IStorageProvider, letters: Letters) -> None:
    for _ in range(3):
        queue_ids = random.choice((None, None, frozenset({2}), frozenset({1, TRANSIENT_QUEUE}), frozenset({9})))
        reason = random.choice((None, None, int(Reason.REJECTED), int(Reason.OVERFLOW)))
        known = {fingerprint(facts.error) for _, facts in letters.there.values()} | {1}
        number = random.choice((None, None, *sorted(known)))
        groups = DeadGroupsWanted(
            queue_ids=queue_ids, reason=reason, fingerprint=number, limit=random.choice((1, 4, 99))
        )
        _compare_groups(storage, letters, groups)
        highest = letters.next_id + 2
        choice = LetterChoice(queue_ids=queue_ids, reason=reason, fingerprint=number, **_instants(random, letters))
        wanted = DeadPageWanted(
            after=random.choice((0, random.randrange(highest))),
            below=random.choice(((1 << 63) - 1, random.randrange(1, highest + 1))),
            newest_first=random.random() < 0.5,
            choice=choice,
            limit=random.choice((1, 7, 99)),
            scan=random.choice((1, 3, 99)),
            rows=random.random() < 0.3,
        )
        _compare_pages(storage, letters, wanted)
    listed = dict(storage.dead_queues(0, 10))
    with_letters = {queue_id for queue_id, _ in letters.there.values()}
    assert with_letters <= listed.keys()
    assert {queue_id for queue_id, _ in storage.dead_queues(1, 10)} == listed.keys() - {1}
    assert storage.dead_queues(name="b") == [(2, "b")]


def _instants(random: Random, letters: Letters) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if random.random() < 0.4:
        given["since"] = random.randrange(900, letters.now + 10)
    if random.random() < 0.4:
        given["until"] = random.randrange(900, letters.now + 10)
    return given


def _compare_groups(storage: IStorageProvider, letters: Letters, wanted: DeadGroupsWanted) -> None:
    expected = letters.groups(
        lambda key: (
            (wanted.queue_ids is None or key.queue_id in wanted.queue_ids)
            and wanted.reason in (None, key.reason)
            and wanted.fingerprint in (None, key.fingerprint)
        )
    )
    found = all_groups(storage, wanted)
    assert {one.key: _figures(one) for one in found} == expected
    assert [one.key for one in found] == sorted(expected)
    assert all(one.queue == NAMES[one.key.queue_id] for one in found)
    for one in found:
        assert one.letters.sample in letters.samples[one.key.fingerprint]


def _figures(group: DeadGroup) -> tuple[int, int, int, int, int]:
    letters = group.letters
    return letters.count, letters.first_id, letters.first_at, letters.last_id, letters.last_at


def all_groups(storage: IStorageProvider, wanted: DeadGroupsWanted) -> list[DeadGroup]:
    """In pages, each of which ends where the next one begins."""
    found: list[DeadGroup] = []
    page = DeadGroupPage(last=wanted.after)
    while not page.done:
        after = page.last
        page = storage.dead_groups(
            DeadGroupsWanted(
                after=after,
                queue_ids=wanted.queue_ids,
                reason=wanted.reason,
                fingerprint=wanted.fingerprint,
                limit=wanted.limit,
            )
        )
        assert len(page.groups) <= wanted.limit
        found += page.groups
    return found


def _compare_pages(storage: IStorageProvider, letters: Letters, wanted: DeadPageWanted) -> None:
    found: list[int] = []
    last, done = wanted.below if wanted.newest_first else wanted.after, False
    while not done:
        page: DeadPage = storage.dead_page(
            DeadPageWanted(
                after=wanted.after if wanted.newest_first else last,
                below=last if wanted.newest_first else wanted.below,
                newest_first=wanted.newest_first,
                choice=wanted.choice,
                limit=wanted.limit,
                scan=wanted.scan,
                rows=wanted.rows,
            )
        )
        assert page.damaged == []
        assert len(page.letters) <= wanted.limit
        for letter in page.letters:
            queue_id, facts = letters.there[letter.facts.dead_id]
            assert (letter.queue_id, letter.facts, letter.queue) == (queue_id, facts, NAMES[queue_id])
            assert letter.row == (rows(facts.sequence, 1)[0] if wanted.rows else b"")
        found += (letter.facts.dead_id for letter in page.letters)
        last, done = page.last, page.done
    assert found == letters.ids(wanted)


def check_a_queue_has_so_many_groups_and_one_for_all_others(subject: Subject) -> None:
    """Until a checkpoint there may be more: what was not stored has groups of its own."""
    options = QueueOptions(durability=Durability.STRONG if subject.durable else Durability.TRANSIENT)
    facts = [
        DeadFacts(n, n, Reason.REJECTED, f"error {_word(n)}", 1, 1, 2_000 + n, 2_000 + n)
        for n in range(1, 2 * TOO_MANY + 1)
    ]
    for facts_at in range(TOO_MANY):
        # Every text stands there twice.
        twin = facts[facts_at + TOO_MANY]
        facts[facts_at + TOO_MANY] = twin._replace(error=facts[facts_at].error)
    wanted = DeadGroupsWanted(queue_ids=frozenset({1}), reason=int(Reason.REJECTED))
    with subject.opened() as (storage, _):
        storage.append([QueueCreated(1, "q", options, 1_000, "01"), GroupCreated(1, 0, "", True, 1)])
        storage.append([MessagesAdded(1, 1, 1_000, rows(1, 2 * TOO_MANY))])
        for at in range(0, 2 * TOO_MANY, 500):
            storage.append([DeadLettered(1, ALL_GROUPS, facts[at : at + 500])])
        if not subject.durable:
            _check_others(storage, wanted, facts)
        else:
            assert sum(one.letters.count for one in all_groups(storage, wanted)) == 2 * TOO_MANY
    if subject.durable:
        with subject.opened() as (storage, _):
            _check_others(storage, wanted, facts)
            assert list(storage.check()) == []
            # Room for another one: letters that stand with the others stay there.
            storage.append([DeadRemoved([1, 1 + TOO_MANY])])
            getattr(storage, "checkpoint", storage.maintain)()
            last = DeadFacts(9_999, 2, Reason.REJECTED, facts[GROUPS_MAX].error, 1, 1, 9_000, 9_000)
            storage.append([DeadLettered(1, ALL_GROUPS, [last])])
            getattr(storage, "checkpoint", storage.maintain)()
            others, own = _others(storage, wanted), fingerprint(last.error)
            assert (others.letters.count, len(all_groups(storage, wanted))) == (14, GROUPS_MAX + 1)
            page = DeadPageWanted(choice=LetterChoice(queue_ids=frozenset({1}), fingerprint=own), rows=False)
            assert _ids(storage, page) == [GROUPS_MAX + 1, GROUPS_MAX + 1 + TOO_MANY, 9_999]
            storage.append([DeadRemoved([9_999, GROUPS_MAX + 1])])
            assert _others(storage, wanted).letters.count == 13
            getattr(storage, "checkpoint", storage.maintain)()
            assert _others(storage, wanted).letters.count == 13
            assert list(storage.check()) == []


def _check_others(storage: IStorageProvider, wanted: DeadGroupsWanted, facts: list[DeadFacts]) -> None:
    found = all_groups(storage, wanted)
    assert len(found) == GROUPS_MAX + 1
    others = _others(storage, wanted)
    beyond = [one for one in facts if (one.dead_id - 1) % TOO_MANY >= GROUPS_MAX]
    assert _figures(others) == (
        len(beyond),
        beyond[0].dead_id,
        beyond[0].dead_at,
        beyond[-1].dead_id,
        beyond[-1].dead_at,
    )
    assert {_figures(one)[0] for one in found if one.key.fingerprint != OTHER} == {2}
    for number, expected in ((OTHER, beyond), (fingerprint(beyond[0].error), [beyond[0], beyond[len(beyond) // 2]])):
        page = DeadPageWanted(choice=LetterChoice(fingerprint=number), rows=False)
        assert _ids(storage, page) == [one.dead_id for one in expected]


def _others(storage: IStorageProvider, wanted: DeadGroupsWanted) -> DeadGroup:
    [found] = all_groups(storage, DeadGroupsWanted(queue_ids=wanted.queue_ids, fingerprint=OTHER))
    return found


def _ids(storage: IStorageProvider, wanted: DeadPageWanted) -> list[int]:
    page = storage.dead_page(wanted)
    while not page.is_ready:
        page = storage.dead_page(wanted)
    assert page.done
    return [letter.facts.dead_id for letter in page.letters]


def _word(number: int) -> str:
    """Without a digit."""
    return "".join("ghijklmnop"[int(digit)] for digit in str(number))


def check_a_filter_over_many_queues_looks_at_all_letters(subject: Subject) -> None:
    """More queues than are gone through side by side."""
    options = QueueOptions(durability=Durability.STRONG if subject.durable else Durability.TRANSIENT)
    queues = range(1, 151)
    with subject.opened() as (storage, _):
        for queue_id in queues:
            storage.append([QueueCreated(queue_id, f"q{queue_id}", options, 1_000, f"{queue_id:x}")])
            storage.append([GroupCreated(queue_id, 0, "", True, 1), MessagesAdded(queue_id, 1, 1_000, rows(1, 2))])
            facts = [
                DeadFacts(queue_id + 1_000 * n, 1 + n, REASONS[(queue_id + n) % 3], f"text {'xyz'[n]}", 1, 1, 5, 5)
                for n in range(2)
            ]
            storage.append([DeadLettered(queue_id, ALL_GROUPS, facts)])
            if queue_id == 90:
                getattr(storage, "checkpoint", storage.maintain)()
        every = frozenset(queues) - {7}
        not_of_7 = [n for m in (0, 1_000) for n in range(m + 1, m + 151) if n % 1_000 != 7]
        for newest_first in (False, True):
            for choice, expected in (
                (LetterChoice(queue_ids=every), not_of_7),
                (LetterChoice(fingerprint=fingerprint("text y")), list(range(1_001, 1_151))),
                (
                    LetterChoice(reason=int(REASONS[0]), fingerprint=fingerprint("text x"), queue_ids=every),
                    [n for n in range(1, 151) if n % 3 == 0],
                ),
            ):
                wanted = DeadPageWanted(choice=choice, newest_first=newest_first, limit=1_000, scan=1_000, rows=False)
                assert _ids(storage, wanted) == (expected[::-1] if newest_first else expected)


def check_queues_of_dead_letters_are_named_as_soon_as_they_have_some(subject: Subject) -> None:
    """Also before anybody has asked for letters."""
    with subject.opened() as (storage, _):
        for queue_id, durability in ((1, Durability.TRANSIENT), (2, Durability.STRONG), (3, Durability.TRANSIENT)):
            options = QueueOptions(durability=durability if subject.durable else Durability.TRANSIENT)
            storage.append([QueueCreated(queue_id, f"q{queue_id}", options, 1_000, f"{queue_id:x}")])
            storage.append([GroupCreated(queue_id, 0, "", True, 1), MessagesAdded(queue_id, 1, 1_000, rows(1, 2))])
            for n in (1, 2):
                facts = DeadFacts(10 * queue_id + n, n, REASONS[0], "late", 1, 1, 5, 5)
                storage.append([DeadLettered(queue_id, ALL_GROUPS, [facts])])
        assert storage.dead_queues() == [(1, "q1"), (2, "q2"), (3, "q3")]
        storage.append([DeadRemoved([11, 31, 32])])
        storage.maintain()
        assert storage.dead_queues(0, 2) == [(1, "q1"), (2, "q2")]
        assert storage.dead_queues(2) == []


def check_queues_that_had_a_name_are_found_by_it(subject: Subject) -> None:
    """The one that has it now, and those that are gone and have left letters."""
    durability = Durability.STRONG if subject.durable else Durability.TRANSIENT
    options = QueueOptions(durability=durability)

    def make(storage: IStorageProvider, queue_id: int, *, letter: bool) -> None:
        storage.append([QueueCreated(queue_id, "q", options, 1_000, f"{queue_id:x}")])
        storage.append([GroupCreated(queue_id, 0, "", True, 1), MessagesAdded(queue_id, 1, 1_000, rows(1, 2))])
        if letter:
            storage.append(
                [DeadLettered(queue_id, ALL_GROUPS, [DeadFacts(queue_id, 1, REASONS[0], "late", 1, 1, 5, 5)])]
            )

    def found(storage: IStorageProvider) -> list[int]:
        everything = storage.dead_queues(name="q")
        assert {name for _, name in everything} <= {"q"}
        for after, limit in ((0, 2), (1, 1), (3, 9), (9, 9)):
            expected = [place for place in everything if place[0] > after][:limit]
            assert storage.dead_queues(after, limit, "q") == expected
        return [queue_id for queue_id, _ in everything]

    with subject.opened() as (storage, _):
        storage.append([QueueCreated(9, "other", options, 1_000, "9")])
        for queue_id in range(1, 5):
            # The second leaves nothing behind.
            make(storage, queue_id, letter=queue_id != 2)
            if queue_id < 4:
                storage.append([QueueDeleted(queue_id)])
        assert found(storage) == [1, 3, 4]
        assert storage.dead_queues(name="none") == []
        storage.append([DeadRemoved([1])])
        assert found(storage) == [3, 4]
    with subject.opened() as (storage, _):
        assert found(storage) == ([3, 4] if subject.durable else [])
        storage.append([DeadRemoved([3])])
        storage.append([QueueDeleted(4)])
        assert found(storage) == ([4] if subject.durable else [])
        assert storage.dead_queues(name="other") == ([(9, "other")] if subject.durable else [])


CHECKS: list[Check] = [value for name, value in list(globals().items()) if name.startswith("check_")]
