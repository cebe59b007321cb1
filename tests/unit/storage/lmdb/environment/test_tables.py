"""What LMDB's errors mean, and what an operator does about them."""

from pathlib import Path

import lmdb
import pytest

from vibemq.errors import StorageFailed
from vibemq.storage.lmdb.environment.tables import translated


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (lmdb.MemoryError("Cannot allocate memory"), r"; .*`ulimit -v`, `LimitAS=` .*, then restart to recover$"),
        (lmdb.ReadersFullError("full"), r": full; restart to recover$"),
    ],
)
def test_what_a_restart_alone_would_meet_again_is_said(tmp_path: Path, error: lmdb.Error, remedy: str) -> None:
    with pytest.raises(StorageFailed, match=remedy), translated(str(tmp_path / "data.mdb")):
        raise error
