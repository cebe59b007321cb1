"""What people do by hand to checkpoints while no driver runs: rolled back, exchanged for an older copy, deleted.

A query that is refused gets its newest checkpoint back, as its error says. One whose checkpoint is deleted is refused,
too, told by the value of `newCheckpoint` in the error how it goes on, and gets an output that is new, as the
documentation says; so nothing may be missing from the outputs together, and nothing may be twice in one of an exact
sink. The option is never removed: it counts once.
"""

import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

KINDS = ("roll back", "older copy", "continue", "replay")
REFUSALS = ("OFFSET_GONE", "PLAN_UNKNOWN", "GROUP_HAS_PROGRESS", "BATCH_CHANGED", "does not know it")
NOT_EMPTY = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
BATCHES_MOST = 4


@dataclass
class HandledQuery:
    """How its driver shall start it."""

    output: int = 0
    """Which of its outputs it writes; each has a checkpoint of its own."""
    decision: str = ""
    """`newCheckpoint`, for the last checkpoint that was deleted and refused."""


def handled(folder: Path) -> tuple[str, dict[str, HandledQuery]]:
    """(hold, queries), as the hands have left them for the driver."""
    found = json.loads((folder / "hands.json").read_text())
    return found["hold"], {name: HandledQuery(**query) for name, query in found["queries"].items()}


def checkpoint_of(folder: Path, name: str, output: int) -> Path:
    return folder / f"checkpoint-{name}-{output}"


class Hands:
    def __init__(
        self, folder: Path, names: Iterable[str], drawn: random.Random, hold: str, say: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._random = drawn
        self._hold = hold
        self._say = say
        self.queries = {name: HandledQuery() for name in names}
        self._doubtful: dict[str, str] = {}
        """Queries that have not come back to where they were, and what was done to them."""
        self._lost: dict[str, str] = {}
        """Queries whose checkpoints were deleted, and how they shall go on when they are refused."""
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._note()

    def between(self) -> None:
        """After one driver and before the next: something to one query, and copies for later."""
        for name in self.queries:
            self._look(name)
        name = self._random.choice(sorted(self.queries))
        if name not in self._doubtful and self._numbers(self._checkpoint(name)):
            self.do(name, self._random.choice(KINDS))
        for other in self.queries:
            if other not in self._doubtful and self._random.random() < 0.4:
                self.copy(other)

    def copy(self, name: str) -> None:
        """The checkpoint, to be put back later."""
        self._keep(name, "older")

    def was_refused(self, why: str) -> bool:
        """Whether a query has ended because of what was done to its checkpoint; then it has its newest one again."""
        for name in list(self._doubtful):
            self._look(name)
        if NOT_EMPTY in why:
            return self._clear(why)
        for name, kind in self._lost.items():
            printed = re.search(rf"newCheckpoint=({kind}:[0-9a-f]{{16}}), ", why)
            if f"work.{name}" in why and printed:
                self._say(f"{name} was refused without a checkpoint")
                self.refused[kind] += 1
                self.queries[name].decision = printed[1]
                self._note()
                return True
        for name, kind in self._doubtful.items():
            if f"work.{name}" in why and any(refusal in why for refusal in REFUSALS):
                self._say(f"{name} was refused after: {kind}")
                self.refused[kind] += 1
                self._restore(name, "newest")
                del self._doubtful[name]
                return True
        return False

    def _clear(self, why: str) -> bool:
        """A driver was killed while it planned batch 0: Spark refuses the checkpoint that it has left."""
        for name in self.queries:
            checkpoint = self._checkpoint(name)
            if str(checkpoint) in why and not self._numbers(checkpoint):
                self._say(f"{name} was refused by Spark: its driver was killed while it planned batch 0")
                shutil.rmtree(checkpoint)
                self.refused["by Spark"] += 1
                return True
        return False

    def do(self, name: str, kind: str) -> None:
        if kind == "older copy" and not self._kept(name, "older").exists():
            kind = "roll back"
        if kind in ("roll back", "older copy"):
            self._keep(name, "newest")
            self._doubtful[name] = kind
            self._lost.pop(name, None)
        if kind == "roll back":
            self._roll_back(name, self._random.randint(1, BATCHES_MOST))
        elif kind == "older copy":
            self._restore(name, "older")
        else:
            shutil.rmtree(self._checkpoint(name))
            shutil.rmtree(self._kept(name, "older"), ignore_errors=True)
            self._lost[name] = kind
            self.queries[name] = HandledQuery(self.queries[name].output + 1, self.queries[name].decision)
        self._note()
        self.done[kind] += 1
        self._say(f"by hand, to {name}: {kind}")

    def newest(self, name: str) -> int:
        """The newest batch that Spark has planned; -1 for none."""
        return max(self._numbers(self._checkpoint(name)), default=-1)

    def is_noted(self, name: str, number: int) -> bool:
        """Whether Spark has noted that the batch is done."""
        return (self._checkpoint(name) / "commits" / f"{number}").exists()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _roll_back(self, name: str, count: int) -> None:
        """Delete the newest plans and notes of what was done."""
        for number in sorted(self._numbers(self._checkpoint(name)))[-count:]:
            for log in ("offsets", "commits"):
                for file in (f"{number}", f".{number}.crc"):
                    (self._checkpoint(name) / log / file).unlink(missing_ok=True)

    def _look(self, name: str) -> None:
        """A query that has come back to where it was is as good as any other."""
        if name in self._doubtful:
            before = self._numbers(self._kept(name, "newest"))
            if max(self._numbers(self._checkpoint(name)), default=-1) > max(before):
                del self._doubtful[name]

    @staticmethod
    def _numbers(checkpoint: Path) -> list[int]:
        return [int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*")]

    def _checkpoint(self, name: str) -> Path:
        return checkpoint_of(self._folder, name, self.queries[name].output)

    def _kept(self, name: str, which: str) -> Path:
        return self._folder / f"{which}-{name}"

    def _keep(self, name: str, which: str) -> None:
        if self._numbers(self._checkpoint(name)):
            shutil.rmtree(self._kept(name, which), ignore_errors=True)
            shutil.copytree(self._checkpoint(name), self._kept(name, which))

    def _restore(self, name: str, which: str) -> None:
        shutil.rmtree(self._checkpoint(name))
        shutil.copytree(self._kept(name, which), self._checkpoint(name))

    def _note(self) -> None:
        queries = {name: vars(query) for name, query in self.queries.items()}
        (self._folder / "hands.json").write_text(json.dumps({"hold": self._hold, "queries": queries}))
