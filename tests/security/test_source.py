"""S9, S14, S17, S18: what stands in the source once and for all."""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vibemq.auth.matrix import ADMIN, COMMANDS, CREATE, DELETE, PURGE, SELF
from vibemq.operations import AUDITED_COMMANDS, OPERATIONS
from vibemq.plugins import names

PACKAGE = Path(__file__).parents[2] / "vibemq"
BROKER = ("auth", "engine", "model", "operations", "protocols", "server", "storage", "web")
DIALS = {"create_connection", "open_connection", "open_unix_connection", "connect_tcp", "urlopen", "sendto"}
CLIENTS = {"urllib.request", "http.client", "httpx", "aiohttp", "requests", "smtplib", "ftplib", "vibemq.client"}
EXECUTES = {"eval", "exec", "compile", "__import__", "system", "popen"}
DESERIALISERS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "jsonpickle"}
ONLY_READS = ("list", "info", "metrics", "show", "check", "checks", "settings", "allowed", "consumers")


@dataclass(frozen=True, slots=True)
class Source:
    """What one file imports, and the names of what it calls."""

    file: str
    imports: frozenset[str]
    calls: frozenset[str]


@cache
def sources(*rooms: str) -> list[Source]:
    places = [PACKAGE / room for room in rooms]
    files = [file for place in places for file in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]
    return [source_of(file) for file in files]


@cache
def source_of(file: Path) -> Source:
    return read(str(file.relative_to(PACKAGE)), file.read_text())


def read(file: str, text: str) -> Source:
    imports, calls = set[str](), set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            imports.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            calls.add(node.func.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            # Words of these modules mean something else.
            named = isinstance(owner, ast.Name) and owner.id in ("re", "sqlite3")
            calls.add(f"{owner.id}.{node.func.attr}" if named and isinstance(owner, ast.Name) else node.func.attr)
    return Source(file, frozenset(imports), frozenset(calls))


def test_the_broker_connects_to_nobody() -> None:
    broker = sources(*BROKER)
    assert len(broker) > 150
    assert {(source.file, name) for source in broker for name in source.imports & CLIENTS} == set()
    # The guard of its calls is what test_outbound_calls.py attacks; nobody else has a way out.
    guarded = {("server/outbound/connection.py", "create_connection")}
    assert {(source.file, name) for source in broker for name in source.calls & DIALS} == guarded
    # Sessions and routers have a `connect` of their own.
    assert {source.file for source in broker if "connect" in source.calls and "socket" in source.imports} == set()


def test_nothing_is_executed_that_was_read() -> None:
    everything = sources(*BROKER, "client", "cli", "config.py", "settings.py", "sync", "plugins.py")
    assert {(source.file, name) for source in everything for name in source.imports & DESERIALISERS} == set()
    assert {(source.file, name) for source in everything for name in source.calls & EXECUTES} == set()


def test_the_look_at_the_source_sees_what_it_is_for() -> None:
    source = read("x", "import pickle\nfrom urllib import request\neval(x)\nre.compile(y)\nsocket.create_connection(z)")
    assert source.imports == {"pickle", "urllib", "urllib.request"}
    assert source.calls == {"eval", "re.compile", "create_connection"}


def test_every_operation_that_changes_something_for_others_is_logged() -> None:
    changing = {o.name for o in OPERATIONS if {ADMIN, SELF} & {*o.permissions}}
    changing = {name for name in changing if not name.endswith(ONLY_READS)}
    assert changing >= {"user.add", "user.remove", "user.grant", "token.create", "connections.close", "storage.backup"}
    audited = {operation.name for operation in OPERATIONS if operation.audited}
    assert changing <= audited
    assert {"dlq.purge", "dlq.replay", "dead.redrive"} <= audited


def test_every_command_that_changes_or_removes_what_others_have_is_logged() -> None:
    """By their permissions; a new one needs an operation that says so."""
    changing = {kind for kind, row in COMMANDS.items() if {CREATE, DELETE, PURGE} & {*row}}
    assert changing == set(AUDITED_COMMANDS)
    removing = {o.name for o in OPERATIONS if {CREATE, DELETE, PURGE} & {*o.permissions}}
    assert removing <= {operation.name for operation in OPERATIONS if operation.audited}


def test_only_these_protocols_are_spoken() -> None:
    assert names("protocols") == ["blazingmq", "eventmesh", "eventmesh-http", "native", "omq"], (
        "a new protocol needs its own tests of S1, S4 and S18"
    )
