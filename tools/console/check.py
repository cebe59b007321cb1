"""Types and lint of the console's source: TypeScript over its JSDoc, and Biome, in the exact versions of
`checked/package-lock.json`.

Both read a copy in `build/console-check`, where the vendored bundles have the types of their packages and the answers
of the API those of its description. Needs node and npm; the packages are fetched once.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tools.console.npm import NotFetched, install
from tools.console.types import answer_types

ROOT = Path(__file__).parents[2]
CHECK = Path(__file__).parent / "checked"
STATIC = ROOT / "vibemq" / "web" / "console" / "static"
ROOM = ROOT / "build" / "console-check"
VENDORED = {"ui.d.ts": None, "uplot.d.ts": "declare const uPlot: any;\nexport default uPlot;\n"}
"""Types in place of the bundles; None: a file of `checked/`."""
LOCK = "package-lock.json"


def main() -> None:
    try:
        fetch()
    except NotFetched as error:
        sys.exit(f"npm cannot fetch what {CHECK / LOCK} names:\n{error}")
    found = findings()
    print(found or "types and lint of the console: nothing to mend")
    sys.exit(bool(found))


def fetch(room: Path = ROOM) -> None:
    """The packages, unless they are there in these versions. Raises NotFetched."""
    installed = room / ".installed"
    lock = (CHECK / LOCK).read_bytes()
    if installed.is_file() and installed.read_bytes() == lock:
        return
    room.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", LOCK):
        shutil.copy(CHECK / name, room)
    install(room)
    installed.write_bytes(lock)


def findings(room: Path = ROOM, static: Path = STATIC) -> str:
    """What the tools say; "" when they are content."""
    _copy(room, static)
    tools = room / "node_modules" / ".bin"
    said = (
        _run(room, str(tools / "tsc"), "-p", "."),
        _run(room, str(tools / "biome"), "lint", "--error-on-warnings", "--colors=off", "static"),
    )
    return "\n".join(filter(None, said))


def _copy(room: Path, static: Path) -> None:
    copy = room / "static"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(static, copy, ignore=shutil.ignore_patterns("vendor"))
    for name in ("tsconfig.json", "biome.jsonc", "globals.d.ts"):
        shutil.copy(CHECK / name, room)
    (room / "api.d.ts").write_text(answer_types())
    for name, text in VENDORED.items():
        target = copy / "vendor" / name
        target.parent.mkdir(exist_ok=True)
        target.write_text((CHECK / name).read_text() if text is None else text)


def _run(room: Path, *command: str) -> str:
    run = subprocess.run(command, cwd=room, capture_output=True, text=True)
    return "" if run.returncode == 0 else (run.stdout + run.stderr).strip() or f"{command[0]}: {run.returncode}"


if __name__ == "__main__":
    main()
