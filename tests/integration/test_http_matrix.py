"""Who may do what over HTTP: every endpoint of the contract, every kind of user, an own queue, a foreign and a missing
one. An endpoint that is added is tested by being there."""

import re
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from tests.integration.access import SINGLE, connected
from tests.integration.cursor_peer import Peer, Refusal
from tests.integration.http_api import ApiClient, everybody, serving
from vibemq.auth.matrix import INSPECT
from vibemq.model.access import Action, NeededPermission, ResourceKind, When
from vibemq.web.api.contract import Contract, Endpoint
from vibemq.web.api.endpoints import ENDPOINTS

pytestmark = pytest.mark.anyio

OWN, FOREIGN, MISSING = "a.q", "b.q", "b.x"
"""The same length, so that answers which differ in nothing else are equal."""
USERS = ("root", "owner", "none", "transact", *SINGLE)
CONTRACT = Contract(ENDPOINTS)
VALUES: dict[str, Any] = {
    "group": "g",
    "dead_id": 7,
    "connection_id": "nobody",
    "user": "none",
    "token_id": "0123456789ab",
    "app": "a-1",
    "sequence": 1,
    "job": "7",
    "start": "beginning",
    "runs": [[1, 1]],
    "where": "",
    "password": "correct horse",
    "target": "relative",
    "actions": ["inspect"],
    "queues": "a.*",
    "action": "inspect",
    "host": "elsewhere",
    "port": 1,
    "superuser": False,
    "dead_letter": 7,
    "series": "ready",
    "range": "15m",
    "kind": "replay",
    "filter": {},
    "max": 1,
    "topic": "alarms",
}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiClient]:
    async with serving(tmp_path, auth=everybody()) as client:
        for name in (OWN, FOREIGN):
            await client.done("PUT", f"/queues/{name}", "root")
        yield client


def request_of(endpoint: Endpoint, queue: str) -> tuple[str, dict[str, Any]]:
    """The path and what else httpx takes; valid enough to be admitted."""
    values = {**VALUES, "queue": queue}
    path = re.sub(r"\{(\w+)\}", lambda name: str(values[name[1]]), endpoint.path)
    arguments = CONTRACT.operations[endpoint.operation].arguments if endpoint.operation else None
    fields = {} if arguments is None else arguments.model_fields
    required = {info.alias or name for name, info in fields.items() if info.is_required()}
    wanted = (required | ({"queue"} & set(fields))) - set(endpoint.names) - set(endpoint.fixed) - endpoint.hidden
    given = {name: values[name] for name in wanted if name in values}
    if endpoint.method in ("GET", "DELETE"):
        if endpoint.query is not None:
            given = {each.name: values[each.name] for each in endpoint.query if each.name in ("queue", "topic")}
        elif endpoint.arguments is not None:
            given = {}
        return path, {"params": given}
    headers = {"Content-Type": endpoint.consumes[0]}
    if "If-Match" in endpoint.from_headers:
        headers["If-Match"] = "*"
    if endpoint.arguments is None and endpoint.body is None:
        return path, {"json": given, "headers": headers}
    if endpoint.operation == "dlq.preview":
        return path, {"json": {"filter": {"queue": queue}}, "headers": headers}
    body = {"queue": queue} if endpoint.path.startswith("/dead-letters/{dead_id}") else {}
    return path, {"json": body, "headers": headers}


OF_SEEN_QUEUES = ("dlq.list", "dlq.groups", "dlq.preview")
"""Without a queue they concern all that the user may inspect; one that is named has to be inspected."""


def may(user: str, endpoint: Endpoint, queue: str) -> bool:
    """As the users of `tests.integration.access` are made, by hand."""
    if endpoint.operation == "job.start":
        return user == "root"
    if endpoint.operation in OF_SEEN_QUEUES:
        return held(user, INSPECT, queue)
    needs = [need for need in CONTRACT.permissions(endpoint) if need.when is When.ALWAYS]
    if any(need.kind is ResourceKind.USER for need in needs) and "user" not in endpoint.names:
        # Of all users.
        return user == "root"
    return all(held(user, need, queue) for need in needs)


def held(user: str, need: NeededPermission, queue: str) -> bool:
    if user == "root" or need.action in (Action.OWN, Action.LIST):
        return need.action is not Action.NEVER
    match need.kind:
        case ResourceKind.BROKER:
            return False
        case ResourceKind.USER:
            return user == VALUES["user"]
        case ResourceKind.TRANSACTION:
            return user in ("owner", "transact")
    return queue == OWN and user in ("owner", str(need.action))


def concerns_a_queue(endpoint: Endpoint) -> bool:
    of_queues = (ResourceKind.QUEUE, ResourceKind.GROUP)
    return endpoint.operation in OF_SEEN_QUEUES or any(
        need.kind in of_queues for need in CONTRACT.permissions(endpoint)
    )


def names_a_queue(endpoint: Endpoint) -> bool:
    if "queue" in endpoint.names:
        return True
    return bool(endpoint.operation) and "queue" in CONTRACT.operations[endpoint.operation].arguments.model_fields


def faceless(text: str) -> str:
    """Without what differs in every answer."""
    text = re.sub(r'"instance":"[0-9a-f]+"', "", text)
    return text.replace(FOREIGN, "?").replace(MISSING, "?")


OF_EACH_ANSWER = ("date", "x-request-id", "server-timing")
GUARDED = [endpoint for endpoint in ENDPOINTS if not endpoint.anybody]


async def test_every_endpoint_for_every_user(api: ApiClient) -> None:
    wrong = []
    for endpoint in GUARDED:
        for user in USERS:
            queues = (OWN, FOREIGN) if concerns_a_queue(endpoint) and names_a_queue(endpoint) else (OWN,)
            for queue in queues:
                path, more = request_of(endpoint, queue)
                response = await api.ask(endpoint.method, path, user, **more)
                named = queue if names_a_queue(endpoint) or not concerns_a_queue(endpoint) else ""
                expected = may(user, endpoint, named)
                if (response.status_code not in (401, 403)) != expected or response.status_code >= 500:
                    wrong.append((endpoint.method, path, user, expected, response.status_code))
    assert not wrong, "\n".join(map(str, wrong))


async def test_nobody_passes_without_a_login(api: ApiClient) -> None:
    for endpoint in GUARDED:
        path, more = request_of(endpoint, OWN)
        for headers in ({}, {"Authorization": "Bearer vmq_wrong"}, {"Authorization": "Nonsense x"}):
            response = await api.ask(
                endpoint.method, path, **{**more, "headers": {**more.get("headers", {}), **headers}}
            )
            assert response.status_code == 401, (endpoint.method, path, response.text)
            assert response.headers["www-authenticate"]


async def test_foreign_and_missing_queues_cannot_be_told_apart(api: ApiClient) -> None:
    for endpoint in filter(names_a_queue, GUARDED):
        if not concerns_a_queue(endpoint):
            continue
        for user in ("none", "owner", "inspect"):
            answers = []
            for queue in (FOREIGN, MISSING):
                path, more = request_of(endpoint, queue)
                response = await api.ask(endpoint.method, path, user, **more)
                headers = {name: value for name, value in response.headers.items() if name not in OF_EACH_ANSWER}
                answers.append((response.status_code, faceless(response.text), headers))
            assert answers[0] == answers[1], (endpoint.method, endpoint.path, user)
            assert answers[0][0] == 403, (endpoint.method, endpoint.path, user)


# -- what depends on a condition --------------------------------------------------------------------------------------

OWN_MISSING = "a.x"
GROUPS = "a.g"
"""A fan-out queue with acks."""


def conditional(when: When) -> list[Endpoint]:
    return [each for each in GUARDED if any(need.when is when for need in CONTRACT.permissions(each))]


async def test_no_endpoint_makes_a_queue_without_create(api: ApiClient) -> None:
    making = conditional(When.MISSING)
    assert making
    for endpoint in filter(names_a_queue, GUARDED):
        makes = any(need.action is Action.CREATE for need in CONTRACT.permissions(endpoint))
        for user in ("root", "owner", "none", "publish", "subscribe"):
            path, more = request_of(endpoint, OWN_MISSING)
            response = await api.ask(endpoint.method, path, user, **more)
            made = (await api.get(f"/queues/{OWN_MISSING}", "root")).is_success
            if made:
                await api.done("DELETE", f"/queues/{OWN_MISSING}", "root")
            told = (endpoint.method, path, user, response.status_code, response.text)
            assert not made or (makes and user in ("root", "owner")), told
            if endpoint in making:
                assert made == response.is_success == (user in ("root", "owner")), told
                assert made or response.status_code == (404 if may(user, endpoint, OWN) else 403), told


async def test_a_group_of_somebody_else_needs_manage(api: ApiClient) -> None:
    """Of an ordinary user, and of a superuser, whose groups belong to nobody."""
    managing = conditional(When.NOT_OWNER)
    assert managing

    def begin(theirs: Peer, root: Peer) -> None:
        with suppress(Refusal):
            root.ask("group.delete", GROUPS, group=VALUES["group"])
        theirs.ask("group.join", GROUPS, group=VALUES["group"])

    with ExitStack() as stack:
        root, subscriber = [
            await to_thread.run_sync(stack.enter_context, connected(api.broker.port, name))
            for name in ("root", "subscribe")
        ]
        options = {"mode": "fan-out-with-ack"}
        await to_thread.run_sync(partial(root.admin, "queue.create", queue=GROUPS, options=options))
        for endpoint in managing:
            path, more = request_of(endpoint, GROUPS)
            for owner, theirs in (("root", root), ("subscribe", subscriber)):
                for user in ("root", "owner", "none", "subscribe", "manage"):
                    await to_thread.run_sync(begin, theirs, root)
                    response = await api.ask(endpoint.method, path, user, **more)
                    allowed = user in ("root", "owner") or user == owner
                    told = (endpoint.method, path, owner, user, response.status_code, response.text)
                    assert (response.status_code != 403) == allowed, told
                    assert response.status_code != 404, told
