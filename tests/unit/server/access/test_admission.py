import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import SecretStr

from vibemq.auth.passwords import hash_password
from vibemq.auth.policy import Actor
from vibemq.auth.users import ANONYMOUS, Accounts
from vibemq.config import Auth, Permission, User
from vibemq.errors import NotAuthenticated, NotAuthorized, RateLimited
from vibemq.model.access import Principal
from vibemq.model.commands import Publish, SetFlow, Settle, Settlement, Stage
from vibemq.model.rows import Rows
from vibemq.operations.registry import Call, Caller
from vibemq.operations.transfer.imports import ImportArguments
from vibemq.protocols.session import OperationRequest
from vibemq.server.access.admission import PeerAdmission
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.driving.requests import PeerRequests

USER = User(
    password_hash=SecretStr(hash_password("pw")), permissions=(Permission(queues="mine", actions=("publish",)),)
)
ANN = Principal("ann")


def admission(per_second: int = 0, auth: Auth | None = None) -> PeerAdmission:
    return PeerAdmission(Accounts((auth or Auth()).accounts()).policy, Metrics(), per_second=per_second, now=0.0)


def publish(queue: str, count: int = 1) -> Publish:
    return Publish(1, "t", queue, Rows.of([b"row"] * count))


def test_nobody_may_do_anything_before_authentication() -> None:
    assert isinstance(admission().check(None, publish("q"), 0.0), NotAuthenticated)


def test_permissions_are_asked_per_queue_and_forgotten_with_the_principal() -> None:
    door = admission(auth=Auth(users={"ann": USER}))
    assert door.check(ANN, publish("mine"), 0.0) is None
    assert isinstance(door.check(ANN, publish("other"), 0.0), NotAuthorized)
    assert isinstance(door.check(Principal("bob"), publish("mine"), 0.0), NotAuthorized)


@pytest.mark.parametrize("principal", [ANONYMOUS, ANN])
def test_a_session_cannot_speak_the_servers_words(principal: Principal) -> None:
    assert isinstance(admission().check(principal, SetFlow(1, True), 0.0), NotAuthorized)


def test_messages_are_limited_and_acks_never() -> None:
    door = admission(per_second=10)
    assert door.check(ANONYMOUS, publish("q", 10), 0.0) is None
    assert isinstance(door.check(ANONYMOUS, publish("q"), 0.0), RateLimited)
    assert door.check(ANONYMOUS, Settle(1, None, 1, Settlement.ACK, [(1, 1000)]), 0.0) is None
    assert door.check(ANONYMOUS, publish("q"), 1.0) is None


def test_what_is_staged_is_limited_as_what_is_published() -> None:
    door = admission(per_second=10)
    assert door.check(ANONYMOUS, Stage(1, "t", "q", "app", 1, "s", 1, Rows.of([b"row"] * 10)), 0.0) is None
    assert isinstance(door.check(ANONYMOUS, publish("q"), 0.0), RateLimited)


def test_what_is_imported_is_limited_as_what_is_published() -> None:
    door = admission(per_second=10)
    refused, begun = list[Any](), list[Any]()
    arguments = {"queue": "q", "import_id": "i", "position": 0, "messages": [{}] * 10}

    def admit(peer: Any, name: str, arguments: dict[str, Any]) -> Call:
        operation = SimpleNamespace(command=None)
        return Call(cast(Any, operation), None, Caller(ANONYMOUS, Actor("")), ImportArguments(**arguments))

    async def ask() -> None:
        operations = SimpleNamespace(
            admit=admit, begin=lambda peer, token, call: begun.append(token), command_audit=None
        )
        works = cast(Any, SimpleNamespace(lined_up=()))
        requests = PeerRequests(works, door, cast(Any, None), cast(Any, operations), Metrics())
        session = SimpleNamespace(refused=lambda token, error: refused.append(error))
        peer: Any = SimpleNamespace(number=1, session=session)
        for token, now in (("first", 0.0), ("too soon", 0.9), ("later", 1.0)):
            assert requests._operate(peer, OperationRequest(token, "queue.import", arguments), [], now)

    asyncio.run(ask())
    assert begun == ["first", "later"]
    assert [type(error) for error in refused] == [RateLimited]


def test_what_is_remembered_about_queue_names_is_bounded() -> None:
    door = admission()
    for number in range(5000):
        assert door.check(ANONYMOUS, publish(f"q{number}"), 0.0) is None
    assert len(door._grants._known) <= 1024
