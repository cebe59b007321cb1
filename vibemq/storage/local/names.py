"""Files and their names: a file that is open may have lost its name to another one."""

import os
from pathlib import Path


def has_name(file: int, path: Path) -> bool:
    """Whether an open file is the one that `path` names now."""
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(file), named)
