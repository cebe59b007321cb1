"""The list of users, as .NET clients ask for it."""

from types import SimpleNamespace
from typing import Any, cast

import orjson

from vibemq.protocols.native.codec.wire import CommandType
from vibemq.protocols.native.state import NativeState
from vibemq.protocols.native.users import USERS_AT_ONCE, UsersListed


def test_the_list_is_asked_for_and_written_in_parts_of_bounded_size() -> None:
    asked: list[dict[str, Any]] = []
    replies: list[bytes] = []
    state = cast(
        NativeState,
        SimpleNamespace(
            ask=lambda request: asked.append(request.arguments),
            reply=lambda kind, message_id, payload: replies.append(payload),
        ),
    )
    users = [{"user": f"u{number:04}", "superuser": False, "created_at": 5_000} for number in range(1_200)]
    listed = UsersListed(CommandType.ADMIN_LIST_USERS, "l")
    listed.ask(state)
    while not replies:
        after, limit = asked[-1]["after"], asked[-1]["limit"]
        page = [user for user in users if after is None or str(user["user"]) > after]
        listed.answer(state, {"users": page[:limit], "next": page[limit - 1]["user"] if len(page) > limit else None})
    assert [wanted["limit"] for wanted in asked] == 3 * [USERS_AT_ONCE]
    told = orjson.loads(replies[0])
    assert [user["username"] for user in told] == [user["user"] for user in users]
    assert told[0] == {"username": "u0000", "isSuperuser": False, "createdAt": 5}


def test_nobody_is_listed_as_nobody() -> None:
    replies: list[bytes] = []
    state = cast(NativeState, SimpleNamespace(reply=lambda kind, message_id, payload: replies.append(payload)))
    UsersListed(CommandType.ADMIN_LIST_USERS, "l").answer(state, {"users": [], "next": None})
    assert replies == [b"[]"]
