"""Operators' verbs that are no engine commands: peek, dead letters, the store.

Source: docs/spec/native.md, "Admin verbs".
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from vibemq.auth.matrix import permissions_of
from vibemq.errors import InvalidPayload, MessageNotFound, QueueNotFound, StorageDamaged, UnknownCommand
from vibemq.model.commands import ForgetApplication, PurgeDead
from vibemq.model.runs import Run
from vibemq.model.stored import DeadLetter
from vibemq.server.clock import Clock
from vibemq.server.commit.storage_threads import Store
from vibemq.server.contracts import QueueEngine
from vibemq.server.letters import (
    LetterFilter,
    letter_json,
    limit_of,
    message_json,
    number_of,
    origins,
    replay,
    text_of,
)
from vibemq.server.net.local_session import LocalSession
from vibemq.server.net.row_reader import read_piece

SCAN_MAX = 10_000
"""Dead letters looked at for one request; a filter that fits few returns early with `next`."""
SCAN_BATCH = 500
ANSWER_BYTES_MAX = 768 * 1024
"""An answer must fit a frame."""

Arguments = Mapping[str, Any]
Verb = Callable[[Arguments], Awaitable[Any]]


class Admin:
    """Answers one verb at a time; every answer is JSON-ready."""

    def __init__(
        self,
        engine: QueueEngine,
        store: Store,
        inner: LocalSession,
        clock: Clock,
        reports: Mapping[str, Callable[[], Awaitable[Any]]],
    ) -> None:
        """`reports`: further verbs that take no arguments, by name (broker.info, connections.list …)."""
        self._engine = engine
        self._store = store
        self._inner = inner
        self._clock = clock
        self._reports = reports
        self._verbs: dict[str, Verb] = {
            "queue.peek": self._peek,
            "dlq.list": self._list,
            "dlq.show": self._show,
            "dlq.replay": self._replay,
            "dlq.purge": self._purge,
            "storage.backup": self._backup,
            "transaction.forget": self._forget,
        }
        for verb in self.verbs:
            permissions_of(verb)

    @property
    def verbs(self) -> Collection[str]:
        return {*self._verbs, *self._reports}

    async def answer(self, verb: str, arguments: Arguments) -> Any:
        """Raises an error of the family; UnknownCommand names the verbs there are."""
        if verb in self._reports:
            return await self._reports[verb]()
        handler = self._verbs.get(verb)
        if handler is None:
            known = ", ".join(sorted([*self._verbs, *self._reports]))
            raise UnknownCommand(f"unknown admin verb {verb[:64]!r}; known are {known}, and the queue and group verbs")
        return await handler(arguments)

    # -- queues -----------------------------------------------------------------------------------------------------

    async def _peek(self, arguments: Arguments) -> list[dict[str, Any]]:
        name, limit = str(text_of(arguments, "queue", required=True)), limit_of(arguments)
        start = number_of(arguments, "from", 0) or 0
        info = self._engine.queue_info(name)
        if info is None:
            raise QueueNotFound(name)
        runs = _first_of(self._engine.waiting_runs(name, limit + start), start, limit)
        piece = await self._store.call(lambda: read_piece(self._store.provider, info.queue_id, runs, ANSWER_BYTES_MAX))
        return [
            message_json(
                row,
                sequence=part.first_sequence + index,
                published_at=part.published_at,
            )
            for part in piece.slices
            for index, row in enumerate(part.rows)
        ]

    # -- dead letters -------------------------------------------------------------------------------------------------

    async def _list(self, arguments: Arguments) -> dict[str, Any]:
        letters, last, done = await self._scan(arguments)
        shown = [letter_json(letter, with_payload=False) for letter in letters]
        return {"letters": shown, "next": None if done else last}

    async def _show(self, arguments: Arguments) -> dict[str, Any]:
        dead_id = number_of(arguments, "dead_id") or 0
        letter = await self._store.call(self._store.provider.dead_letter, dead_id)
        queue = text_of(arguments, "queue")
        if letter is None or queue not in (None, letter.queue):
            raise MessageNotFound(f"there is no dead letter {dead_id}; it was replayed or purged, or it never existed")
        return letter_json(letter, with_payload=True)

    async def _replay(self, arguments: Arguments) -> dict[str, Any]:
        """One batch: up to `limit` letters go back. `next` is where the following call goes on.

        Each queue's letters are one engine step: they leave the DLQ and enter the queue together or not at all, so a
        replay that is interrupted anywhere doubles nothing and is resumed by asking again.
        """
        target = text_of(arguments, "to")
        letters, last, done = await self._scan(arguments)
        by_queue: dict[str, list[DeadLetter]] = {}
        for letter in letters:
            by_queue.setdefault(target or letter.queue, []).append(letter)
        missing = [queue for queue in by_queue if self._engine.queue_info(queue) is None]
        if missing:
            raise QueueNotFound(missing[0]) if target else _origin_is_gone(missing)
        replayed = len(letters)
        if not arguments.get("dry_run"):
            replayed = sum([await self._replay_to(queue, group) for queue, group in by_queue.items()])
        return {"count": replayed, "next": last, "done": done}

    async def _replay_to(self, queue: str, letters: list[DeadLetter]) -> int:
        counted = await self._inner.ask(lambda session, token: replay(session, token, queue, letters))
        return int(counted.count)

    async def _purge(self, arguments: Arguments) -> dict[str, Any]:
        if arguments.keys() <= {"ids", "dry_run"} and arguments.get("ids") and not arguments.get("dry_run"):
            # By number alone nothing need be read, so that letters with damaged rows can be removed too.
            ids = sorted(LetterFilter.of(arguments).ids or ())
            purged = await self._purge_ids(ids, await self._readable(ids))
            return {"count": purged, "next": ids[-1], "done": True}
        letters, last, done = await self._scan(arguments)
        purged = len(letters)
        if letters and not arguments.get("dry_run"):
            purged = await self._purge_ids([letter.facts.dead_id for letter in letters], letters)
        return {"count": purged, "next": last, "done": done}

    async def _purge_ids(self, ids: list[int], letters: list[DeadLetter]) -> int:
        known = origins(letters)
        counted = await self._inner.ask(lambda session, token: PurgeDead(session, token, ids, known))
        return int(counted.count)

    async def _readable(self, ids: list[int]) -> list[DeadLetter]:
        """The letters among the ids whose rows are sound."""
        letters: list[DeadLetter] = []
        for dead_id in ids:
            try:
                letter = await self._store.call(self._store.provider.dead_letter, dead_id)
            except StorageDamaged:
                continue
            if letter is not None:
                letters.append(letter)
        return letters

    async def _scan(self, arguments: Arguments) -> tuple[list[DeadLetter], int, bool]:
        """(letters that fit, dead_id up to which was looked at, whether that was the end)."""
        wanted, limit, now = LetterFilter.of(arguments), limit_of(arguments), self._clock.now()
        after = number_of(arguments, "after", 0) or 0
        last_wanted = None
        if wanted.ids is not None:
            after = max(after, min(wanted.ids, default=1) - 1)
            last_wanted = max(wanted.ids, default=0)
        found: list[DeadLetter] = []
        size = 0
        for _ in range(SCAN_MAX // SCAN_BATCH):
            batch, skipped = await self._store.call(self._dead_letters, after, wanted.queue)
            if not batch and not skipped:
                return found, after, True
            for letter in batch:
                fits = wanted.fits(letter, now)
                if fits and found and (len(found) >= limit or size + len(letter.row) > ANSWER_BYTES_MAX):
                    return found, after, False
                after = letter.facts.dead_id
                if fits:
                    found.append(letter)
                    size += len(letter.row)
            after = max(after, skipped)
            if last_wanted is not None and after >= last_wanted:
                return found, after, True
        return found, after, False

    def _dead_letters(self, after: int, queue: str | None) -> tuple[list[DeadLetter], int]:
        """(a batch, the last damaged dead_id that was passed over or 0)."""
        provider = self._store.provider
        try:
            return provider.dead_letters(after=after, limit=SCAN_BATCH, queue=queue), 0
        except StorageDamaged:
            pass
        # One of the batch is damaged: go one by one up to it, and step over it.
        sound: list[DeadLetter] = []
        for _ in range(SCAN_BATCH):
            last = sound[-1].facts.dead_id if sound else after
            try:
                one = provider.dead_letters(after=last, limit=1, queue=queue)
            except StorageDamaged:
                return sound, last + 1
            if not one:
                break
            sound += one
        return sound, 0

    # -- transactions -------------------------------------------------------------------------------------------------

    async def _forget(self, arguments: Arguments) -> dict[str, Any]:
        """An application begins anew: its last version and its owner are forgotten."""
        app = str(text_of(arguments, "app", required=True))
        counted = await self._inner.ask(lambda session, token: ForgetApplication(session, token, app))
        return {"count": int(counted.count)}

    # -- the store ----------------------------------------------------------------------------------------------------

    async def _backup(self, arguments: Arguments) -> dict[str, Any]:
        target = Path(str(text_of(arguments, "target", required=True)))
        if not target.is_absolute():
            raise InvalidPayload("argument target must be an absolute path on the broker's machine")
        await self._store.aside(self._store.provider.backup, target)
        return {}


def _first_of(runs: Iterable[Run], start: int, limit: int) -> list[Run]:
    """The first `limit` sequences at or above `start`."""
    chosen: list[Run] = []
    for first, last in runs:
        low = max(first, start)
        high = min(last, low + limit - 1)
        if low <= high:
            chosen.append((low, high))
            limit -= high - low + 1
    return chosen


def _origin_is_gone(queues: list[str]) -> QueueNotFound:
    error = QueueNotFound(queues[0])
    error.args = (
        f"queue {queues[0]!r}, where these letters come from, does not exist; create it, or say to which "
        "queue they shall go with `to`",
    )
    return error
