"""What changes something can be tried: everything is checked, and nothing is changed."""

from typing import Any

import pytest

from tests.unit.operations.test_users import CHANGES, World, user
from vibemq.auth.tokens import make_token
from vibemq.errors import Forbidden, NotAuthorized, TokenNotFound, UserExists, UserNotFound, VibeMQError
from vibemq.model.records import TokenStored
from vibemq.operations import OPERATIONS

WITHOUT = {
    "broker.reload": "It checks all settings before it changes any, and one that is refused changes nothing.",
    "connections.redirect": "Which client can be told is known when it is told.",
    "dead.redrive": "Letters go back part by part: whether a later part has room shows when the others are there.",
    "job.start": "A dry run of dlq.replay or dlq.purge, and dlq.preview, tell which letters it would take.",
    "transaction.forget": "It deletes no message.",
}
"""What is audited and cannot be tried."""


@pytest.mark.parametrize("operation", [o for o in OPERATIONS if o.audited], ids=lambda operation: operation.name)
def test_every_operation_that_changes_something_can_be_tried(operation: Any) -> None:
    assert ("dry_run" in operation.arguments.model_fields) is not (operation.name in WITHOUT)


def test_only_operations_that_there_are_need_not_be_tried() -> None:
    assert WITHOUT.keys() <= {operation.name for operation in OPERATIONS if operation.audited}


def world() -> World:
    made = World()
    made.store(user("bob"), user("ann"), TokenStored(TOKEN))
    made.carry_out(made.log_in("root"), "user.grant", {"user": "bob", "queues": "a", "actions": ["publish"]})
    made.stored.clear()
    return made


_, TOKEN = make_token("bob", label="nightly", now=0, expires_at=0, rules=None)
ARGUMENTS = {**CHANGES, "token.revoke": {"token_id": TOKEN.token_id}}


@pytest.mark.parametrize("operation", ARGUMENTS)
def test_a_dry_run_answers_as_the_change_does_and_changes_nothing(operation: str) -> None:
    here = world()
    tried = here.carry_out(here.log_in("root"), operation, {**ARGUMENTS[operation], "dry_run": True})
    assert here.stored == []
    done = here.carry_out(here.log_in("root"), operation, ARGUMENTS[operation])
    assert here.stored
    assert tried.pop("dry_run") is True
    for name in ("token", "token_id"):
        if operation == "token.create":
            assert name not in tried
            del done[name]
    assert tried == done


REFUSED: dict[str, tuple[str, dict[str, Any], type[VibeMQError]]] = {
    "a user that exists": ("user.add", {"user": "bob", "password": "pw"}, UserExists),
    "no such user": ("user.grant", {"user": "nobody", "queues": "*", "actions": ["*"]}, UserNotFound),
    "a user of the settings": ("user.password", {"user": "root", "password": "new"}, Forbidden),
    "no such token": ("token.revoke", {"token_id": "0" * 12}, TokenNotFound),
}


@pytest.mark.parametrize(("operation", "arguments", "error"), REFUSED.values(), ids=REFUSED)
def test_a_dry_run_is_refused_as_the_change_is(
    operation: str, arguments: dict[str, Any], error: type[VibeMQError]
) -> None:
    here = world()
    with pytest.raises(error):
        here.carry_out(here.log_in("root"), operation, {**arguments, "dry_run": True})


def test_a_dry_run_needs_the_right_to_the_change() -> None:
    here = world()
    with pytest.raises(NotAuthorized):
        here.carry_out(here.log_in("ann"), "user.remove", {"user": "bob", "dry_run": True})


def test_a_tried_password_ends_no_login() -> None:
    here = world()
    principal = here.log_in("bob")
    here.carry_out(here.log_in("root"), "user.password", {"user": "bob", "password": "new", "dry_run": True})
    assert not here.accounts.ended(principal, here.clock.now())
