"""What a room keeps to itself, a name with an underscore before it, is not used by other rooms."""

import ast
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PRODUCT = REPOSITORY / "vibemq"
OF_THE_PACKAGE = {"vibemq._version"}
"""Stands beside the rooms, for all of them."""
OF_NAMED_TUPLES = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}


def module_of(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in OF_NAMED_TUPLES


def room_of(module: str) -> str:
    """The folder of a module."""
    path = REPOSITORY.joinpath(*module.split("."))
    return module if path.is_dir() else module.rpartition(".")[0]


def borrowed(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """(line, name) of every private name of another room that a module imports, or takes from an imported module."""
    room, modules = room_of(module_of(path)), {}
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "vibemq":
            for each in node.names:
                whole = f"{node.module}.{each.name}"
                modules[each.asname or each.name] = whole
                private = any(map(is_private, whole.split(".")))
                if private and node.module not in OF_THE_PACKAGE and room_of(str(node.module)) != room:
                    yield node.lineno, whole
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and is_private(node.attr):
            whole = modules.get(node.value.id)
            if whole is not None and room_of(whole) != room:
                yield node.lineno, f"{whole}.{node.attr}"


def test_no_room_uses_a_private_name_of_another() -> None:
    found = {
        f"{path.relative_to(REPOSITORY)}:{line}": name
        for path in sorted(PRODUCT.rglob("*.py"))
        for line, name in borrowed(path, path.read_text(encoding="utf-8"))
    }
    assert found == {}


def test_a_borrowed_name_is_found() -> None:
    text = "from vibemq.engine import views\nfrom vibemq.engine.views import _x\nviews._first_sequence()\n"
    assert list(borrowed(PRODUCT / "server" / "broker.py", text)) == [
        (2, "vibemq.engine.views._x"),
        (3, "vibemq.engine.views._first_sequence"),
    ]
    assert list(borrowed(PRODUCT / "engine" / "engine.py", text)) == []
