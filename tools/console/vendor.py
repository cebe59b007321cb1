"""Makes `vibemq/web/console/static/vendor/` of exact versions, and says what it consists of.

`python -m tools.console.vendor` writes; `--check` makes the files anew in a directory of its own and compares bytes.
Needs npm. CI compares the committed bytes with the sums in VENDORED.md (`tests/unit/web/console/test_vendored.py`), and
where there is npm with those that are made anew (`tests/browser/test_node.py`).
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.console.npm import install

HERE = Path(__file__).parent
TARGET = HERE.parent.parent / "vibemq" / "web" / "console" / "static" / "vendor"
TESTS = HERE.parent.parent / "tests" / "browser" / "vendor"
"""For tests alone, so neither in the wheel nor under the licences of what is shipped."""
BUNDLES = {"ui.js": ("preact", "@preact/signals", "@preact/signals-core", "htm"), "uplot.js": ("uplot",)}
STYLES = {"uplot.css": "uplot/dist/uPlot.min.css"}
TESTED_WITH = {"axe.min.js": "axe-core/axe.min.js", "axe-core.txt": "axe-core/LICENSE"}
FLAGS = ("--bundle", "--format=esm", "--minify", "--legal-comments=none", "--target=es2022", "--charset=ascii")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what is committed, write nothing")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as room:
        made, made_for_tests = Path(room) / "vendor", Path(room) / "tests"
        build(Path(room), made, made_for_tests)
        if check:
            sys.exit(compare(made, TARGET) or compare(made_for_tests, TESTS))
        for new, old in ((made, TARGET), (made_for_tests, TESTS)):
            shutil.rmtree(old, ignore_errors=True)
            shutil.copytree(new, old)
        print((TARGET / "VENDORED.md").read_text())


def build(room: Path, made: Path, made_for_tests: Path) -> None:
    """Raises NotFetched."""
    for name in ("package.json", "package-lock.json", *BUNDLES):
        shutil.copy(HERE / name, room)
    install(room)
    modules = room / "node_modules"
    esbuild = next((modules / "@esbuild").glob("*/bin/esbuild"))
    licences = made / "licences"
    licences.mkdir(parents=True)
    for bundle in BUNDLES:
        run(room, str(esbuild), bundle, *FLAGS, f"--outfile={made / bundle}")
    for style, source in STYLES.items():
        shutil.copy(modules / source, made / style)
    made_for_tests.mkdir()
    for name, source in TESTED_WITH.items():
        shutil.copy(modules / source, made_for_tests / name)
    rows = []
    for bundle, packages in BUNDLES.items():
        for package in packages:
            about = json.loads((modules / package / "package.json").read_text())
            plain = package.removeprefix("@").replace("/", "-")
            text = next(path for path in (modules / package).iterdir() if path.name.upper().startswith("LICEN"))
            shutil.copy(text, licences / f"{plain}.txt")
            rows.append((bundle, package, about["version"], about["license"], f"licences/{plain}.txt"))
    (made / "VENDORED.md").write_text(described(made, rows, version_of(esbuild)))


def version_of(esbuild: Path) -> str:
    return subprocess.run([str(esbuild), "--version"], check=True, capture_output=True, text=True).stdout.strip()


def described(made: Path, rows: list[tuple[str, ...]], esbuild: str) -> str:
    lines = [
        "# Vendored libraries",
        "",
        f"Made by `make console-vendor` with esbuild {esbuild}; exact versions: `tools/console/package-lock.json`.",
        "",
        "| in | package | version | licence | text |",
        "|---|---|---|---|---|",
        *(
            f"| `{bundle}` | {package} | {version} | {name} | [{text}]({text}) |"
            for bundle, package, version, name, text in rows
        ),
        "",
        "`uplot.css` is a file of uplot.",
        "",
        "| file | bytes | SHA-256 |",
        "|---|---|---|",
    ]
    for name in (*BUNDLES, *STYLES):
        content = (made / name).read_bytes()
        lines.append(f"| `{name}` | {len(content)} | `{hashlib.sha256(content).hexdigest()}` |")
    return "\n".join(lines) + "\n"


def compare(made: Path, committed: Path) -> int:
    files = {path.relative_to(made) for path in made.rglob("*") if path.is_file()}
    others = {path.relative_to(committed) for path in committed.rglob("*") if path.is_file()}
    wrong = sorted(
        str(name)
        for name in files | others
        if name not in files & others or (made / name).read_bytes() != (committed / name).read_bytes()
    )
    print(
        f"not as made anew: {', '.join(wrong)}" if wrong else "the vendored files are those that npm and esbuild make"
    )
    return 1 if wrong else 0


def run(room: Path, *command: str) -> None:
    subprocess.run(command, cwd=room, check=True)


if __name__ == "__main__":
    main()
