import pytest
from pydantic import SecretStr

from vibemq.auth.passwords import hash_password
from vibemq.auth.users import ANONYMOUS, Accounts
from vibemq.config import Auth, Permission, User
from vibemq.errors import NotAuthenticated, NotAuthorized, RateLimited
from vibemq.model.access import Principal
from vibemq.model.commands import Publish, SetFlow, Settle, Settlement, Stage
from vibemq.model.rows import Rows
from vibemq.server.access.admission import PeerAdmission
from vibemq.server.monitoring.metrics import Metrics

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


def test_what_is_remembered_about_queue_names_is_bounded() -> None:
    door = admission()
    for number in range(5000):
        assert door.check(ANONYMOUS, publish(f"q{number}"), 0.0) is None
    assert len(door._grants._known) <= 1024
