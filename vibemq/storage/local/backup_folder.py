"""Where a backup may be written."""

from pathlib import Path

from vibemq.errors import InvalidOptions


def refuse_inside(target: Path, data_dir: Path) -> None:
    """Keep a backup out of the directory that it is a copy of: what destroys the one would destroy the other.

    Raises:
        InvalidOptions: the folder is the data directory, or in it.
        OSError: a part of one of the paths cannot be looked at.
    """
    if target.resolve().is_relative_to(data_dir.resolve()):
        raise InvalidOptions(f"the backup folder {target} is in the data directory; choose a folder outside it")
