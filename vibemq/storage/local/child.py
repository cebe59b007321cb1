"""Processes of our own: another interpreter that runs one of our modules."""

import json
import sys

_BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def command_of(module: str, *arguments: str) -> list[str]:
    """The command that runs a module as `python -m` does, but finds what this process finds, and no more: with `-m` the
    working directory comes first, and a user's file in it would stand for a module of the standard library."""
    path = [entry for entry in sys.path if isinstance(entry, str)]
    return [sys.executable, "-P", "-c", _BEGIN, json.dumps(path), module, *arguments]
