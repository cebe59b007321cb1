"""Putting a repaired store in the place of the damaged one, so that a kill at any step leaves one of the two there.

    place                      the store: a file or a folder, maybe with companions named like it with a suffix
    place.repairing            the repaired one, while it is made
    place.repaired             the same, complete and flushed
    place.damaged-<time>       what was in the place

The damaged store leaves its place before its companions do, and the repaired one takes the place last. So a place that
is empty beside a `place.repaired` is a replacement that was interrupted; whoever opens the store next completes it.
"""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from vibemq.errors import StorageDamaged
from vibemq.storage.local.replace import flush_tree, unused
from vibemq.storage.local.store_file import fsync_folder


def begin_repair(place: Path, companions: Sequence[str] = ()) -> Path:
    """The name for the repaired store; what an earlier repair left half made is gone.

    Call `finish_repair` first.
    """
    for path in (_repairing(place), _repaired(place)):
        for suffix in ("", *companions):
            _remove(_beside(path, suffix))
    return _repairing(place)


def take_place(place: Path, companions: Sequence[str] = ()) -> None:
    """Put the store that was made under the name of `begin_repair`, and is closed, in its place."""
    flush_tree(_repairing(place))
    os.rename(_repairing(place), _repaired(place))
    fsync_folder(place.parent)
    if place.exists():
        os.rename(place, unused(_beside(place, f".damaged-{_now()}")))
        fsync_folder(place.parent)
    finish_repair(place, companions)


def finish_repair(place: Path, companions: Sequence[str] = ()) -> bool:
    """Complete a replacement that was interrupted; whether there was one."""
    if not is_interrupted(place):
        return False
    damaged = _damaged(place, companions)
    for suffix in companions:
        old = _beside(place, suffix)
        if old.exists():
            os.rename(old, unused(_beside(damaged, suffix)))
    fsync_folder(place.parent)
    os.rename(_repaired(place), place)
    fsync_folder(place.parent)
    return True


def is_interrupted(place: Path) -> bool:
    """Whether `finish_repair` would complete a replacement."""
    return not place.exists() and _repaired(place).exists()


def refuse_unfinished(place: Path) -> None:
    """Raise StorageDamaged for a store whose repair was interrupted, where nothing may be changed."""
    if is_interrupted(place):
        raise StorageDamaged(
            "a repair was interrupted when it was nearly done: the repaired store is not yet",
            path=str(place),
            hint="run `vibemq-admin repair` again or start the broker, each of which completes it",
        )


def _damaged(place: Path, companions: Sequence[str]) -> Path:
    """What was moved out of the place last."""
    found = place.parent.glob(f"{place.name}.damaged-*")
    names = sorted(path for path in found if not path.name.endswith(tuple(companions) or "/"))
    return names[-1] if names else _beside(place, f".damaged-{_now()}")


def _repairing(place: Path) -> Path:
    return _beside(place, ".repairing")


def _repaired(place: Path) -> Path:
    return _beside(place, ".repaired")


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _now() -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
