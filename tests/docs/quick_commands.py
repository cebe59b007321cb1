"""`vibemq`, `vibemq-admin` and programs of the pages, for shells: each run is a fork of one process that has imported
everything. A page has dozens of commands, and the imports of each take a second.

A run has the arguments, the environment, the folder and the open files of whoever starts it; a program imports VibeMQ's
own modules anew, since it has to name those that it uses.
"""

import atexit
import os
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from tests.crash.forked_command import CONTEXT
from vibemq import cli

PYTHON = "python"
"""Runs the program that is its only argument."""
NAMES = ("vibemq", "vibemq-admin", PYTHON)
LENGTH = struct.Struct("=Q")
NUMBER = struct.Struct("=i")
STARTER = """#!{python} -IS
import os, select, signal, socket, struct, sys
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
heard, hears = socket.socketpair()
hears.setblocking(False)
signal.set_wakeup_fd(hears.fileno())
for number in SIGNALS:
    signal.signal(number, lambda number, frame: None)
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
environment = [name + b"=" + value for name, value in os.environb.items()]
words = [os.fsencode(word) for word in [os.path.basename(sys.argv[0]), *sys.argv[1:]]]
asked = b"\\0".join([b"%d" % len(words), *words, os.fsencode(os.getcwd()), *environment])
socket.send_fds(server, [struct.pack("=Q", len(asked))], [0, 1, 2])
server.sendall(asked)
[pid] = struct.unpack("=i", server.recv(4, socket.MSG_WAITALL))
while server not in select.select([server, heard], [], [])[0]:
    for number in heard.recv(64):
        if number in SIGNALS:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass  # Its code is on the way.
[code] = struct.unpack("=i", server.recv(4, socket.MSG_WAITALL))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
"""Stands for the command, and passes on the signals that it hears from its first line on. They come by the descriptor:
a handler of Python that runs between two lines cannot wake a call that begins a moment later."""


@contextmanager
def quick_commands(folder: Path) -> Iterator[Path]:
    """A folder for PATH, made in `folder`, which has a short name; the commands work until the end of the block."""
    path = folder / "commands.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(16)
        server = CONTEXT.Process(target=_serve, args=(listener,))
        server.start()
        commands = folder / "commands"
        commands.mkdir()
        for name in NAMES:
            starter = commands / name
            starter.write_text(STARTER.format(python=sys.executable, path=str(path)), encoding="utf-8")
            starter.chmod(0o755)
        try:
            yield commands
        finally:
            server.terminate()
            server.join()


def _serve(listener: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    while True:
        asked, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os._exit(_watch(asked))
        asked.close()


def _watch(asked: socket.socket) -> int:
    """Run what is asked for, and tell how it ended. It is killed with the process that has asked."""
    size, files, _, _ = socket.recv_fds(asked, LENGTH.size, 3)
    fields = asked.recv(LENGTH.unpack(size)[0], socket.MSG_WAITALL).split(b"\0")
    pid = os.fork()
    if pid == 0:
        asked.close()
        _become([os.fsdecode(field) for field in fields], files)
    for file in files:
        os.close(file)
    asked.sendall(NUMBER.pack(pid))
    ended = os.pidfd_open(pid)
    ready, _, _ = select.select([asked, ended], [], [])
    if ended not in ready:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if ended in ready:
        asked.sendall(NUMBER.pack(code))
    return 0


def _become(fields: list[str], files: list[int]) -> None:
    """Never returns."""
    count = int(fields[0])
    words, folder, environment = fields[1 : count + 1], fields[count + 1], fields[count + 2 :]
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(variable.split("=", 1) for variable in environment)
    os.chdir(folder)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # multiprocessing has closed its own
    sys.argv = words
    code = 1
    try:
        code = _run(words)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _run(words: list[str]) -> int:
    try:
        if words[0] == PYTHON:
            _program(words[1])
        elif words[0] == "vibemq":
            cli.run()
        else:
            cli.run_admin()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    # What an interpreter does at its end.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return code


def _program(text: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("vibemq", "tests")]:
        del sys.modules[name]
    main = sys.modules["__main__"] = ModuleType("__main__")
    sys.argv = ["-c"]
    sys.path.insert(0, "")
    exec(compile(text, "<string>", "exec"), main.__dict__)
