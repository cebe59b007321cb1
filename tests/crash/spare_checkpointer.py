"""The checkpointer of a forked broker: forked before that broker has threads, and waiting for what it has to become.

An interpreter of its own takes longer to start than the rest of such a broker. The checkpointer that follows one which
has ended is a real one.
"""

import json
import os
import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, NoReturn

from vibemq.storage.lmdb.checkpoint import checkpointer, checkpointer_process

TOLD_BYTES_MAX = 1 << 20


def keep_a_spare_checkpointer() -> None:
    """For the first one that this process starts."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if not pid:
        ours.close()
        _wait(theirs)
    theirs.close()
    spares = [(pid, ours)]

    class Begun(subprocess.Popen[str]):
        """Of a process that is there already; the pipes are those of any other."""

        def _execute_child(self, args: list[str], *options: Any) -> None:
            if not spares:
                super()._execute_child(args, *options)  # type: ignore[misc]
                return
            self.pid, told = spares.pop()
            # As Popen calls it: behind the environment are three options, then both ends of three pipes.
            environment, (stdin, _, _, stdout) = options[5], options[9:13]
            words = args[args.index(checkpointer.__name__) + 1 :]
            with told:
                socket.send_fds(told, [json.dumps([words, environment]).encode()], [stdin, stdout, 2])
            for end in (stdin, stdout):
                os.close(end)
            self._child_created = True

    checkpointer_process.subprocess = SimpleNamespace(  # type: ignore[assignment]
        PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired, Popen=Begun
    )


def _wait(orders: socket.socket) -> NoReturn:
    """In the child. Whoever reads what the broker says reads its end without this one's, too."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    code = 0
    try:
        told, files, _, _ = socket.recv_fds(orders, TOLD_BYTES_MAX, 3)
        if told:
            code = _become(*json.loads(told), files)
    finally:
        os._exit(code)


def _become(words: list[str], environment: dict[str, str], files: list[int]) -> int:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    # multiprocessing has closed what was there.
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    return checkpointer.main(words)
