"""The vendored libraries are those that VENDORED.md describes; `make console-vendor ARGS=--check` makes them anew."""

import hashlib
import json
import re
from pathlib import Path

from vibemq.web.console.files import STATIC

VENDOR = STATIC / "vendor"
TOOLS = Path(__file__).parents[4] / "tools" / "console"


def test_every_vendored_file_has_the_recorded_sum() -> None:
    recorded = dict(re.findall(r"\| `([\w.]+)` \| \d+ \| `([0-9a-f]{64})` \|", (VENDOR / "VENDORED.md").read_text()))
    files = {path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".css")}
    assert files == set(recorded)
    for name, digest in recorded.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name


def test_every_library_has_its_exact_version_and_its_licence() -> None:
    text = (VENDOR / "VENDORED.md").read_text()
    rows = re.findall(r"\| `[\w.]+` \| (\S+) \| (\S+) \| (\S+) \| \[(\S+)\]", text)
    locked = json.loads((TOOLS / "package-lock.json").read_text())["packages"]
    assert {row[0] for row in rows} == {"preact", "@preact/signals", "@preact/signals-core", "htm", "uplot"}
    for package, version, licence, path in rows:
        assert locked[f"node_modules/{package}"]["version"] == version
        assert licence in ("MIT", "Apache-2.0")
        assert (VENDOR / path).stat().st_size > 500


def test_wanted_versions_are_exact() -> None:
    wanted = json.loads((TOOLS / "package.json").read_text())
    for version in (wanted["dependencies"] | wanted["devDependencies"]).values():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
