"""Comments, docstrings and pages name modules, classes and attributes that exist."""

import ast
import importlib
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.xdist_group("prose")  # They share what they have read.

REPOSITORY = Path(__file__).parents[2]
PYTHON = sorted(path for room in ("vibemq", "tests", "bench") for path in (REPOSITORY / room).rglob("*.py"))
PAGES = sorted([*(REPOSITORY / "docs").rglob("*.md"), *REPOSITORY.glob("*.md")])
HISTORY = {"CHANGELOG.md"}
"""Names what was."""
A_USERS_OWN = {
    "docs/howto/blazingmq.md": {"shop.py"},
    "docs/howto/processes.md": {"shop.py"},
    "docs/howto/spark/run.md": {"job.py"},
    "docs/tutorial/first-steps.md": {"consume.py", "worker.py"},
    "vibemq/storage/migrate.py": {"NNNN_name.py"},
}
OF_OTHERS = {
    "AvailableNow",
    "Class.name",
    "Client.t",
    "Int64.of_string",
    "Sexp.to_string",
    "Time.t",
    "Trigger.AvailableNow",
    "msgspec.Struct",
    "struct.Struct",
}
"""Names of OCaml, Spark, other libraries and the standard library, and what stands for a name."""

FILE = re.compile(r"(?<![\w/.*{-])(?:\w+/)*\w+\.py\b")
NO_MODULES = {"vibemq.audit", "vibemq.attempt", "vibemq.sequence"}
"""A logger, and attributes of spans."""
DOTTED = re.compile(r"`(vibemq(?:\.\w+)+)")
PAIR = re.compile(r"`(\w+)\.(\w+)(?:\([^`]*\))?`")
FILE_ENDINGS = {"damaged", "repaired", "sqlite"}


class Place(NamedTuple):
    file: str
    line: int
    name: str


@cache
def source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def prose(path: Path) -> list[tuple[int, str]]:
    """(first line, text) of a page, or of the comments and docstrings of a module."""
    if path.suffix == ".md":
        return [(1, source(path))]
    return [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(source(path)).readline)
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""'))
    ]


def found(pattern: re.Pattern[str], paths: list[Path]) -> Iterator[tuple[Path, Place, re.Match[str]]]:
    for path in paths:
        if not pattern.search(source(path)):
            continue
        for line, text in prose(path):
            for match in pattern.finditer(text):
                at = line + text[: match.start()].count("\n")
                yield path, Place(str(path.relative_to(REPOSITORY)), at, match[0]), match


def stands(path: Path, name: str) -> bool:
    """A page may name a file without its folder. A module names one from its own folder, or from one above."""
    if path.suffix == ".md":
        return any(each.parts[-len(Path(name).parts) :] == Path(name).parts for each in PYTHON)
    return any((folder / name).exists() for folder in (*path.parents, REPOSITORY / "vibemq"))


def exists(dotted: str) -> bool:
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            thing: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(thing, part) and part not in getattr(thing, "__annotations__", {}):
                return False
            thing = getattr(thing, part, None)
        return True
    return False


def named(node: ast.AST) -> Iterator[str]:
    for field in ("name", "id", "attr", "arg"):
        if isinstance(value := getattr(node, field, None), str):
            yield value
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
        yield node.value


@cache
def defined(name: str) -> set[str]:
    """Every name in the modules and classes that are called so."""
    names: set[str] = set()
    for path in PYTHON:
        is_module = path.stem == name
        if is_module or f"class {name}" in source(path):
            tree = ast.parse(source(path))
            classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name]
            for scope in [tree] if is_module else classes:
                names.update(*map(named, ast.walk(scope)))
    return names


def test_files_that_are_named_exist() -> None:
    paths = [path for path in PYTHON + PAGES if path.name not in HISTORY]
    gone = [
        place
        for path, place, _ in found(FILE, paths)
        if not stands(path, place.name) and Path(place.name).name not in A_USERS_OWN.get(place.file, ())
    ]
    assert gone == []


def test_names_of_the_package_can_be_imported() -> None:
    pytest.importorskip("pyarrow")
    gone = [
        place
        for _, place, match in found(DOTTED, PYTHON + PAGES)
        if match[1].rsplit(".", 1)[1] not in FILE_ENDINGS and match[1] not in NO_MODULES and not exists(match[1])
    ]
    assert gone == []


def test_what_a_module_or_class_is_said_to_have_is_there() -> None:
    """A class of a module, and an attribute of a class; other pairs may speak of variables."""
    gone = []
    for _, place, match in found(PAIR, PYTHON):
        first, second = match[1], match[2]
        module = first.islower() and second[0].isupper() and first not in ("lmdb", "vibemq")
        class_ = first[0].isupper() and not first.isupper()
        if (module or class_) and second not in defined(first):
            gone.append(place)
    strangers = [place for place in gone if place.name.strip("`") not in OF_OTHERS]
    assert strangers == []
