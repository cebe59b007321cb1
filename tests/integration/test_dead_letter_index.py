"""Dead letters by queue, reason, error, age and id, as clients ask for them: compared with all of them, one by one."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import vibemq
from tests.integration.test_server_broker import settings
from tests.waiting import until
from vibemq.auth.passwords import hash_password
from vibemq.config import Auth, Permission, User
from vibemq.errors import InvalidPayload, NotAuthorized, QueueNotFound
from vibemq.model.dead.fingerprint import fingerprint, fingerprint_text
from vibemq.server.broker import Broker

pytestmark = pytest.mark.anyio

ERRORS = (
    "order {n} is unknown",
    "customer 'c{n}' has no address",
    "connection to 10.0.0.{n}:5432 refused",
    "timeout after {n} ms",
    "card 0x{n:x} declined\n  at pay({n})",
    "no stock",
    "über {n}",
)


@pytest.fixture(params=["lmdb", "sqlite", "memory"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", storage=request.param) as broker:
        yield broker


async def dead(mq: vibemq.Client, broker: Broker, queue: str, errors: list[str], *, first: int = 0) -> None:
    """A message for each error, rejected with it."""
    info = broker.queue_info(queue)
    before = 0 if info is None else info.dead
    options = {"durability": "transient"} if broker_is_in_memory(broker) else {}
    await mq.create_queue(queue, **options)
    await mq.publish_many(queue, [{"n": first + n} for n in range(len(errors))])
    left = list(errors)
    while left:
        for message in await mq.fetch(queue, max=len(left), timeout=30):
            await message.reject(left.pop(0))
    await until(lambda: (now := broker.queue_info(queue)) is not None and now.dead == before + len(errors))


def broker_is_in_memory(broker: Broker) -> bool:
    return broker._running().store.provider.name == "memory"


async def every_letter(mq: vibemq.Client, page: int = 30, **filters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after = 0
    while after is not None:
        answer = await mq.admin("dlq.list", after=after, limit=page, **filters)
        found += answer["letters"]
        after = answer["next"]
    return found


def texts(count: int, first: int = 0) -> list[str]:
    return [ERRORS[n % len(ERRORS)].format(n=n) for n in range(first, first + count)]


@pytest.mark.parametrize("count", [210, pytest.param(20_000, marks=pytest.mark.long)])
async def test_letters_of_seven_errors_are_seven_groups(broker: Broker, count: int) -> None:
    async with vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "orders", texts(count))
        await dead(mq, broker, "mails", texts(10))
        found = await mq.admin("dlq.groups", queue="orders")
        assert found["next"] is None
        groups = found["groups"]
        page = max(30, count // 20)
        letters = await every_letter(mq, page)
        assert len(letters) == count + 10
        assert {(group["queue"], group["reason"]) for group in groups} == {("orders", "rejected")}
        assert sorted(group["count"] for group in groups) == sorted((count + n) // 7 for n in range(7))
        assert {group["fingerprint"] for group in groups} == {fingerprint_text(fingerprint(text)) for text in texts(7)}
        for group in groups:
            mine = await every_letter(mq, page, queue="orders", fingerprint=group["fingerprint"])
            assert mine == [
                letter
                for letter in letters
                if letter["queue"] == "orders" and letter["fingerprint"] == group["fingerprint"]
            ]
            assert group["count"] == len(mine)
            first, last = mine[0], mine[-1]
            assert (group["first_id"], group["first_at"]) == (first["dead_id"], first["dead_at"])
            assert (group["last_id"], group["last_at"]) == (last["dead_id"], last["dead_at"])
            assert group["sample"] in {letter["error"] for letter in mine}
        pages, after = [], None
        while True:
            page = await mq.admin("dlq.groups", limit=3, **({} if after is None else {"after": after}))
            pages += page["groups"]
            assert len(page["groups"]) <= 3
            after = page["next"]
            if after is None:
                break
        assert [group for group in pages if group["queue"] == "orders"] == groups
        assert sum(group["count"] for group in pages) == count + 10
        purged = {"queue": "orders", "fingerprint": groups[0]["fingerprint"], "limit": 1000}
        while (await mq.admin("dlq.purge", **purged))["count"]:
            pass
        left = await mq.admin("dlq.groups", queue="orders")
        assert left["groups"] == groups[1:]


async def test_every_filter_finds_what_looking_at_all_letters_finds(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "orders", texts(60))
        await mq.admin("dlq.replay", queue="orders", limit=5)
        await dead(mq, broker, "orders", texts(0))
        await dead(mq, broker, "mails", texts(40, 7))
        messages = await mq.fetch("orders", max=5, timeout=30)
        for message in messages:
            await message.reject("again")
        await until(lambda: (now := broker.queue_info("orders")) is not None and now.dead == 60)
        letters = await every_letter(mq)
        middle = letters[50]
        filters: list[tuple[dict[str, Any], Any]] = [
            ({"queue": "mails"}, lambda a: a["queue"] == "mails"),
            ({"reason": "rejected"}, lambda a: True),
            ({"reason": "expired"}, lambda a: False),
            ({"fingerprint": middle["fingerprint"]}, lambda a: a["fingerprint"] == middle["fingerprint"]),
            ({"error": "address"}, lambda a: "address" in a["error"]),
            ({"since": middle["dead_at"]}, lambda a: a["dead_at"] >= middle["dead_at"]),
            ({"until": middle["dead_at"]}, lambda a: a["dead_at"] <= middle["dead_at"]),
            ({"from_id": 20, "to_id": 71}, lambda a: 20 <= a["dead_id"] <= 71),
            ({"ids": [3, 30, 300, 77]}, lambda a: a["dead_id"] in (3, 30, 77)),
            ({"message_id": middle["id"]}, lambda a: a["id"] == middle["id"]),
            ({"replayed": True}, lambda a: a["replay_count"] > 0),
            ({"replayed": False, "queue": "orders"}, lambda a: a["replay_count"] == 0 and a["queue"] == "orders"),
            (
                {"queue": "mails", "fingerprint": middle["fingerprint"], "from_id": 62},
                lambda a: a["queue"] == "mails" and a["fingerprint"] == middle["fingerprint"] and a["dead_id"] >= 62,
            ),
        ]
        for given, fits in filters:
            expected = [letter for letter in letters if fits(letter)]
            assert await every_letter(mq, **given) == expected, given
            assert await every_letter(mq, **given, order="newest") == expected[::-1], given
            preview = await mq.admin("dlq.preview", **given)
            assert (preview["count"], preview["exact"]) == (len(expected), True), given
            assert preview["examples"] == expected[:5], given
            assert preview["bytes"] == sum(letter["size_bytes"] for letter in expected)
            assert preview["replayed_before"] == sum(letter["replay_count"] > 0 for letter in expected)
            assert sum(group["count"] for group in preview["groups"]) == len(expected)
            if expected:
                assert (preview["oldest_at"], preview["newest_at"]) == (expected[0]["dead_at"], expected[-1]["dead_at"])


async def test_a_preview_that_cannot_look_at_all_says_how_many_there_are_at_most(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vibemq.operations.dead_letters.preview.SCAN_MAX", 4)
    monkeypatch.setattr("vibemq.operations.dead_letters.reader.SLICE_SCAN", 2)
    async with vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "orders", texts(30))
        await dead(mq, broker, "mails", texts(9))
        everywhere = await mq.admin("dlq.preview", error="a")
        assert everywhere["exact"] is False
        assert everywhere["count"] <= 4 < everywhere["count_max"] == 39
        assert (await mq.admin("dlq.preview", error="a", queue="orders"))["count_max"] == 30
        assert (await mq.admin("dlq.preview", error="a", from_id=11, to_id=20))["count_max"] == 10
        named = await mq.admin("dlq.preview", replayed=False, ids=[1, 2, 3, 4, 5, 6])
        assert (named["exact"], named["count_max"]) == (False, 6)
        exact = await mq.admin("dlq.preview", queue="mails")
        assert (exact["exact"], exact["count"], exact["count_max"]) == (True, 9, 9)


@pytest.mark.parametrize(("rows", "exact", "count"), [(4, False, 4), (100, True, 28)])
async def test_the_figures_of_a_preview_are_those_of_the_same_letters(
    rows: int, exact: bool, count: int, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the messages of more letters were looked at than facts of others were counted before."""
    monkeypatch.setattr("vibemq.operations.dead_letters.preview.INDEX_SCAN_MAX", 2)
    monkeypatch.setattr("vibemq.operations.dead_letters.preview.SCAN_MAX", rows)
    monkeypatch.setattr("vibemq.operations.dead_letters.reader.SLICE_SCAN", 2)
    async with vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "orders", texts(30))
        found = await mq.admin("dlq.preview", from_id=2, to_id=29)
        assert (found["exact"], found["count"]) == (exact, count)
        assert sum(target["count"] for target in found["targets"]) == count
        assert sum(group["count"] for group in found["groups"]) == count


async def test_a_preview_names_where_the_letters_would_go(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "orders", texts(6))
        await dead(mq, broker, "mails", texts(4))
        await mq.delete_queue("mails")
        preview = await mq.admin("dlq.preview", rate=5)
        assert preview["targets"] == [
            {"queue": "orders", "count": 6, "state": "no_consumers"},
            {"queue": "mails", "count": 4, "state": "missing"},
        ]
        assert preview["duration_ms"] == 2_000
        assert preview["reasons"] == [{"reason": "rejected", "count": 10}]
        assert preview["sentences"] == [
            "10 dead letters fit.",
            "6 dead letters go to queue 'orders', which has no consumers.",
            "4 dead letters go to queue 'mails', which does not exist; name another queue with `to`, or create it.",
            "At that rate it takes 2 s.",
        ]
        none = await mq.admin("dlq.preview", queue="orders", reason="expired", to="orders")
        assert (none["count"], none["sentences"], none["oldest_at"]) == (0, ["No dead letter fits."], None)
        await mq.admin("group.join", queue="orders", group="stream")
        read = await mq.admin("dlq.preview", queue="orders")
        assert read["targets"] == [{"queue": "orders", "count": 6, "state": "ok"}]


async def test_what_makes_no_sense_is_refused_in_words(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "orders", texts(1))
        for given, sentence in (
            ({"fingerprint": "xyz"}, "16 hex digits"),
            ({"order": "random"}, "'oldest' or 'newest'"),
            ({"replayed": "yes"}, "true or false"),
        ):
            with pytest.raises(InvalidPayload, match=sentence):
                await mq.admin("dlq.list", **given)
        for after in ("", "1", "1-2-3", "a-b-c", "1-300-" + "0" * 16, "9" * 11 + "-1-" + "0" * 16):
            with pytest.raises(InvalidPayload, match="`next` of a page"):
                await mq.admin("dlq.groups", after=after)
        for verb in ("dlq.list", "dlq.groups", "dlq.preview"):
            with pytest.raises(QueueNotFound):
                await mq.admin(verb, queue="missing")


async def test_a_limited_user_sees_the_letters_of_the_queues_that_it_may_inspect(tmp_path: Path) -> None:
    mine = Permission(queues="mine*", actions=("inspect",))
    users = {
        "ann": User(password_hash=SecretStr(hash_password("pw")), permissions=(mine,)),
        "root": User(password_hash=SecretStr(hash_password("pw")), superuser=True),
    }
    async with Broker(settings=settings(tmp_path, auth=Auth(users=users))) as broker:
        async with vibemq.connect(broker.url, username="root", password="pw") as mq:
            for queue in ("mine1", "yours", "mine2"):
                await dead(mq, broker, queue, texts(8))
            every = await every_letter(mq)
            assert len(every) == 24
        async with vibemq.connect(broker.url, username="ann", password="pw") as mq:
            shown = await every_letter(mq)
            assert shown == [letter for letter in every if letter["queue"] != "yours"]
            assert {group["queue"] for group in (await mq.admin("dlq.groups"))["groups"]} == {"mine1", "mine2"}
            preview = await mq.admin("dlq.preview", to="yours")
            assert preview["count"] == 16
            assert preview["targets"] == [{"queue": "yours", "count": 16, "state": None}]
            assert await every_letter(mq, error="stock") == [letter for letter in shown if "stock" in letter["error"]]
            for verb in ("dlq.list", "dlq.groups", "dlq.preview"):
                for queue in ("yours", "missing"):
                    with pytest.raises(NotAuthorized):
                        await mq.admin(verb, queue=queue)


async def dead_in(mq: vibemq.Client, queue: str) -> int:
    info = await mq.queue_info(queue)
    assert info is not None
    return info.dead


@pytest.mark.parametrize("storage", ["lmdb", "sqlite"])
async def test_a_letter_is_found_whatever_a_restart_has_counted(tmp_path: Path, storage: str) -> None:
    """Two groups have given up one message."""
    async with Broker(tmp_path / "data", storage=storage) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("f", mode="fan-out-with-ack")
        for group in ("g1", "g2"):
            async with mq.subscribe("f", group=group):
                pass
        await mq.publish("f", b"x")
        for group in ("g1", "g2"):
            [message] = await mq.fetch("f", group=group)
            await message.reject("no stock")
        await mq.ping()
        assert await dead_in(mq, "f") == 2
    async with Broker(tmp_path / "data", storage=storage) as broker, vibemq.connect(broker.url) as mq:
        assert await dead_in(mq, "f") == 2, "letters, and not messages"
        await mq.admin("dlq.purge", ids=[1])
        assert await dead_in(mq, "f") == 1
        found = await mq.admin("dead.offsets", queue="f")
        assert (found["head"], found["tail"]) == (2, 3)
