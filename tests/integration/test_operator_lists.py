"""Consumers, connections, cursors, transactions, listeners and checks of a real broker, and who may see them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import vibemq
from tests.integration.certificates import Authority
from tests.integration.test_server_broker import settings
from tests.waiting import until
from tests.watchdog import HOLD_S_MAX, longest_hold_s
from vibemq.auth.passwords import hash_password
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.config import Auth, Listener, Permission, Tls, User
from vibemq.errors import InvalidPayload, NotAuthorized, QueueNotFound
from vibemq.operations.monitoring.kept_lists import KEPT_MAX
from vibemq.server.access.certificates import validity
from vibemq.server.broker import Broker

pytestmark = pytest.mark.anyio


def users() -> Auth:
    hashed = SecretStr(hash_password("pw"))
    rules = (
        Permission(queues="mine*", actions=("inspect", "publish", "subscribe", "create")),
        Permission(transactions="mine*", actions=("transact",)),
    )
    return Auth(
        users={
            "root": User(password_hash=hashed, superuser=True),
            "ann": User(password_hash=hashed, permissions=rules),
        }
    )


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(settings=settings(tmp_path, auth=users())) as broker:
        yield broker


@pytest.fixture
async def root(broker: Broker) -> AsyncIterator[vibemq.Client]:
    async with vibemq.connect(as_user(broker, "root")) as root:
        yield root


def as_user(broker: Broker, user: str) -> str:
    return broker.url.replace("://", f"://{user}:pw@")


# -- consumers and their connections ------------------------------------------------------------------------------


async def test_consumers_are_shown_with_what_they_hold(broker: Broker, root: vibemq.Client) -> None:
    await root.publish_many("mine", [b"x"] * 5)
    async with (
        vibemq.connect(as_user(broker, "ann"), name="worker") as ann,
        ann.subscribe("mine", prefetch=3) as subscription,
    ):
        first = await anext(subscription)

        async def holds(count: int) -> dict[str, Any] | None:
            found = (await root.admin("consumer.list", queue="mine"))["consumers"]
            return found[0] if found and found[0]["in_flight"] == count else None

        await until(lambda: holds(3))
        row = await holds(3)
        assert row is not None
        assert (row["client"], row["user"], row["protocol"], row["group"]) == ("worker", "ann", "native", "")
        assert (row["prefetch"], row["active"], row["last_ack_at"]) == (3, True, None)
        assert row["oldest_held_ms"] >= 0
        [mine] = (await root.admin("connections.list", sort="unsettled", descending=True, name="WORK"))["connections"]
        assert mine["connection_id"] == row["connection"]
        assert (mine["consumers"], mine["unsettled"], mine["tls"], mine["stuck_since"]) == (1, 3, False, None)
        await first.ack()

        async def acked() -> bool:
            return bool((await root.admin("consumer.list", queue="mine"))["consumers"][0]["last_ack_at"])

        await until(acked)
        assert (await ann.admin("consumer.list", queue="mine"))["consumers"]
    with pytest.raises(QueueNotFound):
        await root.admin("consumer.list", queue="missing")


async def test_what_a_connection_consumes_and_what_it_holds_without_a_timeout(
    broker: Broker, root: vibemq.Client
) -> None:
    await root.publish_many("mine", [b"x"] * 5)
    async with (
        vibemq.connect(as_user(broker, "ann"), name="worker") as ann,
        ann.subscribe("mine", prefetch=3, ack_timeout=0),
        ann.subscribe("mine", prefetch=1, ack_timeout=30),
    ):
        [mine] = (await root.admin("connections.list", name="WORK", limit=9))["connections"]
        own = {"connection_id": mine["connection_id"]}

        async def consumed(asker: vibemq.Client = root, **more: Any) -> list[dict[str, Any]]:
            return list((await asker.admin("connections.consumers", **own, **more))["consumers"])

        async def full() -> bool:
            return sorted(one["in_flight"] for one in await consumed()) == [1, 3]

        await until(full)
        endless, timed = await consumed()
        assert [one["queue"] for one in (endless, timed)] == ["mine", "mine"]
        assert (endless["ack_timeout_ms"], endless["oldest_held_ms"]) == (None, None)
        assert timed["ack_timeout_ms"] == 30_000
        assert timed["oldest_held_ms"] >= 0
        first = await root.admin("connections.consumers", **own, limit=1)
        rest = await root.admin("connections.consumers", **own, limit=1, after=first["next"])
        assert [one["consumer"] for one in first["consumers"] + rest["consumers"]] == [
            endless["consumer"],
            timed["consumer"],
        ]
        assert rest["next"] is None
        assert len(await consumed(ann, user="ann")) == 2
        assert await consumed(user="somebody") == []
        for others in ({}, {"user": "root"}):
            with pytest.raises(NotAuthorized):
                await consumed(ann, **others)
    assert await root.admin("connections.consumers", connection_id="none") == {"consumers": [], "next": None}


@pytest.mark.parametrize(("mode", "failures"), [("release", 0), ("fail", 1)])
async def test_what_a_closed_connection_held(broker: Broker, root: vibemq.Client, mode: str, failures: int) -> None:
    await root.create_queue("mine", retry_base_ms=1, retry_max_ms=1)
    await root.publish_many("mine", [b"x"] * 4)
    worker = vibemq.connect(as_user(broker, "ann"), name="worker", reconnect=ReconnectPolicy(max_attempts=0))
    async with worker as ann:
        held = await ann.fetch("mine", max=4, timeout=30)
        assert len(held) == 4
        [row] = (await root.admin("connections.list", user="ann"))["connections"]
        closed = await root.admin("connections.close", connection_id=row["connection_id"], mode=mode)
        assert closed == {"closed": 1, "unsettled": 4}

        async def back() -> bool:
            info = await root.queue_info("mine")
            return info is not None and info.ready == 4

        await until(back)
    messages = await root.fetch("mine", max=4, timeout=30)
    assert [message.failures for message in messages] == [failures] * 4


# -- connections ----------------------------------------------------------------------------------------------------


async def test_connections_are_sorted_chosen_and_cut_from_one_list(broker: Broker, root: vibemq.Client) -> None:
    clients = [vibemq.connect(as_user(broker, "ann"), name=f"c{number}") for number in (3, 1, 4, 2, 5)]
    for client in clients:
        await client.open()
    try:
        page = await root.admin("connections.list", sort="name", user="ann", limit=2)
        assert [row["name"] for row in page["connections"]] == ["c1", "c2"]
        await clients[0].close()
        rest = await root.admin("connections.list", sort="name", user="ann", limit=9, after=page["next"])
        assert [row["name"] for row in rest["connections"]] in (["c4", "c5"], ["c3", "c4", "c5"])
        assert rest["next"] is None
        backwards = await root.admin("connections.list", sort="name", descending=True, user="ann", protocol="native")
        assert next(row["name"] for row in backwards["connections"]) == "c5"
        assert (await root.admin("connections.list", stuck=True, limit=9))["connections"] == []
        assert (await root.admin("connections.list", name="127.0.0.1", protocol="omq"))["connections"] == []
        for wrong in ("1:2:3", "x", "99:0"):
            with pytest.raises(InvalidPayload):
                await root.admin("connections.list", sort="name", user="ann", after=wrong)
        with pytest.raises(InvalidPayload, match="as it was"):
            await root.admin("connections.list", after="1:2")
    finally:
        for client in clients:
            await client.close()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("sort", "known"), [("name", True), ("since", True), ("stuck_since", False)])
async def test_the_second_page_of_connections_is_there_however_often_others_look(
    broker: Broker, root: vibemq.Client, sort: str, known: bool, descending: bool
) -> None:
    clients = [vibemq.connect(as_user(broker, "ann"), name=f"c{number}") for number in (2, 1, 3)]
    for client in clients:
        await client.open()
    try:
        found, after = [], None
        while True:
            more = {"after": after} if after else {}
            page = await root.admin(
                "connections.list", sort=sort, descending=descending, user="ann", limit=1, stuck=False, **more
            )
            found += [row["name"] for row in page["connections"]]
            for part in range(KEPT_MAX + 1):
                await root.admin("connections.list", sort="name", name=f"c{part}")
            if (after := page["next"]) is None:
                break
        assert sorted(found) == ["c1", "c2", "c3"]
        if sort == "name":
            assert found == sorted(found, reverse=descending)
        for wrong in ("1:2:[3]", '1:2:["x","y"]', "1:2:x", "1:-2:[1,1]", *(['99:0:[{"x":1},1]'] if known else [])):
            with pytest.raises(InvalidPayload, match="as it was"):
                await root.admin("connections.list", sort=sort, user="ann", after=wrong)
    finally:
        for client in clients:
            await client.close()


# -- cursors and transactions ---------------------------------------------------------------------------------------


async def test_cursors_of_all_queues_that_the_user_may_inspect(broker: Broker, root: vibemq.Client) -> None:
    for queue, count in (("mine", 2), ("mine-too", 7), ("yours", 9)):
        await root.publish_many(queue, [b"x"] * count)
        await root.admin("group.join", queue=queue, group="readers", start="earliest")

    async def every() -> bool:
        return len((await root.admin("cursor.list"))["cursors"]) == 3

    await until(every)
    page = await root.admin("cursor.list", limit=2)
    assert [(row["queue"], row["backlog"]) for row in page["cursors"]] == [("yours", 9), ("mine-too", 7)]
    rest = await root.admin("cursor.list", limit=2, after=page["next"])
    assert [row["queue"] for row in rest["cursors"]] == ["mine"]
    assert rest["cursors"][0]["expired"] is False
    assert [row["queue"] for row in (await root.admin("cursor.list", sort="name", group="READ"))["cursors"]] == [
        "mine",
        "mine-too",
        "yours",
    ]
    assert (await root.admin("cursor.list", group="nobody"))["cursors"] == []
    async with vibemq.connect(as_user(broker, "ann")) as ann:
        assert [row["queue"] for row in (await ann.admin("cursor.list"))["cursors"]] == ["mine-too", "mine"]
        others = await ann.admin("cursor.list", limit=2, after=page["next"])
        assert [row["queue"] for row in others["cursors"]] == ["mine"], "what it may see, behind that place"
    for wrong in ("1:2", "1:2:3:x:y", "-1:0:0:0:", "x"):
        with pytest.raises(InvalidPayload, match="as it was"):
            await root.admin("cursor.list", after=wrong)


@pytest.mark.parametrize("sort", ["-backlog", "backlog", "name"])
async def test_the_second_page_of_cursors_is_there_however_often_others_look(
    broker: Broker, root: vibemq.Client, sort: str
) -> None:
    """And however long it is open: its list is kept for a while only."""
    for queue, group, count in (("mine", "a:b", 7), ("mine", "c", 1), ("q-r", "d", 5), ("yours", "e", 9)):
        await root.publish_many(queue, [b"x"] * count)
        await root.admin("group.join", queue=queue, group=group, start="earliest")
    whole = [(row["queue"], row["group"]) for row in (await root.admin("cursor.list", sort=sort))["cursors"]]
    found, after = [], None
    while True:
        page = await root.admin("cursor.list", sort=sort, limit=1, **({"after": after} if after else {}))
        found += [(row["queue"], row["group"]) for row in page["cursors"]]
        for part in range(KEPT_MAX + 1):
            await root.admin("cursor.list", limit=1, group=str(part))
        if (after := page["next"]) is None:
            break
    assert (len(found), found) == (4, whole)


async def test_transactions_are_shown_with_their_open_stages(broker: Broker, root: vibemq.Client) -> None:
    for app in ("mine.app", "yours.app"):
        await root.admin("transaction.commit", app=app, version=3, stages=[])
    assert [(row["app"], row["version"]) for row in (await root.admin("transaction.list"))["applications"]] == [
        ("mine.app", 3),
        ("yours.app", 3),
    ]
    page = await root.admin("transaction.list", limit=1)
    assert [row["app"] for row in (await root.admin("transaction.list", after=page["next"]))["applications"]] == [
        "yours.app"
    ]
    assert page["applications"][0]["stages"] == []
    async with vibemq.connect(as_user(broker, "ann")) as ann:
        assert [row["app"] for row in (await ann.admin("transaction.list"))["applications"]] == ["mine.app"]


# -- the broker -----------------------------------------------------------------------------------------------------


def levels(checks: list[dict[str, Any]]) -> dict[str, str]:
    return {check["name"]: check["level"] for check in checks}


async def test_the_checks_find_what_should_be_mended(tmp_path: Path) -> None:
    signed = Authority.made_in(tmp_path).sign("broker")
    tls = Tls(certificate=signed.certificate, key=signed.key)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "history").write_bytes(b"rubbish")
    (tmp_path / "data" / "audit").write_text("")
    listeners = (Listener(port=0), Listener(port=0, host="0.0.0.0", tls=tls))
    made = settings(tmp_path / "data").model_copy(update={"listeners": listeners})
    async with Broker(settings=made) as broker, vibemq.connect(broker.url) as mq:
        await mq.publish("lonely", b"x")

        async def found() -> bool:
            seen = levels((await mq.admin("broker.checks"))["checks"])
            return seen["consumers"] == "warn" and seen["history"] == "warn" and seen["audit"] == "fail"

        await until(found)
        checks = (await mq.admin("broker.checks"))["checks"]
        assert levels(checks)["authentication"] == "fail"
        assert levels(checks)["memory limit"] == "warn"
        assert all(check["remedy"] for check in checks if check["level"] != "ok")
        port = broker.listening[1].port
        [certificate] = [check for check in checks if check["name"] == f"certificate of native:{port}"]
        assert "days" in certificate["text"]
        rows = (await mq.admin("listeners.list"))["listeners"]
        assert [(row["protocol"], row["tls"], row["connections"]) for row in rows] == [
            ("native", False, 1),
            ("native", True, 0),
        ]
        assert rows[1]["certificate_until"] == int(1000 * validity(signed.certificate)[1].timestamp())
        signed.certificate.unlink()
        checks = (await mq.admin("broker.checks"))["checks"]
        assert levels(checks)[f"certificate of native:{port}"] == "fail"


async def test_settings_are_shown_without_secrets(root: vibemq.Client) -> None:
    rows = {row["name"]: row for row in (await root.admin("broker.settings"))["settings"]}
    assert rows["auth.users.ann.password_hash"]["value"] == "set"
    assert rows["storage.provider"] == {
        "name": "storage.provider",
        "value": "sqlite",
        "origin": "the program",
        "when": "restart",
    }


@pytest.mark.parametrize("arguments", [{}, {"sort": "bytes_sent", "descending": True}, {"name": "c9"}])
async def test_no_list_of_connections_holds_the_loop(broker: Broker, root: vibemq.Client, arguments: Any) -> None:
    class Peer:
        def __init__(self, number: int) -> None:
            self.number = number

        def described(self) -> dict[str, Any]:
            shown = {"connection_id": f"c{self.number}", "name": f"c{self.number}", "protocol": "native", "user": "ann"}
            return {
                **shown,
                "remote": "10.0.0.1:9",
                "since": 1,
                "bytes_sent": self.number * 7 % 1_000,
                "stuck_since": None,
            }

    class Table:
        def __iter__(self) -> Any:
            return iter([Peer(number) for number in range(1, 1_001)])

    listing = broker._parts.operations._services["connections.list"]  # type: ignore[union-attr]
    listing._peers = Table()

    async def made(attempt: int) -> None:
        return None

    async def ask(_: None) -> None:
        assert (await root.admin("connections.list", limit=1_000, **arguments))["connections"]

    assert await longest_hold_s(ask, made) <= HOLD_S_MAX
