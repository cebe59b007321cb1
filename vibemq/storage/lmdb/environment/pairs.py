"""Every pair of a store whose pages may be broken, read in a process that may die of it.

LMDB trusts its pages: a broken one can end the process that reads it (a failed assertion, a wild pointer). So a child
reads, and hands over each pair as soon as it has it; it runs this module with `FOLDER forward|backward`.

    key size u32 BE | value size u32 BE | key | value
"""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import lmdb

from vibemq.errors import StorageDamaged
from vibemq.storage.lmdb.environment.env import DATA_FILE, open_reader
from vibemq.storage.local.child import command_of

_SIZES = struct.Struct("!II")


def read_pairs(folder: Path, *, backward: bool) -> Iterator[tuple[bytes, bytes]]:
    """Pairs in the order of their keys, or the other way round.

    Raises:
        StorageDamaged: LMDB could not go on; what came before is whole.
    """
    direction = "backward" if backward else "forward"
    # The command is this interpreter and a path from the settings; no shell reads it.
    child = subprocess.Popen(  # noqa: S603
        command_of("vibemq.storage.lmdb.environment.pairs", str(folder), direction),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        yield from _pairs_from(child.stdout)
        words = child.stderr.read().decode(errors="replace").strip()
        if child.wait() != 0:
            last = words.splitlines()[-1] if words else "without a word"
            raise StorageDamaged(
                f"its reader ended with code {child.returncode} ({last})", path=str(folder / DATA_FILE)
            )
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()


def _pairs_from(stream: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    while len(head := stream.read(_SIZES.size)) == _SIZES.size:
        key_size, value_size = _SIZES.unpack(head)
        pair = stream.read(key_size + value_size)
        if len(pair) < key_size + value_size:
            return
        yield pair[:key_size], pair[key_size:]


def main(folder: str, direction: str) -> int:
    out = sys.stdout.fileno()
    try:
        with open_reader(Path(folder)) as env, env.begin() as transaction, transaction.cursor() as cursor:
            for key, value in cursor.iternext() if direction == "forward" else cursor.iterprev():
                _write_all(out, _SIZES.pack(len(key), len(value)) + bytes(key) + bytes(value))
    except lmdb.Error as error:
        print(error, file=sys.stderr)  # noqa: T201  # the parent reads it
        return 1
    return 0


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
