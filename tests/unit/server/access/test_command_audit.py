"""Audited commands: what became of them is written when it is known, whoever is still there to hear it."""

import logging
from dataclasses import dataclass

import pytest

from vibemq.errors import NotAuthorized, QueueNotFound, RateLimited
from vibemq.model.access import Principal
from vibemq.model.commands import CreateQueue, DeleteQueue, DescribeQueue, PurgeQueue
from vibemq.model.effects import Counted, Outcome, Reply
from vibemq.model.options import DeliveryMode, QueueOptions
from vibemq.operations import AUDITED_COMMANDS
from vibemq.server.access.audit import AuditLog
from vibemq.server.access.command_audit import CommandAudit
from vibemq.server.commit.release_order import EffectRouter

ROOT = Principal("root", True)


@dataclass
class Somebody:
    host: str = "192.0.2.1"
    connection_id: str = "c1"
    protocol: str = "native"


@pytest.fixture
def audit(caplog: pytest.LogCaptureFixture) -> CommandAudit:
    caplog.set_level(logging.INFO)
    return CommandAudit(AuditLog(lambda: 0.0), AUDITED_COMMANDS)


def test_the_answer_brings_the_line_and_its_token_back(audit: CommandAudit, caplog: pytest.LogCaptureFixture) -> None:
    created = CreateQueue(1, "t1", "a", QueueOptions(max_attempts=9))
    purged = PurgeQueue(1, "t2", "a")
    for command in (created, purged):
        audit.mark(Somebody(), ROOT, command)
    assert caplog.records == []
    replies = [Reply(1, created.token, None), Reply(1, "another", None), Reply(1, purged.token, QueueNotFound("a"))]
    audit.note(replies)
    assert [reply.token for reply in replies] == ["t1", "another", "t2"]
    lines = [record.__dict__ for record in caplog.records]
    assert [(line["operation"], line["outcome"]) for line in lines] == [
        ("queue.create", "done"),
        ("queue.purge", "failed"),
    ]
    assert lines[0]["arguments"]["options"]["max_attempts"] == 9
    assert audit.waiting == 0


def test_who_has_gone_before_the_answer_is_written_down(audit: CommandAudit, caplog: pytest.LogCaptureFixture) -> None:
    router = EffectRouter(left=audit.note)
    router.connect(1, lambda effects: None)
    command = DeleteQueue(1, "t", "a")
    audit.mark(Somebody(), ROOT, command)
    held = router.accept(Outcome(gated=[Reply(1, command.token, None)]))
    router.disconnect(1)
    assert caplog.records == []
    router.release(held.gated)
    assert [record.__dict__["operation"] for record in caplog.records] == ["queue.delete"]


def test_refusals_are_written_but_not_those_that_say_wait(
    audit: CommandAudit, caplog: pytest.LogCaptureFixture
) -> None:
    for command in (DeleteQueue(1, "t", "a"), DescribeQueue(1, "t", "a")):
        audit.denied(Somebody(), ROOT, command, NotAuthorized("no"))
        audit.denied(Somebody(), ROOT, command, RateLimited("later"))
    assert [(r.__dict__["event"], r.__dict__["operation"]) for r in caplog.records] == [
        ("access.denied", "queue.delete")
    ]
    assert caplog.records[0].__dict__["arguments"] == {"queue": "a"}


def test_a_command_whose_rights_show_when_it_is_decided_is_denied(
    audit: CommandAudit, caplog: pytest.LogCaptureFixture
) -> None:
    made = CreateQueue(1, "t", "a")
    audit.mark(Somebody(), ROOT, made)
    audit.note([Reply(1, made.token, NotAuthorized("no"))])
    assert [(r.__dict__["event"], r.__dict__["outcome"]) for r in caplog.records] == [("access.denied", "refused")]
    assert caplog.records[0].__dict__["arguments"]["queue"] == "a"


def test_what_a_protocol_asks_for_by_itself_is_written_when_it_has_changed_something(
    audit: CommandAudit, caplog: pytest.LogCaptureFixture
) -> None:
    made, known, failed, asked = (
        CreateQueue(1, name, name, implied=name != "asked", mode=DeliveryMode.ROUND_ROBIN)
        for name in ("made", "known", "failed", "asked")
    )
    audit.denied(Somebody(), ROOT, made, NotAuthorized("no"))
    assert caplog.records == []
    for command in (made, known, failed, asked):
        audit.mark(Somebody(), ROOT, command)
    audit.note(
        [
            Reply(1, made.token, None),
            Reply(1, known.token, None, unchanged=True),
            Reply(1, failed.token, QueueNotFound("failed")),
            Reply(1, asked.token, QueueNotFound("asked")),
        ]
    )
    assert [(r.__dict__["arguments"]["queue"], r.__dict__["outcome"]) for r in caplog.records] == [
        ("made", "done"),
        ("asked", "failed"),
    ]
    assert not {"implied", "mode"} & caplog.records[0].__dict__["arguments"].keys()


def test_a_count_of_the_answer_is_written(audit: CommandAudit, caplog: pytest.LogCaptureFixture) -> None:
    purged = PurgeQueue(1, "t", "a")
    audit.mark(Somebody(), ROOT, purged)
    audit.note([Reply(1, purged.token, Counted(12))])
    assert caplog.records[0].__dict__["count"] == 12
