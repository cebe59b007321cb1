"""Users, what they may do, and their access tokens. Users of the settings file are shown, and changed there."""

from typing import Any

from vibemq.errors import ErrorCode
from vibemq.operations.arguments import LIMIT_MAX
from vibemq.web.api.contract import JSON, MERGE_PATCH, Endpoint, Exchange
from vibemq.web.api.endpoints.shapes import (
    ANYTHING,
    BOOLEAN,
    INSTANT,
    TEXT,
    WHOLE,
    listed,
    nothing,
    record,
)
from vibemq.web.api.kinds import Kind

RULE = record({"actions": listed(TEXT)}, {"queues": TEXT, "groups": TEXT, "transactions": TEXT})
USER = record(
    {"user": TEXT, "superuser": BOOLEAN, "source": {"type": "string", "enum": ["settings", "store"]}},
    {"created_at": INSTANT, "changed_at": INSTANT, "permissions": listed(RULE)},
)
TOKEN = record(
    {"token_id": TEXT, "user": TEXT, "label": TEXT, "created_at": INSTANT},
    {
        "expires_at": INSTANT,
        "used_at": INSTANT,
        "permissions": {"type": ["array", "null"], "items": RULE},
        "permissions_left_out": WHOLE,
    },
)
NEW_TOKEN = {
    **TOKEN,
    "required": [name for name in TOKEN["required"] if name != "token_id"],
    "properties": {"token": TEXT, **TOKEN["properties"]},
}
"""A dry run makes neither a token nor its id."""
NO_USER = (ErrorCode.USER_NOT_FOUND,)
KEPT_BY_BROKER = (*NO_USER, ErrorCode.FORBIDDEN)


def permissions(user: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    return {"items": user["permissions"], "next": None, "superuser": user["superuser"]}


def first_page(exchange: Exchange) -> dict[str, Any]:
    """Always a page: the whole list has no bound."""
    return {"limit": exchange.query.get("limit", LIMIT_MAX)}


_USERS = (
    Endpoint(
        method="GET",
        path="/users",
        summary="Users by name, without their permissions.",
        operation="user.list",
        items="users",
        arguments=first_page,
        response=USER,
    ),
    Endpoint(
        method="POST",
        path="/users",
        summary="Add a user, whom the broker keeps.",
        operation="user.add",
        kind=Kind.CHANGE,
        response=record({"user": TEXT}),
        status=201,
        more_statuses=(200,),
        errors=(ErrorCode.USER_EXISTS, ErrorCode.FORBIDDEN),
        idempotent=True,
    ),
    Endpoint(
        method="GET",
        path="/users/{user}",
        summary="One user and its permissions.",
        operation="user.show",
        response=USER,
        errors=NO_USER,
    ),
    Endpoint(
        method="PATCH",
        path="/users/{user}",
        summary="Make a user a superuser, or an ordinary one.",
        operation="user.change",
        kind=Kind.CHANGE,
        consumes=(JSON, MERGE_PATCH),
        response=record({"user": TEXT, "superuser": BOOLEAN, "tokens": WHOLE}),
        errors=KEPT_BY_BROKER,
    ),
    Endpoint(
        method="DELETE",
        path="/users/{user}",
        summary="Remove a user and its tokens; its connections are closed.",
        operation="user.remove",
        kind=Kind.CHANGE,
        shape=nothing,
        response=ANYTHING,
        errors=KEPT_BY_BROKER,
    ),
    Endpoint(
        method="PUT",
        path="/users/{user}/password",
        summary="Change the password; sessions and connections that logged in with the old one end. Access tokens stay "
        "valid; the answer counts them.",
        operation="user.password",
        kind=Kind.CHANGE,
        shape=nothing,
        response=ANYTHING,
        errors=KEPT_BY_BROKER,
    ),
)
_RIGHTS = (
    Endpoint(
        method="GET",
        path="/users/{user}/permissions",
        summary="What the user may do.",
        operation="user.show",
        shape=permissions,
        response=record({"items": listed(RULE)}),
        errors=NO_USER,
    ),
    Endpoint(
        method="POST",
        path="/users/{user}/permissions",
        summary="Allow a user something; replaces the actions of the same pattern.",
        operation="user.grant",
        kind=Kind.CHANGE,
        response=RULE,
        errors=KEPT_BY_BROKER,
        idempotent=True,
    ),
    Endpoint(
        method="DELETE",
        path="/users/{user}/permissions",
        summary="Take a permission away.",
        operation="user.revoke",
        kind=Kind.CHANGE,
        response=record({"user": TEXT, "revoked": BOOLEAN}),
        errors=KEPT_BY_BROKER,
    ),
    Endpoint(
        method="GET",
        path="/users/{user}/access",
        summary="Whether a user may do something, and by which rule.",
        operation="user.check",
        response=record({"user": TEXT, "allowed": BOOLEAN, "superuser": BOOLEAN, "rule": {"type": ["object", "null"]}}),
        errors=NO_USER,
    ),
    Endpoint(
        method="GET",
        path="/access",
        summary="Users who may do something, and by which rule.",
        operation="user.allowed",
        kind=Kind.SCAN,
        items="users",
        response=record({"user": TEXT, "superuser": BOOLEAN, "rule": {"type": ["object", "null"]}}),
    ),
)
_TOKENS = (
    Endpoint(
        method="GET",
        path="/tokens",
        summary="Access tokens of all users, never the secrets.",
        operation="token.list",
        items="tokens",
        response=TOKEN,
    ),
    Endpoint(
        method="GET",
        path="/users/{user}/tokens",
        summary="Access tokens of one user, never the secrets.",
        operation="token.list",
        items="tokens",
        response=TOKEN,
    ),
    Endpoint(
        method="POST",
        path="/users/{user}/tokens",
        summary="Make an access token. The answer is the only place where it stands in clear.",
        operation="token.create",
        kind=Kind.CHANGE,
        keyless="the answer has a secret, which is not kept to be repeated",
        response=NEW_TOKEN,
        status=201,
        more_statuses=(200,),
        errors=KEPT_BY_BROKER,
    ),
    Endpoint(
        method="DELETE",
        path="/users/{user}/tokens/{token_id}",
        summary="Take a token away; what it has logged in ends.",
        operation="token.revoke",
        kind=Kind.CHANGE,
        shape=nothing,
        response=ANYTHING,
        errors=(ErrorCode.TOKEN_NOT_FOUND,),
    ),
)
ENDPOINTS = (*_USERS, *_RIGHTS, *_TOKENS)
