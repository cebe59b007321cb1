"""The console under node, where there is one: its pure parts run, all of it is read by TypeScript and Biome, and
what it vendors is made anew."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tools.console.check import STATIC, fetch, findings
from tools.console.npm import NotFetched
from tools.console.vendor import TARGET, TESTS, build, compare
from vibemq.web.console.files import read_assets

NODE = shutil.which("node")

COMPILE = """
for (const file of process.argv.slice(1)) {
  try { new (require('node:vm').SourceTextModule)(require('node:fs').readFileSync(file, 'utf8'), { identifier: file }) }
  catch { console.log(file) } }"""
"""Prints the files that are no modules of JavaScript."""

pytestmark = pytest.mark.skipif(NODE is None, reason="no node on the path (Debian: apt-get install nodejs npm)")


def test_the_pure_parts_of_the_console() -> None:
    assert NODE is not None
    run = subprocess.run([NODE, "--test", str(Path(__file__).parent / "node")], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:]


def test_what_is_served_without_comments_compiles(tmp_path: Path) -> None:
    assert NODE is not None
    for name, asset in read_assets().items():
        if name.endswith(".js") and not name.startswith("vendor/"):
            served = tmp_path / name.replace("/", "-").replace(".js", ".mjs")
            served.write_bytes(asset.content)
    files = sorted(map(str, tmp_path.iterdir()))
    assert len(files) > 40
    (tmp_path / "broken.mjs").write_text("export const a = ;\n")
    command = [NODE, "--experimental-vm-modules", "--no-warnings", "-e", COMPILE, "--", *files]
    run = subprocess.run([*command, str(tmp_path / "broken.mjs")], capture_output=True, text=True)
    assert (run.stdout.split(), run.returncode) == ([str(tmp_path / "broken.mjs")], 0), run.stderr


def test_typescript_and_biome_find_nothing_to_mend_but_what_was_broken(tmp_path: Path) -> None:
    """Both in one test: they share a copy of the source."""
    try:
        fetch()
    except NotFetched as error:
        pytest.skip(f"TypeScript and Biome: {error}")
    assert findings() == ""
    broken = tmp_path / "static"
    shutil.copytree(STATIC, broken)
    page = broken / "pages" / "jobs.js"
    page.write_text(page.read_text().replace("job.rate_now", "job.rate_then") + "\nconst unused = 1;\n")
    found = findings(static=broken)
    assert "'rate_then' does not exist" in found
    assert "noUnusedVariables" in found


def test_the_vendored_files_are_those_that_npm_and_esbuild_make(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `make console-vendor ARGS=--check` does."""
    made, made_for_tests = tmp_path / "vendor", tmp_path / "tests"
    try:
        build(tmp_path, made, made_for_tests)
    except NotFetched as error:
        pytest.skip(f"what is vendored cannot be made anew: {error}")
    assert (compare(made, TARGET), compare(made_for_tests, TESTS)) == (0, 0), capsys.readouterr().out
    (made / "ui.js").write_text("")
    assert compare(made, TARGET) == 1
    assert "not as made anew: ui.js" in capsys.readouterr().out
