"""S11: canaries in every secret, and every place where somebody looks."""

import json
import traceback

import pytest

from tests.integration.access import connected
from tests.integration.cursor_peer import Refusal
from tests.security.target import Target
from vibemq.auth.tokens import make_token
from vibemq.auth.users import Account, Accounts
from vibemq.model.accounts import StoredUser
from vibemq.protocols.omq.commands import Connect
from vibemq.protocols.session import Authenticate
from vibemq.settings import Settings

pytestmark = pytest.mark.xdist_group("security")

CANARY = "canary-of-a-secret"
SHOWN = (
    *("user.list", "user.self", "token.list", "connections.list", "broker.info", "broker.metrics", "queue.list"),
    *("broker.overview", "broker.settings", "broker.checks", "listeners.list", "audit.list", "history.get"),
)


def test_no_object_shows_its_secrets() -> None:
    settings = Settings.model_validate(
        {
            "auth": {"superuser": "root", "superuser_password": CANARY, "token": CANARY + "-token"},
            "http": {"token": CANARY},
        }
    )
    text, kept = make_token("ann", label="x", now=1, expires_at=0, rules=None)
    user = StoredUser("ann", CANARY, False, (), 1, 1)
    account = Account("ann", CANARY, password=CANARY)
    requests = (Authenticate("t", "ann", CANARY, CANARY), Connect(1, f"ann:{CANARY}".encode()))
    objects = (settings, settings.auth, settings.http, kept, user, account, *requests)
    shown = "".join(map(repr, objects)) + "".join(map(str, objects))
    shown += settings.model_dump_json()
    assert CANARY not in shown
    assert text.rsplit("_", 1)[1] not in shown
    assert kept.key.hex() not in shown
    assert repr(kept.digest) not in shown


def test_no_answer_and_no_metric_holds_a_secret(target: Target) -> None:
    secrets = {CANARY, CANARY + "-new"}
    told: list[str] = []
    with connected(target.port, "root") as root:
        root.admin("user.add", user="canary", password=CANARY)
        token = root.admin("token.create", user="canary")
        secrets |= {token["token"], token["token"].rsplit("_", 1)[1]}
        root.admin("user.password", user="canary", password=CANARY + "-new")
        told += [json.dumps(root.admin(operation)) for operation in SHOWN]
        told.append(json.dumps(root.admin("user.show", user="canary")))
        for arguments in ({"user": CANARY + " "}, {"user": "root", "password": CANARY}, {"password": CANARY, "x": 1}):
            with pytest.raises(Refusal) as refused:
                root.admin("user.password", **arguments)
            if "password" in arguments:
                told.append(str(refused.value))
        for path in (b"/metrics", b"/metrics/prometheus", b"/health"):
            told.append(target.say_http(b"GET " + path + b" HTTP/1.1", b"Host: a").decode())
        root.admin("user.remove", user="canary")
    told.append(target.log_text())
    for secret in secrets:
        assert [text for text in told if secret in text] == []


def test_no_traceback_of_a_failed_login_holds_a_secret() -> None:
    accounts = Accounts([Account("ann", "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$YWFhYWFhYWFhYWFhYWFhYQ")])
    try:
        accounts.authenticate("ann", CANARY, "", 0)
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        assert CANARY not in text
        assert "argon2" not in text.lower().replace("argon2-cffi", "")
    else:
        raise AssertionError("it was let in")
