"""Operations that go by steps: none of them begins a step after a revocation was answered."""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import vibemq
from tests.integration.access import cheap_hash
from tests.integration.jobs import Guarded, guarded
from tests.integration.test_operations import dead
from tests.integration.test_server_broker import settings
from tests.waiting import until
from vibemq.config import Auth, User
from vibemq.errors import NotAuthorized, VibeMQError
from vibemq.model.commands import Command, MoveMessages, PurgeDead, ReplayDead
from vibemq.operations.dead_letters.letters import DeadLetters
from vibemq.operations.jobs.edits import LetterEdits
from vibemq.operations.transfer.imports import QueueImports
from vibemq.operations.transfer.removal import MessageRemoval
from vibemq.server.broker import Broker
from vibemq.server.local_session import LocalSession

pytestmark = pytest.mark.anyio
__all__ = ["guarded"]

PASSWORD = "a password"
FOUND = 120
"""Letters beside the 20 that the queue has: three steps."""
MESSAGES = 250
"""Three steps of a move."""
STEPS = {"dlq.purge": PurgeDead, "dlq.replay": ReplayDead, "dead.redrive": ReplayDead, "queue.move": MoveMessages}
STEP_SIZE = {"dlq.purge": 50, "dlq.replay": 50, "dead.redrive": 32, "queue.move": 100}
Ends = Callable[[vibemq.Client, str], Awaitable[Any]]
"""Takes from the user `temp` what it works with; the text is the id of its token."""


async def permission_revoked(root: vibemq.Client, token_id: str) -> None:
    await root.admin("user.revoke", user="temp", queues="a")


async def token_revoked(root: vibemq.Client, token_id: str) -> None:
    await root.admin("token.revoke", user="temp", token_id=token_id)


async def password_replaced(root: vibemq.Client, token_id: str) -> None:
    await root.admin("user.password", user="temp", password="another password")


async def user_removed(root: vibemq.Client, token_id: str) -> None:
    await root.admin("user.remove", user="temp")


async def user_made_anew(root: vibemq.Client, token_id: str) -> None:
    await user_removed(root, token_id)
    await made(root)


async def made(root: vibemq.Client) -> None:
    await root.admin("user.add", user="temp", password=PASSWORD)
    await root.admin("user.grant", user="temp", queues="a", actions=["*"])
    await root.admin("user.grant", user="temp", queues="b", actions=["publish"])


async def arguments_for(root: vibemq.Client, broker: Broker, operation: str) -> dict[str, Any]:
    """There is work of three steps in the queue `a`, and this asks for all of it."""
    if operation == "queue.move":
        # Into a limited queue goes one step after the other.
        await root.admin("queue.change", queue="b", changes={"max_messages": 100_000})
        await root.publish_many("a", [{"n": number} for number in range(MESSAGES)])
        return {"queue": "a", "to": "b", "limit": MESSAGES}
    await dead(root, broker, "a", FOUND - 20)
    listed = await root.admin("dlq.list", queue="a", limit=FOUND)
    ids = [letter["dead_id"] for letter in listed["letters"]]
    assert len(ids) == FOUND
    return {"dlq.purge": {"ids": ids}, "dlq.replay": {"queue": "a"}, "dead.redrive": {"queue": "a", "ids": ids}}[
        operation
    ] | {"queue": "a"}


def behind_the_first(step: type, monkeypatch: pytest.MonkeyPatch, work: Callable[[], Awaitable[Any]]) -> list[Command]:
    """Has the work done when the first such step is; the steps that are decided."""
    ask, decided = LocalSession.ask, list[Command]()

    async def watched(local: LocalSession, make: Callable[[int, int], Command]) -> Any:
        was_first = False

        def noted(session: int, token: int) -> Command:
            nonlocal was_first
            command = make(session, token)
            if isinstance(command, step):
                decided.append(command)
                was_first = len(decided) == 1
            return command

        answer = await ask(local, noted)
        if was_first:
            await work()
        return answer

    monkeypatch.setattr(LocalSession, "ask", watched)
    return decided


def audited(caplog: pytest.LogCaptureFixture, operation: str) -> list[Any]:
    return [
        record
        for record in caplog.records
        if record.name == "vibemq.audit" and getattr(record, "operation", "") == operation
    ]


@pytest.mark.parametrize(
    "ends",
    [permission_revoked, token_revoked, password_replaced, user_removed, user_made_anew],
    ids=lambda ends: ends.__name__,
)
@pytest.mark.parametrize("operation", STEPS)
async def test_no_further_step_is_done_after_a_revocation_was_answered(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, operation: str, ends: Ends
) -> None:
    caplog.set_level(logging.INFO, "vibemq.audit")
    broker, login = guarded
    step_size = STEP_SIZE[operation]
    async with login("root") as root:
        await made(root)
        wanted = await arguments_for(root, broker, operation)
        async with vibemq.connect(broker.url, username="temp", password=PASSWORD) as temp:
            token = await temp.admin("token.create", user="temp", label="steps", expires_ms=60_000)
        decided = behind_the_first(STEPS[operation], monkeypatch, lambda: ends(root, token["token_id"]))
        secret: dict[str, Any] = (
            {"token": token["token"]} if ends is token_revoked else {"username": "temp", "password": PASSWORD}
        )
        before = await root.queue_info("a")
        with pytest.raises(VibeMQError) as refused:
            async with vibemq.connect(broker.url, **secret) as temp:
                await temp.admin(operation, **wanted)
        await until(lambda: bool(audited(caplog, operation)))
        assert len(decided) == 1
        if ends is permission_revoked:
            assert isinstance(refused.value, NotAuthorized)
            assert str(refused.value).endswith(f"({step_size} were done before)")
        [line] = audited(caplog, operation)
        assert (line.outcome, line.count) == ("failed", step_size)
        after = await root.queue_info("a")
        assert before is not None
        assert after is not None
        gone = before.ready - after.ready if operation == "queue.move" else before.dead - after.dead
        assert gone == step_size


@pytest.mark.parametrize(
    ("operation", "arguments", "of", "last_wait"),
    [
        ("dlq.purge", {"newer_than_ms": 3_600_000}, DeadLetters, "_find"),
        ("dlq.edit", {"dead_id": 1, "text": "other"}, LetterEdits, "_letter"),
        ("queue.import", {"import_id": "f", "position": 0, "messages": []}, QueueImports, "_read"),
        ("message.remove", {"ids": ["x"]}, MessageRemoval, "_search"),
    ],
    ids=lambda given: given if isinstance(given, str) and "." in given else "",
)
async def test_a_step_that_was_prepared_is_not_done_after_a_revocation_was_answered(
    guarded: Guarded,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    operation: str,
    arguments: dict[str, Any],
    of: type,
    last_wait: str,
) -> None:
    caplog.set_level(logging.INFO, "vibemq.audit")
    broker, login = guarded
    prepare: Callable[..., Coroutine[Any, Any, Any]] = getattr(of, last_wait)
    async with login("root") as root:
        await made(root)
        async with vibemq.connect(broker.url, username="temp", password=PASSWORD) as temp:
            await temp.publish("a", {"n": 1}, id="x")

            async def revoked(*given: Any, **named: Any) -> Any:
                prepared = await prepare(*given, **named)
                await permission_revoked(root, "")
                return prepared

            monkeypatch.setattr(of, last_wait, revoked)
            with pytest.raises(NotAuthorized) as refused:
                await temp.admin(operation, queue="a", **arguments)
        assert "were done before" not in str(refused.value)
        # An import is not audited.
        lines = [(line.event, line.outcome) for line in audited(caplog, operation)]
        assert lines == ([] if operation == "queue.import" else [("access.denied", "refused")])
        info = await root.queue_info("a")
        assert info is not None
        assert (info.ready, info.dead) == (1, 20)


NOBODY = Auth()
SHARED = Auth(token=SecretStr("a shared token"))
SUPERUSER = Auth(users={"root": User(password_hash=SecretStr(cheap_hash(PASSWORD)), superuser=True)})


@pytest.mark.parametrize(
    ("auth", "login"),
    [
        (NOBODY, {}),
        (SHARED, {"token": "a shared token"}),
        (SUPERUSER, {"username": "root", "password": PASSWORD}),
    ],
    ids=["without authentication", "shared token", "superuser"],
)
async def test_who_may_do_everything_has_all_steps_done(tmp_path: Path, auth: Auth, login: dict[str, Any]) -> None:
    async with Broker(settings=settings(tmp_path, auth=auth)) as broker, vibemq.connect(broker.url, **login) as mq:
        await mq.create_queue("b")
        await dead(mq, broker, "a", FOUND)
        ids = [letter["dead_id"] for letter in (await mq.admin("dlq.list", queue="a", limit=FOUND))["letters"]]
        assert (await mq.admin("dlq.replay", queue="a"))["count"] == 100
        assert (await mq.admin("dlq.purge", ids=ids))["count"] == FOUND - 100
        assert (await mq.admin("queue.move", queue="a", to="b", limit=FOUND))["count"] == 100
