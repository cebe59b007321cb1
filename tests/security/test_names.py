"""S6: names that would be paths, patterns, or something else to whoever reads them."""

import os
from pathlib import Path

import pytest

from tests.integration.access import connected
from tests.integration.cursor_peer import Refusal, rows_of
from tests.security.target import Target

pytestmark = pytest.mark.xdist_group("security")

HOSTILE = (
    "../../etc/passwd",
    "/etc/passwd",
    "..\\..\\x",
    "a/b",
    "a\0b",
    "a\nb",
    "a b",
    "*",
    "a?",
    "[a-z]",
    "%2e%2e%2f",
    "$(id)",
    "`id`",
    "a;b",
    "<script>",
    "\u202eevil",
    "\u200bq",
    "x" * 60_000,
)
ALLOWED = ("..", ".", "...", "-rf", "CON", "nul.", "lock", "store.json", "journal", "ballast")
"""Names that look like files and are none."""
OF_THE_STORE = (".journal", ".journal.new", "unfinished")


def named(folder: Path) -> set[str]:
    """Files and folders, but for those that come and go with what is stored."""
    found = {name for _, folders, names in os.walk(folder) for name in (*folders, *names)}
    return {name for name in found if not name.endswith(OF_THE_STORE)}


def test_no_name_becomes_a_path(target: Target) -> None:
    with connected(target.port, "root") as root:
        root.admin("queue.create", queue="plain")
        root.publish("plain", rows_of(1))
        before = named(target.folder)
        for name in ALLOWED:
            root.admin("queue.create", queue=name)
            root.publish(name, rows_of(1))
            root.admin("user.add", user=name, password="x")
            assert root.admin("queue.info", queue=name)["ready"] == 1
        assert named(target.folder) == before
        for name in ALLOWED:
            root.admin("queue.delete", queue=name)
            root.admin("user.remove", user=name)
        assert root.admin("queue.info", queue="plain")["ready"] == 1, "a deletion takes nothing but its queue"
    assert named(target.folder) == before


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
def test_hostile_names_are_refused(target: Target, name: str) -> None:
    with connected(target.port, "root") as root:
        for operation in ("queue.create", "queue.info", "queue.delete"):
            with pytest.raises(Refusal, match="INVALID_QUEUE"):
                root.admin(operation, queue=name)
        with pytest.raises(Refusal, match="INVALID_QUEUE"):
            root.publish(name, rows_of(1))
        with pytest.raises(Refusal, match="INVALID_PAYLOAD") as refused:
            root.admin("user.add", user=name, password="x")
        assert len(str(refused.value)) < 500
        assert str(refused.value).isprintable()


@pytest.mark.parametrize("name", ["../../x", "a/b", "*", "%2e%2e"])
def test_hostile_topics_are_refused(target: Target, name: str) -> None:
    assert b"invalid topic" in target.say_omq(f'(Connect 1 root:pw)(Subscribe "{name}" From_current)'.encode())
