"""Every filter of dead letters, alone and with others, finds what looking at all letters finds."""

import asyncio
from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vibemq.auth.policy import Actor, Policy
from vibemq.auth.users import ANONYMOUS
from vibemq.model.dead.fingerprint import fingerprint, fingerprint_text
from vibemq.model.options import QueueOptions
from vibemq.model.records import ALL_GROUPS, DeadFacts, DeadLettered, GroupCreated, MessagesAdded, QueueCreated, Reason
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import DamagedLetter, DeadPage, DeadPageWanted, StoredState
from vibemq.operations.dead_letters import DeadLetterReader, DeadLetters, LetterAccess
from vibemq.operations.dead_letters.letters import LetterPageArguments
from vibemq.operations.dead_letters.stretches import IdStretches
from vibemq.operations.messages import REPLAY_COUNT
from vibemq.operations.registry import Caller
from vibemq.storage.kvstore.dead.pages import page
from vibemq.storage.memory.provider import MemoryStorage
from vibemq.storage.state.dead_groups import DeadEntry

NOW = 2_000
QUEUES = {1: "a", 2: "b"}
ERRORS = ("order {n} is unknown", "no stock", "late by {n} ms", "")
LETTERS = st.lists(
    st.tuples(
        st.sampled_from(sorted(QUEUES)),
        st.sampled_from([Reason.REJECTED, Reason.EXPIRED]),
        st.sampled_from(ERRORS),
        st.integers(0, 30),  # ms since the letter before
        st.integers(0, 2),  # replays
        st.sampled_from(["x", "y"]),  # a header
    ),
    max_size=40,
)
IDS = st.integers(0, 45)
FILTERS: dict[str, st.SearchStrategy[Any]] = {
    "queue": st.sampled_from(["a", "b"]),
    "reason": st.sampled_from(["rejected", "expired", "overflow"]),
    "fingerprint": st.sampled_from([fingerprint_text(fingerprint(text.format(n=1))) for text in ERRORS]),
    "error": st.sampled_from(["order", "no", "7", "nothing"]),
    "older_than_ms": st.integers(0, 1_200),
    "newer_than_ms": st.integers(0, 1_200),
    "since": st.integers(900, 2_100),
    "until": st.integers(900, 2_100),
    "header": st.fixed_dictionaries({"h": st.sampled_from(["x", "z"])}),
    "ids": st.lists(IDS, max_size=5),
    "from_id": IDS,
    "to_id": IDS,
    "message_id": st.sampled_from(["m1", "m2", "m99"]),
    "replayed": st.booleans(),
}
FITS: dict[str, Callable[[dict[str, Any], Any], bool]] = {
    "queue": lambda letter, value: letter["queue"] == value,
    "reason": lambda letter, value: letter["reason"] == value,
    "fingerprint": lambda letter, value: letter["fingerprint"] == value,
    "error": lambda letter, value: value in letter["error"],
    "older_than_ms": lambda letter, value: NOW - letter["dead_at"] >= value,
    "newer_than_ms": lambda letter, value: NOW - letter["dead_at"] <= value,
    "since": lambda letter, value: letter["dead_at"] >= value,
    "until": lambda letter, value: letter["dead_at"] <= value,
    "header": lambda letter, value: letter["headers"].get("h") == value["h"],
    "ids": lambda letter, value: letter["dead_id"] in value,
    "from_id": lambda letter, value: letter["dead_id"] >= value,
    "to_id": lambda letter, value: letter["dead_id"] <= value,
    "message_id": lambda letter, value: letter["id"] == value,
    "replayed": lambda letter, value: (letter["replay_count"] > 0) is value,
}


class Direct:
    """A store whose verbs are called where they are asked for."""

    def __init__(self, provider: MemoryStorage) -> None:
        self.provider = provider

    async def dead_page(self, wanted: Any) -> Any:
        return self.provider.dead_page(wanted)

    async def dead_queues(self, after: int, limit: int, name: str | None = None) -> Any:
        return self.provider.dead_queues(after, limit, name)


class Counted(Direct):
    """Counts its pages."""

    pages = 0

    async def dead_page(self, wanted: Any) -> Any:
        Counted.pages += 1
        return await super().dead_page(wanted)


class Damaged(Direct):
    """Some of its letters cannot be read."""

    ids: frozenset[int] = frozenset()

    async def dead_page(self, wanted: Any) -> Any:
        page = await super().dead_page(wanted)
        bad = [letter.facts.dead_id for letter in page.letters if letter.facts.dead_id in self.ids]
        page.letters = [letter for letter in page.letters if letter.facts.dead_id not in self.ids]
        page.damaged += [DamagedLetter(dead_id, 1, "a", "its bytes are others") for dead_id in bad]
        return page


def filled(letters: list[Any], store_type: type[Direct] = Direct) -> DeadLetters:
    provider = MemoryStorage()
    provider.open()
    for queue_id, name in QUEUES.items():
        provider.append([QueueCreated(queue_id, name, QueueOptions(), 1, "i"), GroupCreated(queue_id, 0, "", True, 1)])
    sequences, at = dict.fromkeys(QUEUES, 1), 1_000
    for dead_id, (queue_id, reason, error, later, replays, header) in enumerate(letters, start=1):
        headers = [("h", header), *([(REPLAY_COUNT, str(replays))] if replays else [])]
        sequence, at = sequences[queue_id], at + later
        provider.append([MessagesAdded(queue_id, sequence, 1, Rows.of([pack_row(f"m{dead_id}", b"", headers)]))])
        facts = DeadFacts(dead_id, sequence, reason, error.format(n=dead_id), 1, 1, at, at)
        provider.append([DeadLettered(queue_id, ALL_GROUPS, [facts])])
        sequences[queue_id] += 1
    store = cast(Any, store_type(provider))
    engine = SimpleNamespace(readers=SimpleNamespace(tail=lambda queue: 1))
    clock = SimpleNamespace(now=lambda: NOW)
    access = LetterAccess(Policy({}, enabled=False))
    return DeadLetters(cast(Any, engine), store, DeadLetterReader(store), cast(Any, None), clock, access)


async def every_letter(letters: DeadLetters, limit: int, **given: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        wanted = LetterPageArguments.model_validate({**given, "after": after, "limit": limit})
        answer = await letters.page(Caller(ANONYMOUS, Actor("")), wanted)
        assert len(answer["letters"]) <= limit
        found += answer["letters"]
        after = answer["next"]
    return found


@settings(max_examples=150)
@given(
    letters=LETTERS,
    given_filters=st.fixed_dictionaries({}, optional=FILTERS),
    order=st.sampled_from(["oldest", "newest"]),
    limit=st.sampled_from([1, 3, 100]),
)
def test_every_filter_finds_what_looking_at_all_letters_finds(
    letters: list[Any], given_filters: dict[str, Any], order: str, limit: int
) -> None:
    dead = filled(letters)

    async def main() -> None:
        every = await every_letter(dead, 100)
        assert [letter["dead_id"] for letter in every] == list(range(1, len(letters) + 1))
        expected = [one for one in every if all(FITS[name](one, value) for name, value in given_filters.items())]
        found = await every_letter(dead, limit, order=order, **given_filters)
        assert found == (expected if order == "oldest" else expected[::-1])
        absolute = LetterPageArguments.model_validate(given_filters).absolute(NOW, last_id=30)
        later = absolute.model_dump(exclude_none=True, exclude={"after", "limit", "order", "payloads"})
        found = await every_letter(dead, limit, **later)
        assert found == [letter for letter in expected if letter["dead_id"] <= 30]

    asyncio.run(main())


def test_an_end_before_the_epoch_is_an_end() -> None:
    """What shows instants has nothing for 0."""
    for wanted in ({"older_than_ms": 10 * NOW}, {"until": 0}, {"until": 0, "older_than_ms": 1}):
        absolute = LetterPageArguments.model_validate(wanted).absolute(NOW)
        assert (absolute.until, absolute.since) == (1, None)
    assert LetterPageArguments.model_validate({"since": 0}).absolute(NOW).since is None


def test_letters_that_are_named_are_found_without_those_between_them() -> None:
    dead = filled([(1, Reason.REJECTED, "", 0, 0, "x")] * 400)

    async def main() -> None:
        for order in ("oldest", "newest"):
            wanted = LetterPageArguments.model_validate({"ids": [399, 2, 200, 4], "order": order})
            answer = await dead.page(Caller(ANONYMOUS, Actor("")), wanted)
            assert sorted(letter["dead_id"] for letter in answer["letters"]) == [2, 4, 200, 399]
            assert (answer["examined"], answer["next"]) == (5, None)

    asyncio.run(main())


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_ids_that_are_gone_are_passed_over_together(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "pages", 0)
    dead = filled([(1, Reason.REJECTED, "", 0, 0, "x")] * 400, Counted)
    ids = [*range(0, 300, 100), *range(310, 400), *range(500, 90_000, 100)]

    async def main() -> None:
        wanted = LetterPageArguments.model_validate({"ids": ids, "order": order})
        answer = await dead.page(Caller(ANONYMOUS, Actor("")), wanted)
        assert len(answer["letters"]) == 92
        assert answer["next"] is None
        assert Counted.pages < 20

    asyncio.run(main())


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_of_letters_that_are_named_each_is_counted_once_however_many_pages_they_come_in(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Damaged, "ids", frozenset({100, 300}))
    dead = filled([(1, Reason.REJECTED, "", 0, 0, "x")] * 400, Damaged)

    async def main() -> None:
        damaged, examined, found, after = list[int](), 0, list[int](), 0
        while after is not None:
            given = {"ids": [10, 100, 200, 300, 390], "order": order, "after": after, "limit": 1}
            answer = await dead.page(Caller(ANONYMOUS, Actor("")), LetterPageArguments.model_validate(given))
            damaged += [letter["dead_id"] for letter in answer["damaged"]]
            found += [letter["dead_id"] for letter in answer["letters"]]
            examined, after = examined + answer["examined"], answer["next"]
        assert (sorted(found), sorted(damaged), examined) == ([10, 200, 390], [100, 300], 5)

    asyncio.run(main())


class WithoutRows:
    """A store of facts, some of which cannot be read."""

    def __init__(self, sound: Collection[int], damaged: Collection[int]) -> None:
        self._sound, self._ids = sound, sorted({*sound, *damaged})
        self._state = StoredState()

    async def dead_page(self, wanted: DeadPageWanted) -> DeadPage:
        def walk(damaged: list[DamagedLetter]) -> Iterator[tuple[int, DeadEntry, int]]:
            for dead_id in reversed(self._ids) if wanted.newest_first else self._ids:
                if not wanted.after < dead_id < wanted.below:
                    continue
                if dead_id in self._sound:
                    yield dead_id, DeadEntry(1, "", DeadFacts(dead_id, dead_id, Reason.REJECTED, "", 1, 0, 0, 0)), 1
                else:
                    damaged.append(DamagedLetter(dead_id, 0, "", "its facts cannot be read"))

        return page(self._state, walk, cast(Any, None), "", wanted)


@settings(max_examples=300)
@given(
    sound=st.sets(st.integers(1, 300), max_size=20),
    damaged=st.sets(st.integers(1, 300), max_size=10),
    named=st.sets(st.integers(0, 320), min_size=1, max_size=30),
    newest_first=st.booleans(),
    limit=st.sampled_from([1, 3, 100]),
)
def test_of_letters_that_are_named_those_that_are_there_are_found_once(
    sound: set[int], damaged: set[int], named: set[int], newest_first: bool, limit: int
) -> None:
    damaged -= sound
    reader = DeadLetterReader(cast(Any, WithoutRows(sound, damaged)))

    async def main() -> None:
        letters, told, after, below = list[int](), list[int](), 0, 400
        while True:
            found = await reader.find(
                lambda facts, queue: facts.dead_id in named,
                stretches=IdStretches(named),
                after=after,
                below=below,
                newest_first=newest_first,
                limit=limit,
                rows=False,
            )
            letters += [letter.facts.dead_id for letter in found.letters]
            told += [letter.dead_id for letter in found.damaged if letter.dead_id in named]
            if found.done:
                break
            after, below = (after, found.last) if newest_first else (found.last, below)
        assert letters == sorted(named & sound, reverse=newest_first)
        assert told == sorted(named & damaged, reverse=newest_first)

    asyncio.run(main())
