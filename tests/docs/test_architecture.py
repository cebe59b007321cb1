"""The walks of the architecture, from a publish to its confirm and others, name files and functions that exist; a
publish calls those of its own in that order."""

import ast
import asyncio
import re
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

import vibemq
from tests.docs.pages import DOCS
from vibemq.server.commit.flush_place import FlushPlace

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PRODUCT = DOCS.parent / "vibemq"
ROW = re.compile(r"^\| [^|]+ \| `(?P<file>[\w/]+\.py)` \| `(?P<name>[\w.]+)` \|$", re.MULTILINE)
PAGE = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")


def steps_of(text: str) -> list[tuple[str, str]]:
    return [(found["file"], found["name"]) for found in ROW.finditer(text)]


def defined(file: str) -> set[str]:
    """Functions and methods of a module, as `name` and `Class.name`."""
    names: set[str] = set()
    for node in ast.parse((PRODUCT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, FUNCTIONS):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, FUNCTIONS)}
    return names


def test_every_step_of_the_walk_exists() -> None:
    steps = steps_of(PAGE)
    assert len(steps) > 20
    assert [step for step in steps if step[1] not in defined(step[0])] == []


async def calls_of_a_publish(data_dir: Path) -> list[tuple[str, str]]:
    """Functions of the product, in the order in which they are called while one message is published and delivered."""
    calls: list[tuple[str, str]] = []
    is_watched = False

    def note(frame: FrameType, event: str, argument: object) -> None:
        if is_watched and event == "call":
            code = frame.f_code
            calls.append((code.co_filename, code.co_qualname))

    threading.setprofile(note)  # Before the thread of the flushes begins.
    try:
        async with (
            vibemq.Broker(data_dir=data_dir) as broker,
            vibemq.connect(broker.url) as mq,
            mq.subscribe("q") as messages,
        ):
            await mq.publish("q", b"first")
            (await anext(messages)).ack()
            await mq.ping()
            is_watched = True
            sys.setprofile(note)
            await mq.publish("q", b"watched")
            await anext(messages)
            sys.setprofile(None)
            is_watched = False
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return [(file.removeprefix(f"{PRODUCT}/"), name) for file, name in calls]


def test_a_publish_takes_the_walk_to_its_confirm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the flush in the thread; on the loop, the answer is written before the message is shown."""
    monkeypatch.setattr(FlushPlace, "is_loop", False)
    walk = steps_of(PAGE[PAGE.index("## From a publish") : PAGE.index("## From a change")])
    assert len(walk) > 20
    calls = iter(asyncio.run(calls_of_a_publish(tmp_path / "data")))
    assert [step for step in walk if step not in calls] == [], "each is called behind the one before it"
