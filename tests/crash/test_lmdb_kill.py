"""kill -9 of the lmdb provider, with checkpoints under way: always a prefix that holds everything appended."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from tests.crash.lmdb_child import SETTINGS, batches
from tests.waiting import wait_until
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.testing.storage_workload import comparable

pytestmark = pytest.mark.slow

CYCLES = int(os.environ.get("KILL_CYCLES", "2"))
ROOT = Path(__file__).parents[2]
NO_LIMIT = 1 << 40


def run_and_kill(
    data_dir: Path, seed: int, more: int, *, after_checkpoint: bool, look: Callable[[], object] = lambda: None
) -> int:
    """Kill the child so many lines after it began, or after it heard of a checkpoint; return its last appended lsn.
    `look` is called before."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.crash.lmdb_child", str(data_dir), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("ready")
        lines: list[str] = []
        if after_checkpoint:
            applied = None
            for line in child.stdout:
                lines.append(line)
                if line.startswith("applied"):
                    if applied not in (None, line):
                        break
                    applied = line
        lines += islice(child.stdout, more)
        look()
        child.kill()
        lines += child.stdout
        return max((int(line) for line in lines if line.endswith("\n") and line[0].isdigit()), default=0)


def verify(data_dir: Path, seed: int, appended: int) -> tuple[int, int]:
    """Open, compare with the model, close; return (last lsn, applied lsn)."""
    provider = LmdbProvider(data_dir, SETTINGS)
    state = provider.open()
    assert state.lsn >= appended, "an appended batch did not survive kill -9"
    if not state.lsn:
        # The kill came before anything was appended.
        assert not state.queues
        provider.abandon()
        return 0, 0
    _, model = next(islice(batches(seed), state.lsn - 1, None))
    assert comparable(state) == comparable(model.state)
    for queue_id in state.queues:
        found = {
            part.first_sequence + index: (row, part.published_at)
            for part in provider.read(queue_id, 1, 2**63, NO_LIMIT)
            for index, row in enumerate(part.rows)
        }
        for sequence, row in model.alive(queue_id).items():
            assert found[sequence] == row
    assert [letter.facts.dead_id for letter in provider.dead_letters(limit=10**6)] == sorted(model.dead.entries)
    assert list(provider.check()) == []
    applied = provider.stats().applied_lsn
    # Left without closing, as the next life would find it after another kill.
    provider.abandon()
    return state.lsn, applied


def test_every_kill_leaves_a_prefix_with_everything_appended(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    appended = applied = 0
    rng = random.Random(seed)
    for cycle in range(CYCLES):
        more, after_checkpoint = rng.randrange(300), cycle % 2 == 1
        appended = max(appended, run_and_kill(tmp_path / "data", seed, more, after_checkpoint=after_checkpoint))
        appended, applied = verify(tmp_path / "data", seed, appended)
    assert applied > 0, "no checkpoint ever ran"


def checkpointers(data_dir: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"lmdb.checkpoint.checkpointer" in command and os.fsencode(data_dir) in command:
                found.append(int(entry.name))
    return found


def test_no_checkpointer_outlives_its_broker(tmp_path: Path) -> None:
    before: list[list[int]] = []
    run_and_kill(
        tmp_path / "data",
        1,
        20,
        after_checkpoint=True,
        look=lambda: before.append(checkpointers(tmp_path / "data")),
    )
    assert [len(alive) for alive in before] == [1]
    wait_until(lambda: checkpointers(tmp_path / "data") == [])
