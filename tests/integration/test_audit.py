"""The audit log of a running broker: what is in it, and what is not."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.access import cheap_hash, connected
from tests.integration.cursor_peer import Refusal, rows_of
from tests.integration.served import Served
from tests.waiting import wait_until
from vibemq.protocols.native.codec.wire import CommandType, encode_body

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
    broker = Served(
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
            root.admin("token.revoke", user="ann", token_id=token)
            with pytest.raises(Refusal, match="TOKEN_NOT_FOUND"):
                root.admin("token.revoke", user=token, token_id=f"{token}0")
        with pytest.raises(Refusal, match="AUTH_FAILED"):
            connected(port, token, password="pw").__enter__()
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
    done, refused = (line["arguments"] for line in changed if line["operation"] == "token.revoke")
    token_id = by_operation["token.create"]["arguments"]["token_id"]
    assert done == {"user": "ann", "token_id": token_id}
    assert refused == {"user": f"vmq_{token_id}_…", "token_id": f"vmq_{token_id}_…"}
    failed = [line for line in audit if line["event"] == "auth.failed"]
    assert [(line["user"], line["outcome"]) for line in failed] == [
        ("ann", "refused"),
        ("ann", "refused"),
        (f"vmq_{token_id}_…", "refused"),
    ]
    denied = [line for line in audit if line["event"] == "access.denied"]
    assert [(line["user"], line["operation"], line["arguments"]) for line in denied] == [
        ("ann", "user.remove", {"user": "root"})
    ]


def test_no_secret_is_in_any_log(lines: tuple[list[dict[str, Any]], str, str]) -> None:
    _, log, token = lines
    assert token.startswith("vmq_")
    for secret in (*list(SECRETS.values())[1:], token, token.rsplit("_", 1)[1], "$argon2", "0" * 64):
        assert secret not in log


def said(broker: Served) -> list[dict[str, Any]]:
    """The audit lines of a broker, which ends."""
    _, log = broker.end(signal.SIGTERM)
    found = [json.loads(line) for line in log.splitlines() if '"vibemq.audit"' in line]
    found = [line for line in found if line["event"] in ("access.changed", "access.denied")]
    return [line for line in found if line["operation"].startswith(("queue.", "group."))]


def test_who_changed_and_removed_queues_and_messages_by_which_door(tmp_path: Path) -> None:
    broker = Served(
        tmp_path / "data",
        VIBEMQ_AUTH__SUPERUSER="root",
        VIBEMQ_AUTH__SUPERUSER_PASSWORD="pw",
    )
    with connected(broker.ports["native"], "root") as root:
        root.admin("user.add", user="eve", password_hash=cheap_hash("pw"))
        root.admin("user.grant", user="eve", queues="e.*", actions=["publish"])
        root.admin("queue.create", queue="a", options={"max_attempts": 7, "mode": 3, "durability": "weak"})
        root.admin("queue.change", queue="a", changes={"max_attempts": 8, "overflow": 0})
        with pytest.raises(Refusal, match="QUEUE_NOT_FOUND"):
            root.admin("queue.remove", queue="nothing", runs=[[number, number] for number in range(1, 201, 2)])
        # Nothing is in it: no record.
        root.admin("queue.purge", queue="a")
        root.admin("queue.create", queue="a", options={"max_attempts": 9})
        root.admin("queue.delete", queue="nothing")
        root.publish("a", rows_of(3))
        root.ask("group.join", "a", group="etl")
        root.admin("queue.remove", queue="a", runs=[[2, 2]])
        # The message is gone, and that it is quarantined is new, once.
        assert root.ask("group.quarantine", "a", group="etl", runs=[[2, 2]]) == {"quarantined": 0}
        assert root.ask("group.quarantine", "a", group="etl", runs=[[2, 2]]) == {"quarantined": 0, "unchanged": True}
        # By words of its own, as .NET clients do it; the second is gone before its answer.
        root.send(encode_body(CommandType.CREATE_QUEUE, "c", "b", headers={"queueName": "b"}))
        root.receive()
        with pytest.raises(Refusal, match="QUEUE_NOT_FOUND"):
            root.admin("queue.change", queue="nothing", changes={})
    with connected(broker.ports["native"], "eve", password="pw") as eve, pytest.raises(Refusal, match="NOT_AUTHORIZED"):
        eve.admin("queue.purge", queue="a")
    with connected(broker.ports["native"], "eve", password="pw") as eve:
        eve.send(encode_body(CommandType.DELETE_QUEUE, "c", "a", headers={"queueName": "a"}))
        eve.receive()
    with connected(broker.ports["native"], "root") as root:
        root.send(encode_body(CommandType.DELETE_QUEUE, "c", "b", headers={"queueName": "b"}))
    with connected(broker.ports["native"], "root") as root:
        wait_until(lambda: root.admin("queue.info", queue="b") is None)
    lines = said(broker)
    assert {line["protocol"] for line in lines} == {"native"}
    assert [(line["operation"], line["user"], line["outcome"], line["remote"]) for line in lines] == [
        ("queue.create", "root", "done", "127.0.0.1"),
        ("queue.change", "root", "done", "127.0.0.1"),
        ("queue.remove", "root", "failed", "127.0.0.1"),
        ("queue.remove", "root", "done", "127.0.0.1"),
        ("group.quarantine", "root", "done", "127.0.0.1"),
        ("queue.create", "root", "done", "127.0.0.1"),
        ("queue.change", "root", "failed", "127.0.0.1"),
        ("queue.purge", "eve", "refused", "127.0.0.1"),
        ("queue.delete", "eve", "refused", "127.0.0.1"),
        ("queue.delete", "root", "done", "127.0.0.1"),
    ]
    options = {"max_attempts": 7, "mode": "priority_based", "durability": "weak"}
    assert lines[0]["arguments"] == {"queue": "a", "options": options, "must_match": False}
    assert lines[1]["arguments"]["changes"] == {"max_attempts": 8, "overflow": "drop_oldest"}
    assert lines[2]["arguments"]["runs"][-1] == "… 100 in all"
    assert len(lines[2]["arguments"]["runs"]) == 21
    assert (lines[4]["arguments"]["runs"], lines[4]["count"]) == ([[2, 2]], 0)
    assert lines[5]["arguments"]["queue"] == "b"
    assert "nothing" in lines[6]["reason"]
