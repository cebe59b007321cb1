from typing import get_args

import pytest
from pydantic import SecretStr

from vibemq.config import Auth, Permission, User
from vibemq.errors import AuthFailed, AuthRequired, ConfigInvalid, NotAuthorized
from vibemq.model import commands
from vibemq.protocols.session import Authenticate, Principal
from vibemq.server.authority import ACTIONS, ANONYMOUS, Action, Authority
from vibemq.server.passwords import hash_password, parse_hash, verify_password

HASH = SecretStr(hash_password("secret"))
ANN = Principal("ann")
ROOT = Principal("root", superuser=True)


def authority() -> Authority:
    permissions = (
        Permission(queues="orders.*", actions=("publish", "inspect")),
        Permission(queues="jobs", actions=("*",)),
    )
    users = {
        "ann": User(password_hash=HASH, permissions=permissions),
        "root": User(password_hash=HASH, superuser=True),
    }
    return Authority(Auth(users=users, token=SecretStr("t0ken")))


def test_every_command_has_an_action() -> None:
    assert set(ACTIONS) == set(get_args(commands.Command))


@pytest.mark.parametrize("action", list(Action))
def test_who_may_do_what(action: Action) -> None:
    rules = authority()
    expected = {
        "orders.eu": action in (Action.PUBLISH, Action.INSPECT, Action.OWN, Action.LIST),
        "orders": action in (Action.OWN, Action.LIST),
        "jobs": action not in (Action.ADMIN, Action.NEVER),
        "jobs2": action in (Action.OWN, Action.LIST),
    }
    assert {queue: rules.allows(ANN, action, queue) for queue in expected} == expected
    assert rules.allows(ROOT, action, "anything") == (action is not Action.NEVER)
    assert not rules.allows(None, action, "jobs")
    assert not rules.allows(Principal("stranger"), Action.PUBLISH, "jobs")


def test_without_authentication_everything_but_the_servers_own_words_is_allowed() -> None:
    rules = Authority(Auth())
    assert not rules.enabled
    assert rules.authenticate(Authenticate(None, "who", "ever")) is ANONYMOUS
    assert [action for action in Action if not rules.allows(ANONYMOUS, action, "q")] == [Action.NEVER]


def test_the_refusal_is_the_same_whether_the_queue_exists_or_not() -> None:
    with pytest.raises(NotAuthorized, match=r"'ann' is not allowed to delete on queue 'other'"):
        authority().authorize(ANN, Action.DELETE, "other")


def test_lists_show_what_the_principal_has_something_to_do_with() -> None:
    rules = authority()
    assert [queue for queue in ("orders.eu", "secret", "jobs") if rules.may_see(ANN, queue)] == ["orders.eu", "jobs"]
    assert rules.may_see(ROOT, "secret")
    assert not rules.may_see(None, "jobs")


def test_passwords_and_tokens() -> None:
    rules = authority()
    assert rules.authenticate(Authenticate(None, "ann", "secret")) == ANN
    assert rules.authenticate(Authenticate(None, "root", "secret")) == ROOT
    assert rules.authenticate(Authenticate(None, auth_token="t0ken")).superuser
    for wrong in (
        Authenticate(None, "ann", "Secret"),
        Authenticate(None, "nobody", "secret"),
        Authenticate(None, auth_token="t0ke"),
        Authenticate(None, auth_token="\udcff"),
    ):
        with pytest.raises(AuthFailed):
            rules.authenticate(wrong)
    with pytest.raises(AuthRequired):
        rules.authenticate(Authenticate(None, "ann", ""))


def test_a_superuser_given_in_clear() -> None:
    rules = Authority(Auth(superuser="vibemq", superuser_password=SecretStr("pw")))
    assert rules.authenticate(Authenticate(None, "vibemq", "pw")) == Principal("vibemq", superuser=True)
    with pytest.raises(AuthFailed):
        rules.authenticate(Authenticate(None, "vibemq", "PW"))


def test_hashes_are_salted_and_checked() -> None:
    assert hash_password("x") != hash_password("x")
    assert verify_password("secret", HASH.get_secret_value())
    assert not verify_password("secreT", HASH.get_secret_value())


@pytest.mark.parametrize(
    "stored", ["", "plain", "scrypt$99$8$1$AA==$AA==", "scrypt$14$8$1$!$AA==", "md5$1$1$1$AA==$AA=="]
)
def test_a_hash_of_another_kind_is_refused_at_the_start_without_repeating_it(stored: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        parse_hash(stored)
    assert not stored or stored not in str(refused.value)
    with pytest.raises(ConfigInvalid):
        Authority(Auth(users={"ann": User(password_hash=SecretStr(stored))}))
