"""What a replay set out to do, kept in a small file until it is done.

A replay moves dead letters in batches; the broker moves each batch whole or not at all, so no interruption can double
a message. What only the plan can know is *which* letters were meant: `--limit 50` stopped after 30 means 20 more, not
50 more. So the chosen ids are written down before the first batch and the file goes away after the last one. The same
command run again finds the file and does what is left of it.

    $XDG_STATE_HOME/vibemq/replays/<hash of broker and arguments>.json
"""

import hashlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from vibemq.model.runs import Run, run_count

VERSION = 1


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Letters chosen once. `newest_dead_at` tells them from letters of a later store that reuses the ids."""

    runs: list[Run]
    newest_dead_at: int

    @property
    def count(self) -> int:
        return run_count(self.runs)

    def ids(self) -> list[int]:
        return [dead_id for first, last in self.runs for dead_id in range(first, last + 1)]


class PlanFile:
    """The plan of one command line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, broker: str, arguments: dict[str, Any], folder: Path | None = None) -> "PlanFile":
        """The file that belongs to this broker and these arguments; they need not exist yet."""
        text = orjson.dumps([broker, arguments], option=orjson.OPT_SORT_KEYS)
        return cls((folder or state_folder()) / f"{hashlib.sha256(text).hexdigest()[:32]}.json")

    def load(self) -> ReplayPlan | None:
        """The unfinished plan; None when there is none, or the file is no plan of ours or cannot be looked at."""
        try:
            stored = orjson.loads(self.path.read_bytes())
            if stored.pop("version") != VERSION:
                return None
            return ReplayPlan([(first, last) for first, last in stored["runs"]], stored["newest_dead_at"])
        except (OSError, KeyError, ValueError, TypeError, AttributeError):
            return None

    def save(self, plan: ReplayPlan) -> None:
        """Write it whole or not at all. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self.path.with_suffix(".part")
        part.write_bytes(orjson.dumps({"version": VERSION, **asdict(plan)}))
        part.replace(self.path)

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)


def state_folder() -> Path:
    """Where this user's replays are remembered."""
    # A user without a home folder has none of that name.
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "vibemq" / "replays"
