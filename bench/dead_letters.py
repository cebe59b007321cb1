"""What the index of dead letters costs and what it saves: `python -m bench.dead_letters [letters]`.

Fills an LMDB store with letters of 1,000 kinds of errors, each text unlike all others, by checkpoints in this process;
then asks for pages. Times of pages are the best of many, those of the fill are processor time. The letters' messages
stand next to each other, those of one group 1,000 apart.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from vibemq.model.dead.groups import DeadGroupsWanted, GroupKey, LetterChoice
from vibemq.model.options import QueueOptions
from vibemq.model.records import (
    ALL_GROUPS,
    DeadFacts,
    DeadLettered,
    GroupCreated,
    MessagesAdded,
    QueueCreated,
    Reason,
    Record,
)
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import DeadPageWanted
from vibemq.storage.kvstore.dead.index import build_some
from vibemq.storage.kvstore.encoding import encode_batch
from vibemq.storage.lmdb.checkpoint.checkpoint import Checkpoint
from vibemq.storage.lmdb.environment.env import open_writer
from vibemq.storage.lmdb.environment.tables import writing
from vibemq.storage.lmdb.journal.segment import JournalRecord
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.lmdb.prepare import prepare
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings

KINDS, BATCH = 1_000, 1_000
REPEATS = 20
ROW = pack_row("m", b"x" * 200, ())


def error(number: int) -> str:
    """Of one of so many kinds; words have no digits."""
    word = "".join("ghijklmnop"[int(digit)] for digit in str(number % KINDS))
    return f"order {number} {word} failed: connection to 10.0.0.{number % 250}:5432 refused"


def batches(count: int) -> list[list[Record]]:
    made: list[list[Record]] = []
    for first in range(1, count + 1, BATCH):
        letters = [
            DeadFacts(n, n, Reason.REJECTED, error(n), 3, 2, 2_000, 2_000 + n) for n in range(first, first + BATCH)
        ]
        made.append([MessagesAdded(1, first, 1_500, Rows.of([ROW] * BATCH)), DeadLettered(1, ALL_GROUPS, letters)])
    return made


def fill(layout: Layout, count: int) -> None:
    prepare(layout, now=1_000)
    with closing(open_writer(layout.store)) as env:
        checkpoint = Checkpoint(env)
        head: list[Record] = [QueueCreated(1, "q", QueueOptions(), 1_000, "01"), GroupCreated(1, 0, "", True, 1)]
        made = [head, *batches(count)]
        records = [
            ("", JournalRecord(lsn, 0, b"".join(encode_batch(batch)), 0, 0, 0))
            for lsn, batch in enumerate(made, start=1)
        ]
        began = time.process_time()
        for at in range(0, len(records), 10):
            checkpoint.apply_records(records[at : at + 10], up_to_lsn=at)
        print(f"checkpoint    {(time.process_time() - began) / count * 1e6:8.1f} us of processor time for each letter")
        print(f"store         {layout.data_file.stat().st_size / count:8.0f} bytes for each letter with its message")
        began, steps = time.process_time(), 0
        more = True
        while more:
            with writing(env, "store") as kv:
                more = build_some(kv)
            steps += 1
        print(f"build anew    {(time.process_time() - began) / count * 1e6:8.1f} us for each letter, in {steps} steps")


def timed(name: str, ask: Callable[[], int]) -> None:
    best = float("inf")
    for _ in range(REPEATS):
        began = time.perf_counter()
        found = ask()
        best = min(best, time.perf_counter() - began)
    print(f"{name:<50} {best * 1e3:7.2f} ms for {found}")


def main(count: int) -> None:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        fill(Layout(Path(folder)), count)
        store = LmdbProvider(Path(folder), LmdbSettings(ballast_bytes=0))
        store.open()
        try:
            ask(store, count)
        finally:
            store.close()


def ask(store: LmdbProvider, count: int) -> None:
    middle = GroupKey(1, int(Reason.REJECTED), 1 << 63)
    timed("groups, from the middle", lambda: len(store.dead_groups(DeadGroupsWanted(after=middle, limit=100)).groups))
    [group] = store.dead_groups(DeadGroupsWanted(after=middle, limit=1)).groups
    choices = {
        "of a queue": LetterChoice(queue_ids=frozenset({1})),
        "of a group": LetterChoice(queue_ids=frozenset({1}), fingerprint=group.key.fingerprint),
        "by age": LetterChoice(since=2_000 + count // 2),
    }
    for rows in (False, True):
        for name, choice in choices.items():
            wanted = DeadPageWanted(choice=choice, after=count // 2, limit=50, rows=rows)
            timed(f"{name}, {'with' if rows else 'without'} messages", lambda w=wanted: len(store.dead_page(w).letters))  # type: ignore[misc]
    wanted = DeadPageWanted(scan=128, fits=lambda facts, queue: False)
    timed("a slice in which no letter fits", lambda: store.dead_page(wanted).examined)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
