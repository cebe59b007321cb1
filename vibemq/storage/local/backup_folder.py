"""Where a backup may be written, and what becomes of one that fails."""

import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from vibemq.errors import InvalidOptions

logger = logging.getLogger(__name__)


def refuse_inside(target: Path, data_dir: Path) -> None:
    """Keep a backup out of the directory that it is a copy of: what destroys the one would destroy the other.

    Raises:
        InvalidOptions: the folder is the data directory, or in it.
    """
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(data_dir)):
        raise InvalidOptions(f"the backup folder {target} is in the data directory; choose a folder outside it")


def remove_unfinished(parts: Sequence[Path]) -> None:
    """Of a backup that has failed: its folder serves for the next try."""
    for part in parts:
        try:
            if part.is_dir():
                shutil.rmtree(part)
            else:
                part.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("%s, a part of an unfinished backup, stays (%s): remove it before the next try", part, error)
