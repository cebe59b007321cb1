"""The tables of the reference name everything there is, nothing else, and the right defaults."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from enum import IntEnum
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from tests.docs import permissions
from tests.docs.pages import DOCS, Block, blocks, pages
from vibemq import cli, errors
from vibemq.cli import exits
from vibemq.cli.admin.main import VERBS as ADMIN_VERBS
from vibemq.cli.lazy import loaded
from vibemq.cli.main import VERBS
from vibemq.client.address import ADDRESS_KEYS
from vibemq.config import Auth, Http, Limits, Listener, Log, Permission, Settings, StorageChoice, Tls, User
from vibemq.errors import ErrorCode
from vibemq.model.options import QueueOptions
from vibemq.operations.reference import reference
from vibemq.protocols.blazingmq.settings import BlazingmqSettings, Domain
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.eventmesh.settings import EventMeshSettings
from vibemq.protocols.native.settings import NativeSettings
from vibemq.protocols.omq.settings import OmqSettings
from vibemq.server.monitoring.prometheus import HISTOGRAMS, METRICS
from vibemq.server.reload.changes import when_changed
from vibemq.settings import load
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.memory.settings import MemorySettings
from vibemq.storage.sqlite.settings import SqliteSettings

REFERENCE = DOCS / "reference"
SETTINGS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("", Settings),
    ("log.", Log),
    ("listeners[].", Listener),
    ("listeners[].tls.", Tls),
    ("listeners[].settings.", NativeSettings),
    ("listeners[].settings.", OmqSettings),
    ("listeners[].settings.", BlazingmqSettings),
    ("listeners[].settings.domains.*.", Domain),
    ("listeners[].settings.", EventMeshSettings),
    ("listeners[].settings.", EventMeshHttpSettings),
    ("storage.", StorageChoice),
    ("storage.settings.", LmdbSettings),
    ("storage.settings.", SqliteSettings),
    ("storage.settings.", MemorySettings),
    ("limits.", Limits),
    ("auth.", Auth),
    ("auth.users.*.", User),
    ("auth.users.*.permissions[].", Permission),
    ("http.", Http),
)


def rows(path: Path) -> Iterator[tuple[str, str]]:
    """(first cell, second cell) of every table row whose first cell is one word of code."""
    for line in path.read_text(encoding="utf-8").splitlines():
        found = re.match(r"\| `([^`]+)` \|([^|]*)\|", line)
        if found:
            yield found[1], found[2].strip()


def shown(value: Any) -> str:
    """A default as the tables write it."""
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, str | Path):
        return str(value)
    return json.dumps(value)


MARKED = {
    prefix + name: when_changed(field) for prefix, model in SETTINGS for name, field in model.model_fields.items()
}
"""What each setting says of itself about changes; None: what its group says."""


def when(name: str) -> str:
    """What makes a change of the setting count; "" when neither it nor a group around it says so."""
    while name and not MARKED.get(name):
        name = re.sub(r"(^|\.)\w+$|\.\*$|\[\]$", "", name)
    return MARKED.get(name) or ""


@pytest.mark.parametrize(("prefix", "model"), SETTINGS, ids=lambda part: getattr(part, "__name__", ""))
def test_every_setting_says_what_makes_a_change_of_it_count(prefix: str, model: type[BaseModel]) -> None:
    """A group either says it for all of its settings, or each of them does."""
    own = {name for name in model.model_fields if MARKED[prefix + name]}
    names = set(model.model_fields) - ({"limits", "http", "log"} if model is Settings else set())
    assert own in (set(), names)
    assert all(when(prefix + name) for name in names)


def documented_settings() -> set[tuple[str, str, str]]:
    """(name, default, what makes a change count) of every setting that is no group of others."""
    found = set()
    for prefix, model in SETTINGS:
        for name, field in model.model_fields.items():
            default = field.get_default(call_default_factory=True)
            if _is_group(field.annotation) and not isinstance(default, dict | type(None)):
                continue
            found.add((prefix + name, "" if field.is_required() else shown(default), when(prefix + name)))
    return found


def _is_group(annotation: Any) -> bool:
    """Whether the setting is a model, or a list of one that has rows of its own."""
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0] is Listener
    if get_origin(annotation) in (Union, UnionType):
        return False
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def test_settings_and_their_defaults() -> None:
    text = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| `([^`]+)` \|([^|]*)\|([^|]*)\|[^|\n]+\|$", text, re.MULTILINE)
    table = {(name, default.strip().strip("`"), change.strip()) for name, default, change in cells}
    assert table == documented_settings()


TOML = [block for page in pages() for block in blocks(page) if block.words in (("toml",), ("toml", "broker"))]


@pytest.mark.parametrize("block", TOML, ids=lambda block: block.place)
def test_settings_files_are_valid(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "vibemq.toml"
    file.write_text(block.text, encoding="utf-8")
    # What the page says comes from a secret.
    secrets = {"VIBEMQ_AUTH__SUPERUSER_PASSWORD": "secret"} if "superuser =" in block.text else {}
    loaded = load(file, environ=secrets, secrets_dir=tmp_path / "none")
    assert loaded.origins, block.place


def test_queue_options_and_their_defaults() -> None:
    table = {name: default.strip("`") for name, default in rows(REFERENCE / "queue-options.md")}
    options = QueueOptions()
    assert table == {field.name: shown(getattr(options, field.name)) for field in fields(QueueOptions)}


def test_error_codes() -> None:
    codes = {name for name, _ in rows(REFERENCE / "errors.md")}
    assert codes == {code.value for code in ErrorCode} | codes_of_the_command_line()


def codes_of_the_command_line() -> set[str]:
    """Every code that is written in its source."""
    found = set()
    product = Path(cli.__file__).parents[1]
    for file in [*(product / "cli").rglob("*.py"), *(product / "demos").rglob("*.py")]:
        text = file.read_text(encoding="utf-8")
        found |= set(re.findall(r"""code(?:: str)? ?= ?"([A-Z_]+)\"""", text))
    found |= set(
        re.findall(r'^    \(\w+Error, "([A-Z_]+)"', Path(exits.__file__).read_text(encoding="utf-8"), re.MULTILINE)
    )
    return found - {code.value for code in ErrorCode} | {"SYSTEM"}


@pytest.mark.parametrize("code", ErrorCode)
def test_error_classes_exist_and_carry_the_code(code: ErrorCode) -> None:
    [cell] = [cell for name, cell in rows(REFERENCE / "errors.md") if name == code]
    for name in re.findall(r"`(\w+)`", cell):
        assert getattr(errors, name).code is code


def test_metrics() -> None:
    """Names, kinds, labels and meanings."""
    table = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    found = [
        tuple(cell.strip() for cell in row)
        for row in re.findall(r"^\| `(vibemq_\w+)` \|(.*)\|(.*)\|(.*)\|$", table, re.M)
    ]
    declared = [(metric.name, metric.kind, ", ".join(metric.by), metric.help) for metric in METRICS]
    assert found == [*declared, *((name, "histogram", "", text) for name, text, _ in HISTOGRAMS)]


def test_alert_rules_name_metrics_that_exist() -> None:
    known = {metric.name for metric in METRICS}
    known |= {name + suffix for name, _, _ in HISTOGRAMS for suffix in ("_sum", "_count", "_bucket")}
    used = set(re.findall(r"vibemq_[a-z_]+", (DOCS / "howto" / "monitoring.md").read_text(encoding="utf-8")))
    assert used <= known


def test_the_reference_of_operations_is_that_of_the_registry() -> None:
    text = (REFERENCE / "admin.md").read_text()
    start = text.index("\n", text.index("<!-- operations:")) + 1
    assert text[start : text.index("<!-- end of operations -->")] == reference(), (
        "print it anew with `python -m vibemq.operations.reference`"
    )


def test_every_command_and_operation_is_in_the_permissions() -> None:
    text = (REFERENCE / "permissions.md").read_text(encoding="utf-8").splitlines()
    documented = [line for line in text if re.match(r"\| (`\w+\.\w+`|[A-Z]\w+) \|", line)]
    assert documented == list(permissions.lines())


def commands_of(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    for word, inner in getattr(command, "commands", {}).items():
        yield from commands_of(inner, f"{words} {word}")
    if not hasattr(command, "commands"):
        yield words, command


@pytest.mark.parametrize("word", [*VERBS, *ADMIN_VERBS])
def test_every_option_of_the_command_line(word: str) -> None:
    text = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    told = set(re.findall(r"--[a-z][a-z-]*[a-z]", text)) | {"--help"}
    for words, command in commands_of(loaded(word, (VERBS | ADMIN_VERBS)[word]), word):
        names = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        assert {name for name in names if name.startswith("--")} <= told, words


def test_every_key_of_an_address() -> None:
    text = (REFERENCE / "client.md").read_text(encoding="utf-8")
    told = {word.lower() for word in re.findall(r"`([A-Za-z]+)", text)}
    assert told | {"host", "port"} >= ADDRESS_KEYS
