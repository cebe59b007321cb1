"""Links inside the repository lead somewhere, and tests that pages name are where the pages say."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY, anchors, blocks, links, pages

LANGUAGES = {"python", "sh", "text", "json", "toml", "yaml", "ini", "xml", "promql"}
LANGUAGES |= {"csharp", "ocaml", "cpp", "java", "js"}
MANNERS = {
    "python": {"sdk", "cell", "fragment", "tests", "worker"},
    "sh": {"run"},
    "text": {"output"},
    "toml": {"broker"},
}

TESTS_IN = re.compile(r"((?:`(?:test|check)_\w+`(?:, | and )?)+) in \[[^\]]+\]\(([^)#]+\.py)\)")
"""The tests that a cell names, and the file that has them."""


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_fences_say_what_they_are(page: Path) -> None:
    """A misspelt word after a fence would silently keep its block from being run."""
    for block in blocks(page):
        language, *manner = block.words or ("text",)
        assert language in LANGUAGES, block.place
        assert set(manner) <= MANNERS.get(language, set()), block.place


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [REPOSITORY / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link]
        waiting += [target for target in targets if target.is_file()]
    assert sorted(str(page.relative_to(REPOSITORY)) for page in pages() if page not in seen) == []


def test_tests_that_pages_name_are_in_the_files_that_are_linked() -> None:
    named = [
        (page, test, (page.parent / link).resolve())
        for page in pages()
        for names, link in TESTS_IN.findall(page.read_text(encoding="utf-8"))
        for test in re.findall(r"`(\w+)`", names)
    ]
    assert len(named) > 50, "the pattern finds what the tables of the page about Spark name"
    texts = {file: file.read_text(encoding="utf-8") for _, _, file in named if file.exists()}
    gone = [
        (str(page.relative_to(REPOSITORY)), test, file.name)
        for page, test, file in named
        if not re.search(rf"def {test}\(", texts.get(file, ""))
    ]
    assert gone == []
