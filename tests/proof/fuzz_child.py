"""One target in a process of its own: `python -m tests.proof.fuzz_child TARGET …`. Started by `fuzz.py`.

    --engine own       our engine; the last line on stdout is its result as JSON
    --engine atheris   coverage-guided; libFuzzer's own options follow, and it ends the process itself
    --hex BYTES        this one input, with its traceback
    --file PATH        the same, from a file

A target that hangs for good or eats the memory takes this process with it and no other.
"""

import argparse
import json
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.proof.fuzz_engine import Broken, Engine, Run, Target, execute

ADDRESS_SPACE_BYTES = 4 << 30
HANG_CPU_SECONDS = 5.0
WATCHED = [
    "vibemq.protocols",
    "vibemq.storage",
    "vibemq.model",
    "vibemq.client.address",
    "vibemq.settings",
    "vibemq.config",
]
"""What a coverage-guided engine looks at."""


def fuzz(target: Target, more: Path | None, executions: int, seconds: float, seed: int) -> Run:
    """Replay the corpus (and the files in `more`), then mutate it."""
    from tests.proof.fuzz_targets import corpus

    found = [path.read_bytes() for path in sorted(more.iterdir())] if more is not None and more.is_dir() else []
    engine = Engine(target, [*corpus(target), *found], seed=seed)
    watching = threading.current_thread() is threading.main_thread()
    if watching:
        _watch(engine)
    try:
        engine.replay()
        engine.run(executions, until=time.monotonic() + seconds)
    finally:
        if watching:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return engine.result


def _watch(engine: Engine) -> None:
    """Interrupt an input that never ends: between two alarms, counted in processor time, some input must be done."""
    done = -1

    def alarm(signal_number: int, frame: object) -> None:
        nonlocal done
        if done == engine.result.executions:
            done = -1
            raise Broken(f"no answer after {HANG_CPU_SECONDS:.0f} s of processor time")
        done = engine.result.executions

    signal.signal(signal.SIGPROF, alarm)
    signal.setitimer(signal.ITIMER_PROF, HANG_CPU_SECONDS, HANG_CPU_SECONDS)


def as_json(result: Run) -> dict[str, Any]:
    crashes = [{"data": crash.data.hex(), "error": crash.error} for crash in result.crashes]
    return {"executions": result.executions, "kinds": result.kinds, "crashes": crashes}


def guided(name: str, options: list[str]) -> None:
    """Does not return."""
    import atheris

    with atheris.instrument_imports(include=WATCHED):
        from tests.proof.fuzz_targets import TARGETS
    target = TARGETS[name]

    def feed(data: bytes) -> None:
        execute(target, data)

    atheris.Setup([sys.argv[0], *options], feed)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--engine", choices=("own", "atheris"), default="own")
    parser.add_argument("--executions", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--more", type=Path, help="folder of further inputs")
    parser.add_argument("--hex", type=bytes.fromhex, dest="one")
    parser.add_argument("--file", type=lambda path: Path(path).read_bytes(), dest="one")
    arguments, rest = parser.parse_known_args()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    if arguments.engine == "atheris":
        guided(arguments.target, rest)
        return
    from tests.proof.fuzz_targets import TARGETS

    target = TARGETS[arguments.target]
    if arguments.one is not None:
        print(execute(target, arguments.one))
        return
    print(json.dumps(as_json(fuzz(target, arguments.more, arguments.executions, arguments.seconds, arguments.seed))))


if __name__ == "__main__":
    main()
