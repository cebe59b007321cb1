"""The tests stand where their modules stand; no room of the product holds more modules than a reader takes in, and no
module of the server knows everybody."""

import ast
from collections import Counter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
UNIT = REPOSITORY / "tests" / "unit"
PRODUCT = REPOSITORY / "vibemq"

MIRRORED = {"bench": REPOSITORY / "bench", "proof": REPOSITORY / "tests" / "proof"}
"""Folders of tests/unit whose modules are not the product's."""

OF_NO_MODULE = {
    "what the whole room keeps to": {
        "cli/test_commands.py",
        "cli/test_demo.py",
        "cli/test_dry_runs.py",
        "cli/test_filters.py",
        "cli/test_queue_flags.py",
        "cli/test_verbs.py",
        "client/test_client_rules.py",
        "engine/handlers/test_dry_runs.py",
        "engine/test_crowds.py",
        "engine/test_footprint.py",
        "engine/test_scaling.py",
        "operations/test_dry_runs.py",
        "operations/test_turns.py",
        "protocols/native/test_native_hot_path.py",
        "protocols/native/test_native_vectors.py",
        "protocols/omq/test_omq_vectors.py",
        "server/test_confirms.py",
        "spark/test_losses.py",
        "spark/test_pickling.py",
        "spark/test_rights.py",
        "spark/test_writing.py",
        "storage/test_damaged_letters.py",
        "storage/test_fan_out_acks.py",
        "web/console/test_vendored.py",
    },
    "what a script beside the product does": {
        "test_ids.py",
        "test_long_tests.py",
        "test_json_of_peers.py",
        "test_no_wall_time.py",
        "test_private_names.py",
        "test_run.py",
        "test_rooms.py",
    },
}
"""Test files that belong to no module, by the reason."""

MODULES_MAX = 16

NAMED_TWICE = {
    "Client": "the two faces of the client, asynchronous and blocking, have the same names",
    "Publisher": "as Client",
    "Subscription": "as Client",
    "Exchange": "of the HTTP API and of EventMesh over HTTP, which do not import each other",
    "Endpoint": "of the HTTP API; Spark's executors have the address of a broker under this name",
    "Problem": "what RFC 9457 calls a refusal over HTTP; storage has what a check has found under this name",
    "ConnectionLost": "Spark's executors import nothing of ours, the errors neither",
}
"""Public classes whose name another one has, by the reason."""

KNOWN_MAX = 9
"""Modules of the server that one of them imports."""
PUT_IT_TOGETHER = {"assembly.py", "assembling/handlers.py", "broker.py"}
"""They make the parts of a broker and hold them: somebody has to know them all."""


def home_of(test: Path) -> Path:
    """The folder that a folder of tests mirrors."""
    first, *rest = test.parent.parts or ("",)
    return MIRRORED.get(first, PRODUCT / first).joinpath(*rest)


def is_at_home(test: Path) -> bool:
    """`test_<module>.py` or `test_<module>_<subject>.py` beside the module, which may be a room of its own; the name
    of the room may stand before it."""
    home = home_of(test)
    words = test.stem.split("_")[1:]
    starts = [0] + [1] * (words[0] == home.name)
    names = ["_".join(words[start:end]) for start in starts for end in range(start + 1, len(words) + 1)]
    return any((home / f"{name}.py").exists() or (home / name).is_dir() for name in names)


TESTS = sorted(path.relative_to(UNIT) for path in UNIT.rglob("test_*.py"))


@pytest.mark.parametrize("test", TESTS, ids=str)
def test_a_test_file_stands_where_its_module_stands(test: Path) -> None:
    excused = any(str(test) in files for files in OF_NO_MODULE.values())
    assert is_at_home(test) is not excused, f"{home_of(test)} has no module of that name"


def test_what_is_excused_exists() -> None:
    assert set().union(*OF_NO_MODULE.values()) <= set(map(str, TESTS))


def test_a_room_holds_no_more_modules_than_a_reader_takes_in() -> None:
    sizes = {
        str(room.relative_to(PRODUCT)): sum(path.stem not in ("__init__", "__main__") for path in room.glob("*.py"))
        for room in {path.parent for path in PRODUCT.rglob("*.py")}
    }
    crowded = {room: size for room, size in sizes.items() if size > MODULES_MAX}
    assert crowded == {}


def server_imports(module: Path) -> set[str]:
    nodes = ast.walk(ast.parse(module.read_text()))
    names = {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name for name in names if name.startswith("vibemq.server.")}


def test_no_module_of_the_server_knows_everybody() -> None:
    server = PRODUCT / "server"
    known = {str(module.relative_to(server)): len(server_imports(module)) for module in server.rglob("*.py")}
    assert {module for module, count in known.items() if count > KNOWN_MAX} == PUT_IT_TOGETHER


def test_the_name_of_a_public_class_says_which_one_is_meant() -> None:
    trees = [ast.parse(module.read_text()) for module in PRODUCT.rglob("*.py")]
    classes = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert {name for name, count in classes.items() if count > 1 and name[0] != "_"} == NAMED_TWICE.keys()
