"""Admin frames (66): verbs about queues and groups become engine commands, the others an `Admin` request."""

from collections.abc import Callable
from typing import Any

import orjson

from vibemq.errors import InvalidPayload
from vibemq.model.commands import (
    ChangeQueue,
    CreateQueue,
    DeleteQueue,
    DescribeQueue,
    ListQueues,
    PurgeQueue,
    RemoveMessages,
)
from vibemq.model.options import check_queue_name, options_from_dict
from vibemq.model.runs import Run, RunSet
from vibemq.protocols.native.codec.wire import CommandType, WireMessage
from vibemq.protocols.native.replies import AdminDescribed, Administered
from vibemq.protocols.native.state import NativeState
from vibemq.protocols.session import Admin, Ask, Request

Arguments = dict[str, Any]


def request(state: NativeState, message: WireMessage) -> Request:
    """The request behind an Admin frame.

    Raises:
        InvalidPayload: no verb, or an argument of the wrong type.
        InvalidOptions, InvalidQueueName: as their names say.
    """
    payload = payload_of(message, "an Admin frame")
    verb, arguments = payload.get("verb"), payload.get("arguments") or {}
    if not isinstance(verb, str) or not isinstance(arguments, dict):
        raise InvalidPayload('the payload must be {"verb": "…", "arguments": {…}}')
    token = Administered(CommandType.ADMIN, message.id)
    if verb in _GROUP_VERBS:
        return _group(state, token, verb, arguments)
    translate = _ENGINE_VERBS.get(verb)
    return translate(state, token, arguments) if translate else Admin(token, verb, arguments)


def payload_of(message: WireMessage, what: str) -> dict[str, Any]:
    """The JSON object in the payload. Raises InvalidPayload."""
    try:
        payload = orjson.loads(message.payload or b"")
    except orjson.JSONDecodeError as error:
        raise InvalidPayload(f"the payload of {what} cannot be read: {error}") from None
    if not isinstance(payload, dict):
        raise InvalidPayload(f"the payload of {what} must be a JSON object")
    return payload


def _create(state: NativeState, token: Administered, arguments: Arguments) -> Request:
    options = arguments.get("options")
    if options is not None and not isinstance(options, dict):
        raise InvalidPayload("options must be an object")
    wanted = None if options is None else options_from_dict(options, state.context.queue_defaults)
    return CreateQueue(state.session, token, _queue(arguments), wanted, bool(arguments.get("must_match", False)))


def _change(state: NativeState, token: Administered, arguments: Arguments) -> Request:
    changes = arguments.get("changes")
    if not isinstance(changes, dict):
        raise InvalidPayload("changes must be an object of queue options")
    return ChangeQueue(state.session, token, _queue(arguments), changes)


def _delete(state: NativeState, token: Administered, arguments: Arguments) -> Request:
    return DeleteQueue(state.session, token, _queue(arguments))


def _purge(state: NativeState, token: Administered, arguments: Arguments) -> Request:
    return PurgeQueue(state.session, token, _queue(arguments))


def _remove(state: NativeState, token: Administered, arguments: Arguments) -> Request:
    return RemoveMessages(state.session, token, _queue(arguments), _runs(arguments.get("runs")))


def _info(state: NativeState, token: Administered, arguments: Arguments) -> Request:
    return DescribeQueue(state.session, AdminDescribed(token.kind, token.id), _queue(arguments))


def _list(state: NativeState, token: Administered, arguments: Arguments) -> Request:
    return ListQueues(state.session, token)


def _group(state: NativeState, token: Administered, verb: str, arguments: Arguments) -> Request:
    """The queue decides who may: these verbs need its permission, not a superuser."""
    queue = _queue(arguments)
    return Ask(token, verb, queue, {name: value for name, value in arguments.items() if name != "queue"})


def _queue(arguments: Arguments) -> str:
    return check_queue_name(_text(arguments, "queue"))


def _text(arguments: Arguments, name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidPayload(f"argument {name} is missing; it must be text")
    return value


def _runs(value: Any) -> list[Run]:
    """Sorted, disjoint runs."""
    if not isinstance(value, list) or not all(map(_is_run, value)):
        raise InvalidPayload("runs must be a list of [first, last] sequences")
    return RunSet(sorted((first, last) for first, last in value)).runs()


def _is_run(pair: Any) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(number) is int for number in pair)
        and bool(0 <= pair[0] <= pair[1])
    )


_ENGINE_VERBS: dict[str, Callable[[NativeState, Administered, Arguments], Request]] = {
    "queue.create": _create,
    "queue.change": _change,
    "queue.delete": _delete,
    "queue.purge": _purge,
    "queue.remove": _remove,
    "queue.info": _info,
    "queue.list": _list,
}

_GROUP_VERBS = frozenset(f"group.{verb}" for verb in ("list", "offsets", "join", "set", "seek", "quarantine", "delete"))
"""Of docs/spec/cursor.md, for operators."""
