"""What the console's own files may not do, read from the files themselves."""

import re
from pathlib import Path

import pytest

from vibemq.auth.rules import ACTIONS
from vibemq.web.console.files import STATIC

OWN = sorted(
    path for path in STATIC.rglob("*") if path.suffix in (".js", ".html", ".css") and "vendor" not in path.parts
)
FORBIDDEN = {
    "markup from text": r"(?i:inner|outer)HTML|insertAdjacentHTML|SetInnerHTML|document\.write|DOMParser|srcdoc",
    "code from text": r"\beval\(|new Function\(|javascript:|\bimport\((?!\"\.\./vendor/)",
    "inline script or style in markup": r"<script>|<style|\son[a-z]+=[\"']|\sstyle=\"",
    "another origin": r"https?://(?!www\.w3\.org/2000/svg)",
    "a URL from the root": r"(?:href|src)=[\"']/|location\.assign\([`\"']/",
    "data and blob URLs": r"\b(?:data|blob):[a-z]",
    "a secret that stays": r"(?:localStorage|sessionStorage)\.setItem\([^)]*(?:token|password|secret)",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_has_what_is_forbidden(what: str) -> None:
    found = [
        f"{path.relative_to(STATIC)}: {match[0]!r}"
        for path in OWN
        for match in re.finditer(FORBIDDEN[what], path.read_text())
    ]
    assert not found


def test_every_module_that_is_imported_is_there() -> None:
    for path in OWN:
        for name in re.findall(r'(?:from|^import) "(\.[^"]+)"', path.read_text(), re.MULTILINE):
            assert (path.parent / name).resolve().is_file(), f"{path.name} imports {name}"


def test_pure_modules_know_no_page() -> None:
    for path in (STATIC / "pure").iterdir():
        text = path.read_text()
        assert not re.search(r"\b(?:document|window|location|localStorage|fetch)\b[.(]", text), path.name
        assert all(name.startswith("./") for name in re.findall(r'from "([^"]+)"', text)), path.name


def test_names_from_outside_are_isolated() -> None:
    """A row's own text goes through Outside or Name: what is put into markup as it is must be one of our own words."""
    risky = r"(?<!=)\$\{(?:row\.|data\.|told\.|message\.)?(?:payload|error|client|client_name|remote|user_agent|note)\}"
    found = [f"{path.name}: {match[0]}" for path in OWN for match in re.finditer(risky, path.read_text())]
    assert not found


def test_names_are_isolated_in_titles_notices_and_buttons_too() -> None:
    """Whoever may consume chooses those of groups, of any characters; those of queues and users may have fillers, or
    come from the settings."""
    row = r"(?:title: |title=\$\{|say\(|>)`?[^`<>{]*(?:\$\{kindOf\(row\)\} )?\$\{row\.(?:group|queue)\}"
    risky = row + r"|(?:title: |title=\$\{|say\()[^<>\n]*\$\{(?:user(?:\.user)?|queue|pattern)\}|<bdi>\$\{"
    found = [f"{path.name}: {match[0]}" for path in OWN for match in re.finditer(risky, path.read_text())]
    assert not found


def test_files_are_short() -> None:
    long = [path.name for path in OWN if len(path.read_text().splitlines()) > 400]
    assert not long
    crowded = [folder.name for folder in {path.parent for path in OWN} if len(_files(folder)) > 16]
    assert not crowded


def test_every_action_that_can_be_allowed_is_explained() -> None:
    text = (STATIC / "pages" / "access.js").read_text()
    meanings = text.partition("MEANINGS = {")[2].partition("};")[0]
    explained = re.findall(r'^  (\w+): "[^"]+",$', meanings, re.MULTILINE)
    assert sorted(explained) == sorted({action.value for actions in ACTIONS.values() for action in actions})


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]
