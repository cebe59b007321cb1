"""The architecture page names files and functions that exist."""

import ast
import re

import pytest

from tests.docs.pages import DOCS, REPOSITORY

PACKAGE = REPOSITORY / "vibemq"
ROW = re.compile(r"^\| [^|]+ \| `([\w/]+\.py)` \| `([\w.]+)` \|$", re.MULTILINE)
STEPS = ROW.findall((DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8"))


def defined(path: str) -> set[str]:
    names: set[str] = set()
    for node in ast.parse((PACKAGE / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return names


def test_the_page_has_the_steps() -> None:
    assert len(STEPS) > 15


@pytest.mark.parametrize(("path", "name"), STEPS)
def test_a_step_names_a_function_of_its_file(path: str, name: str) -> None:
    assert name in defined(path)


def test_every_room_has_a_row() -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    folders = {entry.name for entry in PACKAGE.iterdir() if (entry / "__init__.py").exists()}
    assert folders == set(re.findall(r"^\| `vibemq/(\w+)` \|", page, re.MULTILINE))
