"""The audit log of a running broker: what is in it, and what is not."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.access import connected
from tests.integration.cursor_peer import Refusal
from tests.integration.test_server_process import Process

SECRETS = {
    "the superuser's": "pw",
    "a new user's": "canary-one",
    "a wrong": "canary-two",
    "a changed": "canary-three",
}
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("user.add", {"user": "ann", "password": SECRETS["a new user's"]}),
    ("user.change", {"user": "ann", "superuser": False}),
    ("user.grant", {"user": "ann", "queues": "a.*", "actions": ["publish"]}),
    ("user.revoke", {"user": "ann", "queues": "a.*"}),
    ("user.password", {"user": "ann", "password": SECRETS["a changed"]}),
    ("token.create", {"user": "ann", "label": "nightly"}),
]


@pytest.fixture
def lines(tmp_path: Path) -> tuple[list[dict[str, Any]], str, str]:
    """(audit lines, the whole log at its most talkative, the text of a token) of a broker that logs as text."""
    broker = Process(
        tmp_path / "data",
        VIBEMQ_AUTH__SUPERUSER="root",
        VIBEMQ_AUTH__SUPERUSER_PASSWORD=SECRETS["the superuser's"],
        VIBEMQ_LOG__LEVEL="debug",
    )
    try:
        port = broker.ports["native"]
        with connected(port, "root") as root:
            for name, arguments in CHANGES:
                root.admin(name, **arguments)
            with pytest.raises(Refusal, match="USER_NOT_FOUND"):
                root.admin("user.remove", user="nobody")
        for wrong in (SECRETS["a wrong"], "vmq_000000000000_" + "0" * 64):
            with pytest.raises(Refusal, match="AUTH_FAILED"):
                connected(port, "ann", password=wrong).__enter__()
        with (
            connected(port, "ann", password=SECRETS["a changed"]) as ann,
            pytest.raises(Refusal, match="NOT_AUTHORIZED"),
        ):
            ann.admin("user.remove", user="root")
        with connected(port, "root") as root:
            made = root.admin("token.create", user="ann")
            token = made["token"]
            with connected(port, "ann", token=token) as bearer:
                assert bearer.admin("user.self")["token"] == made["token_id"]
            root.admin("token.revoke", user="ann", token_id=made["token_id"])
    finally:
        _, log = broker.end(signal.SIGTERM)
    found = [json.loads(line) for line in log.splitlines() if '"vibemq.audit"' in line]
    return found, log, token


def test_who_changed_what_from_where_and_what_became_of_it(lines: tuple[list[dict[str, Any]], str, str]) -> None:
    audit = lines[0]
    changed = [line for line in audit if line["event"] == "access.changed"]
    assert [line["operation"] for line in changed[: len(CHANGES)]] == [name for name, _ in CHANGES]
    assert {(line["user"], line["remote"]) for line in changed} == {("root", "127.0.0.1")}
    by_operation = {line["operation"]: line for line in changed}
    assert by_operation["user.grant"]["arguments"] == {"user": "ann", "queues": "a.*", "actions": ["publish"]}
    assert by_operation["user.add"]["outcome"] == "done"
    assert by_operation["user.remove"]["outcome"] == "failed"
    assert "no user 'nobody'" in by_operation["user.remove"]["reason"]
    assert (
        by_operation["token.create"]["arguments"]["token_id"] == by_operation["token.revoke"]["arguments"]["token_id"]
    )
    failed = [line for line in audit if line["event"] == "auth.failed"]
    assert [(line["user"], line["outcome"]) for line in failed] == [("ann", "refused")] * 2
    denied = [line for line in audit if line["event"] == "access.denied"]
    assert [(line["user"], line["operation"]) for line in denied] == [("ann", "user.remove")]


def test_no_secret_is_in_any_log(lines: tuple[list[dict[str, Any]], str, str]) -> None:
    _, log, token = lines
    assert token.startswith("vmq_")
    for secret in (*list(SECRETS.values())[1:], token, token.rsplit("_", 1)[1], "$argon2", "0" * 64):
        assert secret not in log
