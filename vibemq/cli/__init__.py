"""The command line: `vibemq` for those who publish and consume, `vibemq-admin` for those who operate.

One file per subcommand; `main.py` and `admin/main.py` only list them. Shared by all: `lazy` (a verb is imported when
it is used), `flags` (options that mean the same everywhere), `values` (text to numbers), `output` and `progress` (one
place decides text, JSON, terminal or pipe), `online` (one connection for one command), `exits` (exit codes).
"""

import gc
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from typing import TextIO

_INTERRUPTED = 130
_YOUNG_THRESHOLD = 50_000
"""New objects before a collection. Nothing that a command imports is garbage, and with Python's own threshold it is
looked through hundreds of times: an eighth of the processor time of a start."""


def run() -> None:
    """Entry point of the script `vibemq`."""
    _run("vibemq.cli.main")


def run_admin() -> None:
    """Entry point of the script `vibemq-admin`."""
    _run("vibemq.cli.admin.main")


def _run(module: str) -> None:
    """Ctrl-C ends a command without a traceback at any time, also while it is still being imported."""
    gc.set_threshold(_YOUNG_THRESHOLD)
    _fill_closed_streams()
    as_json = "--json" in sys.argv
    _write_everything(sys.stdout, json=as_json)
    _write_everything(sys.stderr, json=as_json)
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(_INTERRUPTED))
    main = import_module(module).main
    signal.signal(signal.SIGINT, usual)
    code = main()
    _flush_or_drop(sys.stdout)
    _flush_or_drop(sys.stderr)
    if code == _INTERRUPTED:
        # Nothing may wait any more, not even for a thread that reads standard input.
        os._exit(code)
    sys.exit(code)


def _write_everything(stream: TextIO, *, json: bool) -> None:
    """What the encoding of the locale has no letters for, and bytes of a file's name that are no text, are written as
    escapes. JSON is UTF-8, whatever the locale."""
    if isinstance(stream, TextIOWrapper):
        # What the descriptor is may have changed since the stream was made, in a process that was forked.
        with suppress(OSError):
            stream.reconfigure(encoding="utf-8" if json else None, errors="backslashreplace")


def _flush_or_drop(stream: TextIO) -> None:
    """What its reader, or its disk, does not take has been told. Python would try it once more at the end, say so in
    words of its own, and change the exit code."""
    try:
        stream.flush()
    except OSError:
        try:
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return  # Of descriptors, there are none either.
        os.dup2(null, stream.fileno())
        os.close(null)


def _fill_closed_streams() -> None:
    """A standard stream that was closed is as /dev/null. Else its number goes to the next file or socket, and what is
    meant for the stream is written into that."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
