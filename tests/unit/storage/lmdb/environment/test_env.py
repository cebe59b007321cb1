"""How the store's file is opened beside others."""

import subprocess
import sys
from pathlib import Path

from vibemq.storage.lmdb.environment.env import open_reader, open_writer

READ_ON = """
import sys, time
from pathlib import Path
from vibemq.storage.lmdb.environment.env import open_reader
transaction = open_reader(Path(sys.argv[1])).begin()
print("reads", flush=True)
time.sleep(600)
"""
WRITE = """
import sys
from pathlib import Path
from vibemq.storage.lmdb.environment.env import open_writer
open_writer(Path(sys.argv[1])).close()
"""


def test_the_snapshot_of_a_reader_that_was_killed_ends_when_the_next_writer_opens_the_store(tmp_path: Path) -> None:
    open_writer(tmp_path).close()
    with open_reader(tmp_path) as broker, broker.begin():
        killed = subprocess.Popen([sys.executable, "-c", READ_ON, str(tmp_path)], stdout=subprocess.PIPE)
        assert killed.stdout is not None
        with killed.stdout as words:
            assert words.readline() == b"reads\n"
        killed.kill()
        killed.wait()
        before = broker.readers().splitlines()
        subprocess.run([sys.executable, "-c", WRITE, str(tmp_path)], check=True, timeout=60)
        assert len(broker.readers().splitlines()) == len(before) - 1
