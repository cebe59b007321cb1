"""Rights that depend on what there is: `create` where a queue is missing, `manage` where a group is somebody else's,
and applications and stages, which nobody but their owner may touch.

The handlers enforce these, one by one, and not the table. What is asked is derived from the table, so that a new row is
asked too.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import pytest

from tests.integration.cursor_peer import Peer, rows_of
from tests.integration.test_permissions import (
    ALONE,
    COMMANDS,
    EXPECTED,
    KINDS,
    LIMITED,
    NARROWED,
    PLACES,
    Broker,
    Place,
    Q,
    answer_of,
    asking,
    broker,
    chief_of,
    held,
    needs_of,
    send,
    trusting,
    user_of,
)
from vibemq.auth import matrix
from vibemq.model.access import Action, ResourceKind, When

__all__ = ["asking", "broker", "trusting"]

G = "a.groups"
"""A fan-out queue with acks."""
NUMBERS = count(1)


class Asked(NamedTuple):
    """An operation, or a command that a frame says."""

    row: matrix.Row
    needs: frozenset[str]
    """By hand: see `EXPECTED` and `COMMANDS`."""
    ask: Callable[[Peer, str, Place, dict[str, Any]], str]
    """(peer, whose group or application, place, arguments other than the usual ones) -> answer"""
    alone: bool = False


def operation(name: str) -> Asked:
    it = EXPECTED[name]

    def ask(peer: Peer, owner: str, place: Place, more: dict[str, Any]) -> str:
        arguments = it.arguments | {key: value for key, value in more.items() if key in it.arguments}
        return answer_of(partial(send, peer, name, replace(it, arguments=arguments), owner, place))

    return Asked(matrix.OPERATIONS[name], it.needs, ask)


def command(kind: type) -> Asked:
    provoke = COMMANDS[kind][1]
    assert provoke is not None

    def ask(peer: Peer, owner: str, place: Place, more: dict[str, Any]) -> str:
        return answer_of(partial(provoke, peer, owner, place))

    return Asked(matrix.COMMANDS[kind], needs_of(kind), ask, kind in ALONE)


def is_said(kind: type) -> bool:
    """By a frame of its own, and not by an operation."""
    return COMMANDS[kind][1] is not None and matrix.NEVER not in matrix.COMMANDS[kind]


ASKED = {name: operation(name) for name in matrix.OPERATIONS} | {
    kind.__name__: command(kind) for kind in matrix.COMMANDS if is_said(kind)
}


def having(holds: Callable[[matrix.NeededPermission], bool]) -> dict[str, Asked]:
    return {name: asked for name, asked in ASKED.items() if any(map(holds, asked.row))}


CREATING = having(lambda need: need.when is When.MISSING)
MANAGING = having(lambda need: need.when is When.NOT_OWNER)
TRANSACTING = having(lambda need: need.kind is ResourceKind.TRANSACTION and need.action is Action.TRANSACT)


@contextmanager
def asking_as(broker: Broker, kind: str) -> Iterator[Callable[[Asked], Any]]:
    """Connections by what is asked: see `ALONE`."""
    with broker.connect(kind) as shared:
        yield lambda asked: broker.connect(kind) if asked.alone else nullcontext(shared)


def test_some_kind_of_user_lacks_nothing_but_what_the_condition_needs() -> None:
    for rows, action in ((CREATING, "create"), (MANAGING, "manage")):
        assert rows
        for name, asked in rows.items():
            assert any(asked.needs <= held(kind) and action not in held(kind) for kind in KINDS), name


# -- queues that are missing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long_where(kind=NARROWED)
def test_nothing_makes_a_queue_without_create(broker: Broker, kind: str) -> None:
    place = PLACES["own missing"]
    with broker.connect(chief_of(kind)) as chief, asking_as(broker, kind) as connected:

        def queues() -> set[str]:
            return {queue["name"] for queue in chief.admin("queue.list")}

        for name, asked in ASKED.items():
            before = queues()
            assert place(Q) not in before
            with connected(asked) as peer:
                answer = asked.ask(peer, kind, place, {})
            made = queues() - before
            for queue in made:
                chief.admin("queue.delete", queue=queue)
            assert not made or "create" in held(kind), (name, made)
            if name not in CREATING:
                assert not made or any(need.action is Action.CREATE for need in asked.row), (name, made)
            elif not asked.needs <= held(kind):
                assert "NOT_AUTHORIZED" in answer, name
            elif "create" in held(kind):
                assert (made, answer) == ({place(Q)}, ""), name
            else:
                assert "QUEUE_NOT_FOUND" in answer, (name, answer)
                assert "permission `create`" in answer, (name, answer)


# -- groups of somebody else ------------------------------------------------------------------------------------------

GROUPS_QUEUE: Place = {Q: G}.__getitem__


class Form(NamedTuple):
    """Of a group."""

    make: Callable[[Peer, str], Any]
    """Or take over; the answer."""
    look: Callable[[Peer, str], Any]


FORMS = {
    "cursor": Form(
        lambda peer, group: peer.ask("group.join", G, group=group),
        lambda peer, group: peer.ask("group.set", G, group=group),
    ),
    "ordinary": Form(
        lambda peer, group: peer.ask("group.filter", G, group=group, where="n > 3"),
        lambda peer, group: peer.ask("group.filter", G, group=group, where="n > 3", dry_run=True),
    ),
}
NO_CURSOR = "cannot be read by ranges"
"""What only a cursor can be asked is refused for an ordinary group, whosesoever it is."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long_where(kind=[kind for kind in NARROWED if "subscribe" not in kind])
def test_a_group_of_somebody_else_needs_manage(broker: Broker, kind: str, form: str) -> None:
    """Of an ordinary user, and of a superuser, whose groups belong to nobody."""
    make, look = FORMS[form]
    with ExitStack() as stack:
        peer, chief = (stack.enter_context(broker.connect(each)) for each in (kind, chief_of(kind)))
        answer_of(partial(chief.admin, "queue.delete", queue=G))
        chief.admin("queue.create", queue=G, options={"mode": "fan-out-with-ack"})
        for owner in (chief_of(kind), "subscribe") if chief_of(kind) == "root" else ("anonymous",):
            theirs = stack.enter_context(broker.connect(owner))
            for name, asked in MANAGING.items():
                epoch = make(theirs, owner)["epoch"]
                before = look(theirs, owner)
                answer = asked.ask(peer, owner, GROUPS_QUEUE, {"epoch": epoch})
                may = "subscribe" in held(kind) and (user_of(kind) == owner or "manage" in held(kind))
                if form == "cursor" or NO_CURSOR not in answer:
                    assert ("NOT_AUTHORIZED" in answer) != may, (owner, name, answer)
                    assert "_NOT_FOUND" not in answer, (owner, name, answer)
                if not may:
                    assert answer, (owner, name)
                    assert look(theirs, owner) == before, (owner, name)
                answer_of(partial(theirs.ask, "group.delete", G, group=owner))


# -- applications and stages of somebody else -------------------------------------------------------------------------


class Applications:
    """Names that nobody has used, of one owner."""

    def __init__(self, owner: str, theirs: Peer) -> None:
        self._theirs = theirs
        self._stages = ["s"] if "publish" in held(owner) else []

    def begin(self, *, decided: bool) -> str:
        """`decided`: it belongs to the owner; otherwise only what is staged does, where the owner may stage."""
        app = f"a-{next(NUMBERS)}"
        if decided:
            self._theirs.ask("transaction.commit", app=app, version=1, stages=[])
        for stage in self._stages:
            self._theirs.stage(Q, rows_of(1), app=app, version=2, stage=stage)
        return app

    def check_untouched(self, app: str) -> None:
        assert not self._theirs.ask("transaction.commit", app=app, version=2, stages=self._stages)["duplicate"]


def at(app: str) -> Place:
    return lambda name: app if name.startswith("a-") else name


@pytest.mark.parametrize("owner", ["owner", "transact"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_application_of_somebody_else_is_for_superusers(broker: Broker, kind: str, owner: str) -> None:
    theirs_is = owner if kind != "anonymous" else kind
    with broker.connect(theirs_is) as theirs, broker.connect(kind) as peer:
        applications = Applications(theirs_is, theirs)
        for name, asked in TRANSACTING.items():
            app = applications.begin(decided=True)
            answer = asked.ask(peer, kind, at(app), {"version": 2, "stages": ["s"]})
            may = asked.needs <= held(kind) and (user_of(kind) == owner or kind not in LIMITED)
            assert ("NOT_AUTHORIZED" in answer) != may, (name, answer)
            if not may:
                applications.check_untouched(app)


@pytest.mark.parametrize("kind", [kind for kind in LIMITED if user_of(kind) != "owner"])
def test_a_stage_of_somebody_else_is_neither_committed_nor_dropped(broker: Broker, kind: str) -> None:
    with broker.connect("owner") as theirs, broker.connect(kind) as peer:
        applications = Applications("owner", theirs)
        for name, asked in TRANSACTING.items():
            app = applications.begin(decided=False)
            answer = asked.ask(peer, kind, at(app), {"version": 2, "stages": ["s"]})
            assert answer or name != "transaction.commit"
            applications.check_untouched(app)
