"""`python -m tests.crash.lmdb_child DIR SEED`: append the seed's batches, print each lsn, and wait to be killed."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from vibemq.model.records import Record
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.testing.storage_workload import Model, Workload

# Small enough that segments roll, rows are evicted and checkpoints run all the time.
SETTINGS = LmdbSettings(
    segment_bytes=64 << 10, buffer_bytes=20_000, checkpoint_lag_bytes=0, checkpoint_ms=100, ballast_bytes=0
)


def batches(seed: int) -> Iterator[tuple[list[Record], Model]]:
    """Batch n is the one with lsn n; the model is that after it."""
    workload, model = Workload(Random(seed), transient=False), Model()
    while True:
        records = workload.batch(model)
        if records:
            model.apply(records)
            forget_the_dead(model)
            yield records, model


def forget_the_dead(model: Model) -> None:
    """A group that is moved back may ask again for messages that were gone: nobody promises those."""
    alive = {(queue_id, sequence) for queue_id in model.state.queues for sequence in model.alive(queue_id)}
    model.rows = {key: row for key, row in model.rows.items() if key in alive}


def main(data_dir: Path, seed: int) -> None:
    provider = LmdbProvider(data_dir, SETTINGS)
    lsn = provider.open().lsn
    source = batches(seed)
    for _ in range(lsn):
        next(source)
    say("ready")
    threading.Thread(target=keep_up, args=(provider,), daemon=True).start()
    for number, (records, _) in enumerate(source, start=lsn + 1):
        assert provider.append(records) == number
        if number % 3 == 0:
            provider.sync()
        say(str(number))


def say(text: str) -> None:
    # One write: two threads talk, and `print` writes the end of the line apart.
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def keep_up(provider: LmdbProvider) -> None:
    while True:
        provider.maintain()
        say(f"applied {provider.stats().applied_lsn}")
        time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
