"""Logging in and out, and who one is."""

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from vibemq.auth.addresses import is_loopback
from vibemq.auth.matrix import SELF
from vibemq.auth.policy import Policy
from vibemq.auth.rules import EVERY_ACTION, NAME_OF
from vibemq.errors import ErrorCode, Forbidden, InvalidPayload
from vibemq.model.access import Action, NeededPermission, Principal, ResourceKind
from vibemq.model.options import options_in_words, options_to_dict
from vibemq.operations import OPERATIONS, Operation
from vibemq.web.api.answers import json_answer
from vibemq.web.api.arguments import checked
from vibemq.web.api.contract import Endpoint, Exchange, Parameter
from vibemq.web.api.guardrails.login_codes import CODE_S
from vibemq.web.api.kinds import Kind
from vibemq.web.api.services import Asker
from vibemq.web.api.sessions import cookie_gone_headers, cookie_header

COOKIE_BYTES = 32


class LoginBody(BaseModel):
    """User and password, an access token, or a code for one login."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    user: str = Field("", max_length=256, description="Name of the user.")
    password: str = Field("", max_length=4096, repr=False, description="Password of the user.")
    token: str = Field("", max_length=4096, repr=False, description="In place of both: an access token.")
    code: str = Field("", max_length=256, repr=False, description="Of POST /session/codes; from this machine alone.")


def who(told: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    """The answer of `user.self`, and what of it a page wants to know before it shows a button."""
    return about(told, exchange.user.principal, exchange)


def about(told: dict[str, Any], principal: Principal, exchange: Exchange) -> dict[str, Any]:
    services = exchange.services
    narrowed = told["narrowed_to"]
    enabled = services.accounts.enabled
    # Whoever has a narrower token of a superuser may do all that the token allows.
    owner_is_superuser = services.accounts.policy.is_superuser(replace(principal, rules=None))
    return {
        "user": told["user"] if enabled else None,
        "superuser": told["superuser"],
        "authenticated": enabled or not exchange.state.credentials.open,
        "auth_enabled": enabled,
        "token": told["token"],
        "permissions": EVERYTHING if owner_is_superuser else [_rule(rule) for rule in told["permissions"]],
        "narrowed_to": None if narrowed is None else [_rule(rule) for rule in narrowed],
        "may": may(services.accounts.policy, principal),
        "queue_defaults": options_in_words(options_to_dict(services.queue_defaults)),
        "version": services.version,
        "broker_name": services.broker_name,
    }


EVERYTHING = [{"kind": str(kind), "pattern": "*", "actions": [EVERY_ACTION]} for kind in NAME_OF]


def _rule(written: dict[str, Any]) -> dict[str, Any]:
    kind, name = next((kind, name) for kind, name in NAME_OF.items() if name in written)
    return {"kind": str(kind), "pattern": written[name], "actions": written["actions"]}


def may(policy: Policy, principal: Principal) -> dict[str, bool]:
    """Operation -> whether the principal may have it carried out without naming a queue, or on the own user."""

    @cache
    def allows(need: NeededPermission) -> bool:
        # Operations need few different ones, and each is compared to all rules.
        return policy.allows(principal, need, principal.name if need.kind is ResourceKind.USER else "")

    return {operation.name: all(map(allows, _always_needed(operation))) for operation in OPERATIONS}


def _always_needed(operation: Operation[Any]) -> Iterator[NeededPermission]:
    return (need for need in operation.permissions if need.action is not Action.OWN and need.when == "always")


async def log_in(exchange: Exchange) -> Response:
    """A new id at each login: one that somebody has put into the browser before is worth nothing."""
    given = checked(LoginBody, exchange.body)
    user, password, token, code = (given.get(name, "") for name in ("user", "password", "token", "code"))
    if [bool(user and password), bool(token), bool(code)].count(True) != 1:
        raise InvalidPayload("log in with user and password, with token or with code; give one of them")
    state, host, request_id = exchange.state, exchange.host, exchange.request_id
    if code:
        principal = _of_code(exchange, code, host)
    else:
        principal = await state.credentials.log_in(host, request_id, user=user, password=password, token=token)
    cookie = os.urandom(COOKIE_BYTES).hex()
    session = state.sessions.begin(cookie, principal, exchange.services.now_s)
    asker = Asker(principal, host, request_id, session=session.digest)
    exchange.services.logins.logged_in(asker)
    told = (await exchange.services.operations.ask(asker, "user.self", {})).result
    exchange.headers["Set-Cookie"] = cookie_header(cookie, secure=exchange.secure)
    return json_answer(about(told, principal, exchange), exchange)


def _of_code(exchange: Exchange, code: str, host: str) -> Principal:
    """Raises AuthFailed."""
    state, found = exchange.state, list[Principal]()

    def is_right() -> bool:
        principal = state.codes.take(code, exchange.services.now_s) if is_loopback(host) else None
        if principal is not None and not state.credentials.why_ended(principal):
            found.append(principal)
        return bool(found)

    exchange.services.logins.check_secret(
        host,
        exchange.request_id,
        is_right,
        "the link for one login counts no more: it was used, is older than a minute, or its user was changed; run "
        "vibemq console again",
    )
    return found[0]


async def make_code(exchange: Exchange) -> Response:
    """For whoever has credentials on this machine: a browser beside it need not be given them."""
    if not is_loopback(exchange.host):
        raise Forbidden("codes for one login are made on the broker's machine alone; log in with user and password")
    if exchange.user.session:
        raise Forbidden("a session of a browser makes no further logins; use the header Authorization")
    code = os.urandom(COOKIE_BYTES).hex()
    exchange.state.codes.keep(code, exchange.user.principal, exchange.services.now_s)
    return json_answer({"code": code, "expires_ms": int(CODE_S * 1000)}, exchange)


async def log_out(exchange: Exchange) -> Response:
    sessions, asker = exchange.state.sessions, exchange.user
    if exchange.query.get("everywhere"):
        _end_all(exchange)
        exchange.services.logins.logged_out(asker, everywhere=True)
    elif asker.session:
        sessions.end(asker.session)
        exchange.services.logins.logged_out(asker, everywhere=False)
    response = Response(status_code=204)
    for line in cookie_gone_headers(secure=exchange.secure):
        response.headers.append("Set-Cookie", line)
    return response


def _end_all(exchange: Exchange) -> None:
    """Who has logged in with an access token ends the sessions of this token; those of the user are not its own."""
    principal, policy = exchange.user.principal, exchange.services.accounts.policy
    if policy.allows(principal, SELF, principal.name):
        exchange.state.sessions.end_all_of(principal.name)
    elif exchange.user.session:
        exchange.state.sessions.end_all_of(principal.name, token_id=principal.token_id)
    else:
        raise policy.refusal(principal, SELF, principal.name, operation="ending all sessions")


async def describe(exchange: Exchange) -> Response:
    # The first time it is made, which takes longer than the loop may be held.
    content = await anyio.to_thread.run_sync(exchange.state.description)
    return Response(content, media_type="application/json")


_BOOLEAN = {"type": "boolean"}
_TEXT = {"type": "string"}
_RULE = {
    "type": "object",
    "properties": {"kind": _TEXT, "pattern": _TEXT, "actions": {"type": "array", "items": _TEXT}},
}
WHO = {
    "type": "object",
    "required": [
        "user",
        "superuser",
        "authenticated",
        "auth_enabled",
        "permissions",
        "may",
        "queue_defaults",
        "version",
        "broker_name",
    ],
    "properties": {
        "user": {"type": ["string", "null"]},
        "superuser": _BOOLEAN,
        "authenticated": _BOOLEAN,
        "auth_enabled": _BOOLEAN,
        "token": {"type": ["string", "null"]},
        "permissions": {"type": "array", "items": _RULE},
        "narrowed_to": {"type": ["array", "null"], "items": _RULE},
        "may": {"type": "object", "additionalProperties": _BOOLEAN},
        "queue_defaults": {"type": "object", "description": "Options of a new queue where nothing else is said."},
        "version": _TEXT,
        "broker_name": _TEXT,
    },
}

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/session",
        summary="Who asks, and what the asker may do.",
        operation="user.self",
        shape=who,
        response=WHO,
    ),
    Endpoint(
        method="POST",
        path="/session",
        summary="Log in: the answer sets the cookie of a session.",
        anybody="who logs in has not logged in yet",
        kind=Kind.LOGIN,
        keyless="the answer has a secret, which is not kept to be repeated",
        body=LoginBody,
        handler=log_in,
        response=WHO,
        body_bytes_max=8_192,
    ),
    Endpoint(
        method="POST",
        path="/session/codes",
        summary="Make a code for one login of a browser on this machine, within a minute.",
        operation="user.self",
        kind=Kind.LOGIN,
        keyless="the answer has a secret, which is not kept to be repeated",
        body={},
        handler=make_code,
        response={
            "type": "object",
            "required": ["code", "expires_ms"],
            "properties": {"code": _TEXT, "expires_ms": {"type": "integer"}},
        },
        errors=(ErrorCode.FORBIDDEN,),
    ),
    Endpoint(
        method="DELETE",
        path="/session",
        summary="Log out: end this session, or all of the user.",
        operation="user.self",
        handler=log_out,
        query=(
            Parameter(
                "everywhere",
                _BOOLEAN,
                "End all sessions of the user; logged in with an access token, those of this token.",
            ),
        ),
        status=204,
    ),
    Endpoint(
        method="GET",
        path="/openapi.json",
        summary="This API as an OpenAPI description.",
        anybody="it is the same for every broker of this version, and in the documentation",
        handler=describe,
        response={"type": "object"},
    ),
)
