"""Frames 50 to 56: users and their permissions, as .NET clients ask for them (docs/spec/native.md, "Users").

Each becomes an operation. What a .NET client can say of a permission are the seven words of `ACTION_OF`; what else the
broker knows of it stays as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from vibemq.errors import InvalidPayload, UserNotFound, VibeMQError
from vibemq.protocols.native.codec.json_check import small_object
from vibemq.protocols.native.codec.wire import CommandType, WireMessage
from vibemq.protocols.native.replies import Plain
from vibemq.protocols.native.state import NativeState
from vibemq.protocols.session import OperationRequest

ACTION_OF = {
    "Publish": "publish",
    "Subscribe": "subscribe",
    "CreateQueue": "create",
    "DeleteQueue": "delete",
    "PurgeQueue": "purge",
    "GetQueueInfo": "inspect",
    "ListQueues": "list",
}
EVERY_ACTION = "*"
USERS_AT_ONCE = 500
"""To write the list of so many takes less than a millisecond."""


@dataclass(slots=True)
class UserReply(Plain):
    """A frame of the same type with JSON: the same fields that were asked with, but the secrets."""

    content: dict[str, Any] | None = None

    def answer(self, state: NativeState, result: Any) -> None:
        state.reply(self.kind, self.id, payload=orjson.dumps(self.content))


@dataclass(slots=True)
class UsersListed(Plain):
    """All of them in one answer, which is written in parts: there may be very many."""

    written: list[bytes] = field(default_factory=list)

    def ask(self, state: NativeState, after: str | None = None) -> None:
        _request(state, self, "user.list", after=after, limit=USERS_AT_ONCE)

    def answer(self, state: NativeState, result: Any) -> None:
        users = [
            {
                "username": user["user"],
                "isSuperuser": user["superuser"],
                # Of the settings' users it is not known.
                "createdAt": (user["created_at"] or 0) // 1000,
            }
            for user in result["users"]
        ]
        if users:
            self.written.append(orjson.dumps(users)[1:-1])
        if result["next"] is None:
            state.reply(self.kind, self.id, payload=b"[" + b",".join(self.written) + b"]")
        else:
            self.ask(state, result["next"])


@dataclass(slots=True)
class PermissionsListed(Plain):
    def answer(self, state: NativeState, result: Any) -> None:
        listed = [
            {"queuePattern": rule["queues"], "operations": _operations(rule["actions"])}
            for rule in result["permissions"]
            if "queues" in rule
        ]
        state.reply(self.kind, self.id, payload=orjson.dumps([item for item in listed if item["operations"]]))

    def refuse(self, state: NativeState, error: VibeMQError) -> None:
        if isinstance(error, UserNotFound):
            state.reply(self.kind, self.id, payload=b"[]")
        else:
            state.error(self.id, error)


def _operations(actions: list[str]) -> list[str]:
    return [name for name, action in ACTION_OF.items() if action in actions or EVERY_ACTION in actions]


def ask(state: NativeState, message: WireMessage) -> None:
    """Raises InvalidPayload."""
    kind = CommandType(message.type)
    _HANDLERS[kind](state, message, kind)


def _create(state: NativeState, message: WireMessage, kind: CommandType) -> None:
    fields = _fields(message, "username", "password")
    reply = UserReply(kind, message.id, content={"username": fields["username"]})
    _request(state, reply, "user.add", user=fields["username"], password=fields["password"])


def _delete(state: NativeState, message: WireMessage, kind: CommandType) -> None:
    fields = _fields(message, "username")
    _request(state, UserReply(kind, message.id, content=fields), "user.remove", user=fields["username"])


def _change_password(state: NativeState, message: WireMessage, kind: CommandType) -> None:
    fields = _fields(message, "username", "newPassword")
    reply = UserReply(kind, message.id, content={"username": fields["username"]})
    _request(state, reply, "user.password", user=fields["username"], password=fields["newPassword"])


def _grant(state: NativeState, message: WireMessage, kind: CommandType) -> None:
    fields = _fields(message, "username", "queuePattern")
    names = _object(message).get("operations")
    if not isinstance(names, list):
        raise InvalidPayload(f'the payload of {kind.name} ({kind}) needs "operations", a list of names')
    known = [name for name in ACTION_OF if name in names]
    if not known:
        raise InvalidPayload(
            f'none of the "operations" in {kind.name} ({kind}) is known; known are {", ".join(ACTION_OF)}'
        )
    _request(
        state,
        UserReply(kind, message.id, content={**fields, "operations": known}),
        "user.grant",
        user=fields["username"],
        queues=fields["queuePattern"],
        actions=[ACTION_OF[name] for name in known],
        only=list(ACTION_OF.values()),
    )


def _revoke(state: NativeState, message: WireMessage, kind: CommandType) -> None:
    fields = _fields(message, "username", "queuePattern")
    reply = UserReply(kind, message.id, content=fields)
    _request(state, reply, "user.revoke", user=fields["username"], queues=fields["queuePattern"])


def _list(state: NativeState, message: WireMessage, kind: CommandType) -> None:
    UsersListed(kind, message.id).ask(state)


def _permissions(state: NativeState, message: WireMessage, kind: CommandType) -> None:
    fields = _fields(message, "username")
    _request(state, PermissionsListed(kind, message.id), "user.show", user=fields["username"])


def _request(state: NativeState, reply: Plain, operation: str, **arguments: Any) -> None:
    state.ask(OperationRequest(reply, operation, arguments))


def _fields(message: WireMessage, *names: str) -> dict[str, str]:
    """Text of the payload by name. Raises InvalidPayload."""
    payload = _object(message)
    for name in names:
        if not isinstance(payload.get(name), str) or not payload[name]:
            kind = CommandType(message.type)
            raise InvalidPayload(f'the payload of {kind.name} ({kind}) needs "{name}", text that is not empty')
    return {name: payload[name] for name in names}


def _object(message: WireMessage) -> dict[str, Any]:
    kind = CommandType(message.type)
    try:
        payload = small_object(message.payload or b"")
    except ValueError as error:
        raise InvalidPayload(f"the payload of {kind.name} ({kind}) cannot be read: {error}") from None
    if not isinstance(payload, dict):
        raise InvalidPayload(f"the payload of {kind.name} ({kind}) must be a JSON object")
    return payload


_HANDLERS: dict[CommandType, Callable[[NativeState, WireMessage, CommandType], None]] = {
    CommandType.ADMIN_CREATE_USER: _create,
    CommandType.ADMIN_DELETE_USER: _delete,
    CommandType.ADMIN_CHANGE_PASSWORD: _change_password,
    CommandType.ADMIN_GRANT_PERMISSION: _grant,
    CommandType.ADMIN_REVOKE_PERMISSION: _revoke,
    CommandType.ADMIN_LIST_USERS: _list,
    CommandType.ADMIN_GET_USER_PERMISSIONS: _permissions,
}
TYPES = tuple(_HANDLERS)
