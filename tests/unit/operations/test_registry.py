"""The registry: one declaration for each operation, arguments that are read by type, sentences that help."""

import asyncio
import contextlib
import json
import re
from typing import Any, cast

import pytest
from pydantic import ValidationError

from vibemq.auth.matrix import OPERATIONS as ROWS
from vibemq.auth.policy import Actor, Policy
from vibemq.errors import AuthFailed, InvalidPayload, InvalidQueueName, NotAuthenticated, NotAuthorized, UnknownCommand
from vibemq.model.access import Principal, ResourceKind, Rule
from vibemq.model.commands import CreateQueue, DeleteGroup, ListQueues, RemoveMessages
from vibemq.model.options import QueueOptions
from vibemq.operations import OPERATIONS, Operation, Registry
from vibemq.operations.arguments import INSTANT_MAX, LIMIT_MAX, Arguments, read
from vibemq.operations.monitoring.cursors import PAGE_CURSORS_MAX
from vibemq.operations.monitoring.queue_rows import PAGE_ROWS_MAX
from vibemq.operations.queues import PAGE_QUEUES, Queues
from vibemq.operations.registry import TOLD_AT_ONCE, TOLD_BYTES_AT_ONCE, Caller
from vibemq.operations.transfer.moves import MESSAGES_AT_ONCE

ROOT = Principal("root", superuser=True)
ANN = Principal("ann")
POLICY = Policy(
    {"ann": [Rule(ResourceKind.QUEUE, "mine*", frozenset({"create", "inspect"}))]}, superusers=["root"], enabled=True
)


class Anybody:
    """Stands for every service whose methods are not called."""


def registry() -> Registry:
    nothing = cast(Any, None)
    services: list[Any] = [Queues(nothing, nothing, POLICY, QueueOptions())]
    others = {operation.service for operation in OPERATIONS} - {Queues}
    services += [object.__new__(service) for service in others]
    return Registry(POLICY, OPERATIONS, services)


def test_every_row_of_the_table_of_permissions_has_its_operation() -> None:
    names = [operation.name for operation in OPERATIONS]
    assert len(names) == len(set(names))
    assert set(names) == set(ROWS)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("queue.list", PAGE_QUEUES),
        ("queue.rows", PAGE_ROWS_MAX),
        ("cursor.list", PAGE_CURSORS_MAX),
        ("queue.move", MESSAGES_AT_ONCE),
        ("group.list", LIMIT_MAX),
    ],
)
def test_the_limit_of_a_page_is_told_as_it_is(name: str, most: int) -> None:
    [operation] = [operation for operation in OPERATIONS if operation.name == name]
    told = operation.arguments.model_json_schema()["properties"]["limit"]["description"]
    assert f"more than {most} count as that" in told


def test_an_operation_without_a_row_cannot_be_declared() -> None:
    async def run(service: Anybody, caller: object, wanted: Arguments) -> None: ...

    with pytest.raises(LookupError, match=r"auth/matrix\.py"):
        Operation("queue.dance", "Dance.", Arguments, Anybody, task=run)


def test_an_operation_that_nobody_carries_out_is_no_operation() -> None:
    with pytest.raises(LookupError, match="carries out"):
        Registry(POLICY, OPERATIONS, [])
    with pytest.raises(LookupError, match="carries it out"):
        Operation("queue.list", "List.", Arguments, Anybody)


def test_unknown_operations_are_answered_with_those_that_are() -> None:
    with pytest.raises(UnknownCommand, match=r"'queue\.dance'.*queue\.create"):
        registry().admit(ROOT, "queue.dance", {})


def test_rights_are_asked_before_anything_is_said_about_arguments() -> None:
    door = registry()
    with pytest.raises(NotAuthenticated):
        door.admit(None, "queue.create", {"queue": "mine"})
    for arguments in ({"queue": "yours"}, {"queue": 5}, {}, {"queue": "yours", "colour": 1}):
        with pytest.raises(NotAuthorized):
            door.admit(ANN, "queue.create", arguments)
    assert door.admit(ANN, "queue.create", {"queue": "mine1"}).caller.actor.user == "ann"


def test_short_operations_become_commands_of_the_engine() -> None:
    door = registry()
    create = door.admit(ROOT, "queue.create", {"queue": "q", "options": {"max_messages": 5}, "must_match": True})
    command = create.command(7, "token")
    assert isinstance(command, CreateQueue)
    assert (command.session, command.token, command.queue, command.must_match) == (7, "token", "q", True)
    assert command.options is not None
    assert command.options.max_messages == 5
    remove = door.admit(ROOT, "queue.remove", {"queue": "q", "runs": [[5, 6], [1, 2]]}).command(7, "token")
    assert isinstance(remove, RemoveMessages)
    assert remove.runs == [(1, 2), (5, 6)]


def test_a_page_of_the_queues_shows_what_the_caller_may_see() -> None:
    listing = registry().admit(ANN, "queue.list", {"limit": 1000, "after": "a"}).command(7, "token")
    assert isinstance(listing, ListQueues)
    assert (listing.after, listing.limit) == ("a", 100)
    assert listing.visible is not None
    assert [name for name in ("mine1", "yours") if listing.visible(name)] == ["mine1"]
    assert registry().admit(ANN, "queue.list", {}).command(7, "token") is None, "the whole list is long"


def test_the_audit_log_names_arguments_as_they_are_given() -> None:
    move = registry().admit(ROOT, "queue.move", {"queue": "a", "to": "b", "from": 7})
    assert {"queue": "a", "to": "b", "from": 7}.items() <= move.told(None).items()


def test_a_caller_that_is_asked_for_again_needs_its_login_and_its_rights() -> None:
    ended, policy = "", Policy({"ann": [Rule(ResourceKind.QUEUE, "mine*", frozenset({"purge"}))]})
    services = [object.__new__(service) for service in {operation.service for operation in OPERATIONS}]
    door = Registry(policy, OPERATIONS, services, ended=lambda principal: ended)
    caller = door.admit(ANN, "dlq.purge", {"queue": "mine"}).caller
    caller.check_again()
    ended = "the token was revoked"
    with pytest.raises(AuthFailed, match="the token was revoked"):
        caller.check_again()
    ended = ""
    policy.replace({"ann": ()})
    with pytest.raises(NotAuthorized, match=r"'purge' on queue 'mine', which dlq\.purge requires"):
        caller.check_again()


def test_a_step_is_not_even_made_for_whom_it_is_not_done() -> None:
    class Unasked:
        async def ask(self, make: Any) -> Any:
            raise AssertionError("nobody asks the engine")

    def check_again() -> None:
        raise NotAuthorized("not any more")

    caller = Caller(ANN, Actor("ann"), check_again=check_again)
    with pytest.raises(NotAuthorized, match="not any more"):
        asyncio.run(caller.step(cast(Any, Unasked()), lambda session, token: ListQueues(session, token)))


def test_the_engine_is_told_for_whom_it_acts() -> None:
    caller = registry().admit(ANN, "queue.info", {"queue": "mine"}).caller
    command = caller.owned(DeleteGroup(0, 1, "mine", "g"))
    assert isinstance(command, DeleteGroup)
    assert command.user == "ann"


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("queue.create", {}, "argument queue of queue.create is missing; it means: Name of the queue."),
        ("queue.create", {"queue": ""}, "argument queue of queue.create must be text of at least 1 character, not ''"),
        ("queue.create", {"queue": "q", "options": 5}, "argument options of queue.create must be an object, not 5"),
        ("queue.create", {"queue": [[[[1]]], 2]}, "must be text, not [[[…]], 2]"),
        ("queue.create", {"queue": "q", "must_match": "yes"}, "must be true or false, not 'yes'"),
        (
            "queue.create",
            {"queue": "q", "colour": 1},
            "argument colour is unknown to queue.create, whose",
        ),
        ("queue.change", {"queue": "q"}, "argument changes of queue.change is missing"),
        ("queue.remove", {"queue": "q", "runs": [[2, 1]]}, "argument runs of queue.remove must be a list of pairs"),
        (
            "queue.remove",
            {"queue": "q", "runs": [5]},
            "must be a list of pairs [first, last] of whole numbers, not [5]",
        ),
        ("queue.peek", {"queue": "q", "from": -1}, "argument from of queue.peek must be a whole number, 0 or more"),
        ("group.seek", {"queue": "q", "group": "g"}, "argument start of group.seek is missing"),
        ("group.fetch", {"queue": "q", "from": "one", "to": 2}, "argument from of group.fetch must be a whole number"),
        ("group.fetch", {"queue": "q", "from": True, "to": 2}, "argument from of group.fetch must be a whole number"),
        ("group.fetch", {"queue": "q", "from": 1, "to": INSTANT_MAX + 1}, f"{INSTANT_MAX} or less"),
        ("group.fetch", {"queue": "q", "from": 1, "to": 2, "columns": [1]}, "argument columns[0] of group.fetch"),
        ("group.advance", {"queue": "q", "from": 1, "wait_ms": 30_001}, "30000 or less"),
        ("group.reject", {"queue": "q", "group": "g", "rejects": [[1]]}, "pairs [sequence, error text]"),
        ("dlq.list", {"ids": ["1"]}, "argument ids[0] of dlq.list must be a whole number, not '1'"),
        ("transaction.last", {"app": "x" * 5000}, "must be text of at most 4096 characters, not 'xxx"),
        (
            "job.start",
            {"kind": "replay", "filter": {"nonsense": 1}},
            "argument filter.nonsense is unknown to job.start, whose filter takes queue, reason, ",
        ),
        (
            "job.start",
            {"kind": "replay", "filter": {"since": True}},
            "argument filter.since of job.start must be a whole number, not True; it means: Dead at",
        ),
        (
            "job.start",
            {"kind": "replay", "filter": {"ids": [1, True]}},
            "argument filter.ids[1] of job.start must be a whole number, not True",
        ),
        ("job.start", {"kind": "replay", "filter": []}, "argument filter of job.start must be an object, not []"),
        (
            "job.start",
            {"kind": "purge_dead", "filter": {"queue": None}},
            "argument filter.queue of job.start is null, which would mean letters with any value; give a value,",
        ),
        ("dlq.purge", {"queue": None}, "argument queue of dlq.purge is null"),
        (
            "user.grant",
            {"user": "ann", "queues": "*", "actions": []},
            "argument actions of user.grant must have at least 1",
        ),
        ("dlq.replay", {"ids": None, "to": None}, "argument ids of dlq.replay is null"),
        ("dlq.preview", {"error": None}, "argument error of dlq.preview is null"),
    ],
)
def test_bad_arguments_are_refused_by_name_and_rule(name: str, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        registry().admit(ROOT, name, arguments)
    assert sentence in str(refused.value)
    assert len(str(refused.value)) < 600


MANY = 5_000


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("queue.info", {f"x{n}": 0 for n in range(MANY)}, "argument queue of queue.info is missing"),
        ("queue.info", {"queue": "q", **{f"x{n}": 0 for n in range(MANY)}}, "argument x0 is unknown to queue.info"),
        ("job.start", {"kind": "replay", "filter": {f"x{n}": 0 for n in range(MANY)}}, "argument filter.x0 is unknown"),
        ("dlq.list", {"ids": ["x"] * MANY}, "argument ids[0] of dlq.list must be a whole number"),
        ("dlq.list", {"header": {f"h{n}": 1 for n in range(900)}}, "argument header of dlq.list must be text"),
        ("dlq.list", {"header": {f"h{n}": "" for n in range(MANY)}}, "must have at most 1000 items"),
        ("transaction.abort", {"app": "a", "version": 1, "stages": [1] * MANY}, "argument stages[0] of transaction"),
        ("queue.import", {"queue": "q", "import_id": "i", "position": 0, "messages": [1] * MANY}, "messages[0] of"),
        ("queue.change", {"queue": "q", "changes": {f"x{n}": 0 for n in range(MANY)}}, "must have at most 100 items"),
        ("queue.remove", {"queue": "q", "runs": [[1, 1]] * 10_001}, "must be a list of at most 10000 pairs"),
        ("group.reject", {"queue": "q", "group": "g", "rejects": [[1, ""]] * 10_001}, "of at most 10000 pairs"),
        ("group.fetch", {"queue": "q", "from": 1, "to": 2, "columns": ["x"] * MANY}, "must have at most 100 items"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_of_very_many_wrong_arguments_the_first_is_told_and_few_are_looked_at(
    name: str, arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidPayload, match=re.escape(sentence)) as refused:
        registry().admit(ROOT, name, arguments)
    assert isinstance(found := refused.value.__context__, ValidationError)
    assert found.error_count() <= 3
    assert len(str(refused.value)) < 600


def test_null_counts_as_not_given_where_it_means_nothing_more() -> None:
    assert registry().admit(ROOT, "dlq.list", {"queue": None, "limit": None}).arguments.queue is None
    assert registry().admit(ROOT, "dlq.purge", {"queue": "q", "limit": None, "after": None}).arguments.after == 0


@pytest.mark.parametrize(
    "operation",
    [operation for operation in OPERATIONS if "limit" in operation.arguments.model_fields],
    ids=lambda operation: operation.name,
)
def test_a_list_of_no_items_is_refused_alike_everywhere(operation: Operation[Any]) -> None:
    fields = operation.arguments.model_fields
    known = {"action": "publish", "kind": "replay"}
    needed = {name: known.get(name, "q") for name in fields if fields[name].is_required()}
    with pytest.raises(InvalidPayload, match=r"argument limit of .* must be a whole number, 1 or more, not 0"):
        read(operation.arguments, operation.name, {**needed, "limit": 0})


def test_null_counts_as_not_given() -> None:
    operation = {operation.name: operation for operation in OPERATIONS}["group.fetch"]
    wanted = read(operation.arguments, "group.fetch", {"queue": "q", "group": None, "from": 1, "to": 2})
    assert (wanted.group, wanted.from_, wanted.compact) == (None, 1, False)


def test_a_bad_name_of_a_queue_has_its_own_code() -> None:
    with pytest.raises(InvalidQueueName):
        registry().admit(ROOT, "group.delete", {"queue": "bad name", "group": "g"})


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_argument_is_described(operation: Operation[Any]) -> None:
    assert operation.summary.endswith(".")
    schema = operation.arguments.model_json_schema()
    for name, argument in schema.get("properties", {}).items():
        assert argument.get("description", "").endswith("."), name
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    "value", [None, 0, -1, 1 << 70, 1.5, "", "x" * 10_000, [], [[]], [[1, 2, 3]], {}, {"a": 1}, True]
)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_nothing_but_a_refusal_comes_of_whatever_is_sent(operation: Operation[Any], value: Any) -> None:
    for name in [*operation.arguments.model_json_schema().get("properties", {}), "unknown"]:
        arguments: dict[str, Any] = {"queue": "q", "group": "g", "from": 1, "to": 2, name: value}
        with contextlib.suppress(InvalidPayload, InvalidQueueName):
            read(operation.arguments, operation.name, arguments)


def test_long_names_are_told_whole_in_as_many_pieces_as_it_takes() -> None:
    call = registry().admit(ROOT, "definitions.import", {"queues": []})
    names = [f"{number}{'é' * 200}" for number in range(10)] + [f"q{number}" for number in range(100)]
    pieces = [(told["created"], count) for told, count in call.told_pieces({"created": names})]
    assert [name for piece, _ in pieces for name in piece] == names
    assert all(count == len(piece) <= TOLD_AT_ONCE for piece, count in pieces)
    assert all(len(json.dumps(piece)) <= TOLD_BYTES_AT_ONCE + 50 for piece, _ in pieces)
    assert len(pieces) == 10 + 5
