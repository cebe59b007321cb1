"""What belongs to whom: applications, stages and groups of several users; and what becomes of rights that are lost."""

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import anyio
import orjson
import pytest
from anyio import to_thread
from pydantic import SecretStr

import vibemq
from tests.integration.access import PASSWORD, cheap_hash, connected, groups, queues, transactions, user
from tests.integration.conditions import broker_on, run, running
from tests.integration.cursor_peer import Peer, Refusal, rows_of
from tests.interop.omq import ERROR, UNSUBSCRIBED, OmqWire
from vibemq.cli.admin import main as admin_main
from vibemq.cli.entry import run_app
from vibemq.config import Auth, Http, Listener, Permission, Settings, StorageChoice, User
from vibemq.errors import ConfigInvalid, NotAuthorized, QueueNotFound
from vibemq.model.rows import LargeRow
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body
from vibemq.server.broker import Broker

OMQ = Listener(protocol="omq", port=0)
TOML = "\n".join(
    (
        '[auth]\nsuperuser = "root"\nsuperuser_password = "pw"',
        user("ann", queues("q", "publish", "subscribe"), transactions("*")),
        user("ben", queues("q", "publish", "subscribe"), transactions("*")),
        user("chief", queues("q", "subscribe"), groups("q/team-*")),
        user("nobody"),
    )
)


@pytest.fixture(params=["lmdb", "sqlite"])
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with running(broker_on(tmp_path / "data", tmp_path, toml=TOML)) as broker:
        with connected(broker.port, "root") as root:
            root.admin("queue.create", queue="q", options={"mode": "fan-out-with-ack"})
        yield broker.port


def refused(peer: Peer, code: str, verb: str, queue: str = "", **arguments: object) -> str:
    with pytest.raises(Refusal, match=code) as refusal:
        peer.ask(verb, queue, **arguments)
    return str(refusal.value)


def stage(peer: Peer, app: str, version: int, name: str = "s", count: int = 1) -> None:
    peer.stage("q", rows_of(count), app=app, version=version, stage=name)


def ready(port: int) -> int:
    with connected(port, "root") as root:
        return int(root.admin("queue.info", queue="q")["ready"])


# -- transactions -----------------------------------------------------------------------------------------------------


def test_a_user_without_rights_can_do_nothing_with_transactions(port: int) -> None:
    with connected(port, "ann") as ann, connected(port, "nobody") as nobody:
        stage(ann, "job", 1)
        refused(nobody, "NOT_AUTHORIZED", "transaction.commit", app="job", version=1, stages=["s"])
        refused(nobody, "NOT_AUTHORIZED", "transaction.commit", app="job", version=1 << 60, stages=[])
        refused(nobody, "NOT_AUTHORIZED", "transaction.abort", app="job", version=1, stages=["s"])
        refused(nobody, "NOT_AUTHORIZED", "transaction.last", app="job")
        with pytest.raises(Refusal, match="NOT_AUTHORIZED"):
            stage(nobody, "job", 1)
        assert not ann.ask("transaction.commit", app="job", version=1, stages=["s"])["duplicate"]
    assert ready(port) == 1


def test_a_user_with_the_same_rights_cannot_touch_anothers_application(port: int) -> None:
    with connected(port, "ann") as ann, connected(port, "ben") as ben:
        stage(ann, "job", 1)
        # Not committed yet: the application belongs to nobody, the stage to its writer.
        refused(ben, "STAGE_NOT_FOUND", "transaction.commit", app="job", version=1, stages=["s"])
        ben.ask("transaction.abort", app="job", version=1, stages=["s"])
        ann.ask("transaction.commit", app="job", version=1, stages=["s"])
        stage(ann, "job", 2)
        for verb in ("transaction.commit", "transaction.abort"):
            assert "belongs to another user" in refused(ben, "NOT_AUTHORIZED", verb, app="job", version=2, stages=["s"])
        refused(ben, "NOT_AUTHORIZED", "transaction.last", app="job")
        with pytest.raises(Refusal, match="NOT_AUTHORIZED"):
            stage(ben, "job", 2)
        assert not ann.ask("transaction.commit", app="job", version=2, stages=["s"])["duplicate"]
    assert ready(port) == 2


def test_stages_of_two_users_never_meet(port: int) -> None:
    with connected(port, "ann") as ann, connected(port, "ben") as ben:
        stage(ann, "job", 1, count=3)
        stage(ben, "job", 1, count=5)
        ben.ask("transaction.abort", app="job", version=1, stages=["s"])
        ann.ask("transaction.commit", app="job", version=1, stages=["s"])
    assert ready(port) == 3


def test_versions_cannot_leap_and_one_that_was_left_out_is_told(port: int) -> None:
    with connected(port, "ann") as ann:
        refused(ann, "INVALID_OPTIONS", "transaction.commit", app="job", version=(1 << 53) + 1, stages=[])
        ann.ask("transaction.commit", app="job", version=7, stages=[])
        refused(ann, "INVALID_OPTIONS", "transaction.commit", app="job", version=7 + (1 << 40) + 1, stages=[])
        with pytest.raises(Refusal, match="INVALID_OPTIONS"):
            stage(ann, "job", 1 << 62)
        ann.ask("transaction.commit", app="job", version=1_000_000, stages=[])
        # What was numbered on from 7 is not taken for a replay.
        said = refused(ann, "VERSION_SKIPPED", "transaction.commit", app="job", version=8, stages=[])
        assert "was never committed" in said
        with pytest.raises(Refusal, match="was never committed"):
            stage(ann, "job", 8)
        assert ann.ask("transaction.commit", app="job", version=7, stages=[])["duplicate"]
        with connected(port, "root") as root:
            assert root.admin("transaction.forget", app="job") == {"count": 1}
        assert not ann.ask("transaction.commit", app="job", version=8, stages=[])["duplicate"]


@pytest.mark.long_where(provider="lmdb")
def test_owners_survive_a_restart(tmp_path: Path, provider: str) -> None:
    broker = broker_on(tmp_path / "data", tmp_path, provider=provider, toml=TOML)
    with running(broker):
        with connected(broker.port, "root") as root:
            root.admin("queue.create", queue="q", options={"mode": "fan-out-with-ack"})
        with connected(broker.port, "ann") as ann:
            ann.ask("group.join", "q", group="team-a")
            stage(ann, "job", 1)
            ann.ask("transaction.commit", app="job", version=1, stages=["s"])
            stage(ann, "job", 5)
        for crash in (True, False):
            if crash:
                broker.kill()
                broker.wait()
            else:
                broker.stop()
            broker.start()
            with connected(broker.port, "ben") as ben:
                refused(ben, "NOT_AUTHORIZED", "transaction.last", app="job")
                refused(ben, "NOT_AUTHORIZED", "group.delete", "q", group="team-a")
        with connected(broker.port, "ann") as ann:
            ann.ask("transaction.commit", app="job", version=5, stages=["s"])
            refused(ann, "VERSION_SKIPPED", "transaction.commit", app="job", version=3, stages=[])
            ann.ask("group.delete", "q", group="team-a")


@pytest.mark.long_where(provider="sqlite")
def test_what_was_made_without_authentication_is_taken_over_as_the_rules_allow(tmp_path: Path, provider: str) -> None:
    broker = broker_on(tmp_path / "data", tmp_path, provider=provider)
    with running(broker), connected(broker.port, "anonymous") as peer:
        peer.admin("queue.create", queue="q", options={"mode": "fan-out-with-ack"})
        peer.ask("group.join", "q", group="team-old")
        peer.ask("transaction.commit", app="job", version=3, stages=[])
    broker = broker_on(tmp_path / "data", tmp_path, provider=provider, toml=TOML)
    with running(broker), connected(broker.port, "ann") as ann, connected(broker.port, "ben") as ben:
        assert ann.ask("transaction.last", app="job") == {"version": 3}
        ann.ask("transaction.commit", app="job", version=4, stages=[])
        refused(ben, "NOT_AUTHORIZED", "transaction.commit", app="job", version=5, stages=[])
        refused(ben, "NOT_AUTHORIZED", "group.join", "q", group="team-old")
        with connected(broker.port, "chief") as chief:
            chief.ask("group.join", "q", group="team-old")
        refused(ann, "NOT_AUTHORIZED", "group.join", "q", group="team-old")


def test_operators_see_to_whom_a_group_belongs(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    with connected(port, "ann") as ann, connected(port, "root") as root:
        ann.admin("group.join", queue="q", group="anns", owner="etl")
        root.admin("group.join", queue="q", group="roots", owner="vibemq-admin")
        entries = {entry["group"]: entry for entry in root.admin("group.list", queue="q")["groups"]}
        assert [(entries[name]["user"], entries[name]["owner"]) for name in ("anns", "roots")] == [
            ("ann", "etl"),
            ("", "vibemq-admin"),
        ]
    url = f"vibemq://root:pw@127.0.0.1:{port}"
    assert run_app(admin_main.app, "vibemq-admin", ["group", "show", "q", "anns", "--url", url]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^user +ann *$", shown, re.MULTILINE)
    assert re.search(r"^reader +etl *$", shown, re.MULTILINE)
    assert run_app(admin_main.app, "vibemq-admin", ["group", "ls", "q", "--url", url]) == 0
    listed = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert listed[0].split()[-2:] == ["user", "reader"]
    assert [line.split()[-2:] for line in listed[2:4]] == [["ann", "etl"], ["-", "vibemq-admin"]]


def test_groups_of_a_superuser_are_not_for_every_subscriber(port: int) -> None:
    with connected(port, "root") as root, connected(port, "ann") as ann:
        root.ask("group.join", "q", group="rg")
        root.send(encode_body(CommandType.SUBSCRIBE, "s", "q", headers={"subscriptionId": "s", "group": "workers"}))
        root.answer()
        ann.send(encode_body(CommandType.SUBSCRIBE, "s", "q", headers={"subscriptionId": "s", "group": "workers"}))
        ann.answer()
        for group in ("rg", "workers"):
            for verb, arguments in (("group.delete", {}), ("group.seek", {"start": "latest"})):
                said = refused(ann, "NOT_AUTHORIZED", verb, "q", group=group, **arguments)
                assert "belongs to no user" in said
        refused(ann, "NOT_AUTHORIZED", "group.join", "q", group="rg")
        root.ask("group.delete", "q", group="rg")


# -- groups -----------------------------------------------------------------------------------------------------------


def test_a_subscriber_deletes_and_moves_only_groups_of_its_own(port: int) -> None:
    with connected(port, "ann") as ann, connected(port, "ben") as ben, connected(port, "chief") as chief:
        for group in ("team-a", "mine"):
            epoch = ann.ask("group.join", "q", group=group)["epoch"]
        others = {
            "group.delete": {},
            "group.seek": {"start": "latest"},
            "group.join": {},
            "group.set": {"hold_ms": 1},
            "group.commit": {"epoch": epoch, "sequence": 1},
            "group.reject": {"rejects": []},
            "group.quarantine": {"runs": []},
        }
        for verb, arguments in others.items():
            for peer, group in ((ben, "team-a"), (ben, "mine"), (chief, "mine")):
                said = refused(peer, "NOT_AUTHORIZED", verb, "q", group=group, **arguments)
                assert "belongs to another user" in said
        chief.ask("group.seek", "q", group="team-a", start="latest")
        chief.ask("group.delete", "q", group="team-a")
        ann.ask("group.delete", "q", group="mine")


def test_a_group_of_ordinary_subscribers_has_an_owner_too(port: int) -> None:
    with connected(port, "ann") as ann, connected(port, "ben") as ben:
        ann.send(encode_body(CommandType.SUBSCRIBE, "s", "q", headers={"subscriptionId": "s", "group": "workers"}))
        ann.answer()
        ben.send(encode_body(CommandType.SUBSCRIBE, "s", "q", headers={"subscriptionId": "s", "group": "workers"}))
        ben.answer()
        refused(ben, "NOT_AUTHORIZED", "group.delete", "q", group="workers")
        with connected(port, "ann") as other:
            other.ask("group.delete", "q", group="workers")
        assert extensions.parse_subscription_ended(ben.receive()).code == "GROUP_NOT_FOUND"


# -- creating by publishing -------------------------------------------------------------------------------------------


def test_a_missing_queue_is_created_only_for_those_who_may(tmp_path: Path) -> None:
    makes = user("maker", queues("a.*", "publish", "subscribe", "create"), transactions("*"))
    uses = user("taker", queues("a.*", "publish", "subscribe"), transactions("*"))
    toml = f'[auth]\nsuperuser = "root"\nsuperuser_password = "pw"\n{makes}\n{uses}'
    with running(broker_on(tmp_path / "data", tmp_path, toml=toml)) as broker:
        with connected(broker.port, "taker") as taker:
            attempts = (
                lambda: taker.publish("a.1", rows_of(1)),
                lambda: (taker.send(encode_body(CommandType.PUBLISH, "p", "a.2", b"{}")), taker.answer()),
                lambda: (taker.send(encode_body(CommandType.SUBSCRIBE, "s", "a.3")), taker.answer()),
                lambda: taker.stage("a.4", rows_of(1), app="x", version=1, stage="s"),
            )
            for attempt in attempts:
                with pytest.raises(Refusal, match=r"QUEUE_NOT_FOUND.*permission `create`"):
                    attempt()
        with connected(broker.port, "root") as root:
            assert root.admin("queue.list") == []
        with connected(broker.port, "maker") as maker:
            maker.publish("a.1", rows_of(1))
            maker.stage("a.4", rows_of(1), app="x", version=1, stage="s")
        with connected(broker.port, "root") as root:
            assert [queue["name"] for queue in root.admin("queue.list")] == ["a.1", "a.4"]


def test_creating_and_listing_need_no_inspect_and_show_the_name_alone(tmp_path: Path) -> None:
    toml = "[auth]\n" + user("maker", queues("a", "create", "publish")) + user("eye", queues("a", "inspect"))
    with running(broker_on(tmp_path / "data", tmp_path, toml=toml)) as broker:
        with vibemq.sync.connect(f"vibemq://maker:{PASSWORD}@127.0.0.1:{broker.port}") as mq:
            mq.declare("a", max_attempts=5)
            mq.declare("a", max_attempts=5, on_conflict="fail")
            with pytest.raises(vibemq.errors.QueueExists):
                mq.declare("a", max_attempts=4, on_conflict="fail")
            mq.publish_many("a", [1, 2, 3])
            (shown,) = mq.list_queues()
            assert (shown.name, shown.ready, shown.restricted) == ("a", 0, True)
            assert (shown.options.max_attempts, shown.incarnation, shown.queue_id, shown.created_at) == (3, "", 0, 0)
        with vibemq.sync.connect(f"vibemq://eye:{PASSWORD}@127.0.0.1:{broker.port}") as mq:
            (shown,) = mq.list_queues()
            assert (shown.name, shown.ready, shown.restricted) == ("a", 3, False)
            assert shown.options.max_attempts == 5
            assert shown.created_at > 0


# -- rights that are taken away ---------------------------------------------------------------------------------------


def auth(**permissions: tuple[str, ...]) -> Auth:
    users = {
        name: User(
            password_hash=SecretStr(cheap_hash()),
            permissions=(Permission.model_validate({"queues": "*", "actions": actions}),) if actions else (),
        )
        for name, actions in permissions.items()
    }
    return Auth(users=users, token=SecretStr("t0ken"))


def settings(folder: Path, rules: Auth) -> Settings:
    return Settings(
        data_dir=folder / "data",
        storage=StorageChoice(provider="memory"),
        listeners=(Listener(port=0),),
        http=Http(enabled=False),
        queue_defaults={"durability": "transient"},
        auth=rules,
    )


@pytest.mark.anyio
async def test_a_revocation_counts_at_once(tmp_path: Path) -> None:
    start = auth(ann=("publish", "subscribe", "create"), ben=("publish",), gone=("subscribe", "create"))
    async with Broker(settings=settings(tmp_path, start)) as broker:
        place = broker.url.removeprefix("vibemq://")
        async with (
            vibemq.connect(f"vibemq://ann:pw@{place}") as ann,
            vibemq.connect(f"vibemq://ben:pw@{place}") as ben,
        ):
            async with ann.subscribe("q", prefetch=10) as messages:
                await ben.publish("q", 1)
                with anyio.fail_after(60):
                    first = await anext(messages)
                assert first.json() == 1
                await broker.replace_users(auth(ann=("publish",), ben=("subscribe",)))
                refusal = r"user 'ann' does not have the permission 'subscribe'"
                with anyio.fail_after(60), pytest.raises(NotAuthorized, match=refusal):
                    await anext(messages)
            with pytest.raises(NotAuthorized):
                await ben.publish("q", 2)
            await ann.publish("q", 3)
            with pytest.raises(QueueNotFound):
                await ann.publish("missing", 1)
            # What the revoked one held was given back unharmed.
            got = await ben.fetch("q", max=2, timeout=60)
            assert [(message.json(), message.attempt) for message in got] == [(1, 2), (3, 1)]


@pytest.mark.anyio
async def test_a_large_message_is_refused_that_was_on_its_way_as_the_right_went(tmp_path: Path) -> None:
    rules = auth(ann=("publish", "create"))
    durable = settings(tmp_path, rules).model_copy(update={"storage": StorageChoice(provider="lmdb")})
    async with Broker(settings=durable) as broker, anyio.create_task_group() as tasks:
        store, written, revoked = broker._running().store, anyio.Event(), anyio.Event()
        begin = store.begin_prepare

        def held_back(row: LargeRow) -> "asyncio.Future[None] | None":
            """It is written, and nobody is told before the right has gone."""
            done, told = begin(row), asyncio.get_running_loop().create_future()

            async def tell() -> None:
                assert done is not None
                await done
                written.set()
                await revoked.wait()
                told.set_result(None)

            tasks.start_soon(tell)
            return told

        store.begin_prepare = held_back  # type: ignore[method-assign]
        place = broker.url.removeprefix("vibemq://")
        async with vibemq.connect(f"vibemq://ann:pw@{place}") as ann:
            await ann.create_queue("q", durability="strong")

            async def publish() -> None:
                with pytest.raises(NotAuthorized, match="'publish'"):
                    await ann.publish("q", b"x" * (3 << 20))

            tasks.start_soon(publish)
            with anyio.fail_after(60):
                await written.wait()
                await broker.replace_users(auth(ann=("create",)))
                revoked.set()
                await ann.create_queue("behind", durability="strong")
        info = broker.queue_info("q")
        assert info is not None
        assert info.ready == 0


@pytest.mark.anyio
async def test_authentication_is_not_switched_while_the_broker_runs(tmp_path: Path) -> None:
    async with Broker(settings=settings(tmp_path, Auth())) as broker:
        with pytest.raises(ConfigInvalid):
            await broker.replace_users(auth(ann=()))
    async with Broker(settings=settings(tmp_path, auth(ann=()))) as broker:
        with pytest.raises(ConfigInvalid):
            await broker.replace_users(Auth())


@pytest.mark.anyio
async def test_a_user_who_is_gone_is_hung_up_on(tmp_path: Path) -> None:
    async with Broker(settings=settings(tmp_path, auth(ann=("subscribe",), gone=("*",)))) as broker:

        def talk(said: anyio.Event) -> list[CommandType]:
            with connected(broker.port, "gone") as peer:
                anyio.from_thread.run_sync(said.set)
                kinds = []
                try:
                    while True:
                        kinds.append(CommandType(peer.receive()[1]))
                except ConnectionError:
                    return kinds

        connected_, heard = anyio.Event(), []

        async def listen() -> None:
            heard.append(await to_thread.run_sync(talk, connected_))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                await connected_.wait()
                await broker.replace_users(auth(ann=("subscribe",)))
        assert heard == [[CommandType.DISCONNECT]]


def test_a_second_connect_with_fewer_rights_ends_what_it_may_not(port: int) -> None:
    with connected(port, "ann") as ann:
        ann.send(encode_body(CommandType.SUBSCRIBE, "s", "q", headers={"subscriptionId": "s"}))
        ann.answer()
        ann.publish("q", rows_of(1))
        assert ann.receive()[1] == CommandType.DELIVER_MANY
        ann.send(
            encode_body(CommandType.CONNECT, "again", headers={"authUsername": "nobody", "authPassword": PASSWORD})
        )
        assert decode_body(ann.receive()).type == CommandType.CONNECT_ACK
        ended = extensions.parse_subscription_ended(ann.receive())
        assert ended.code == "NOT_AUTHORIZED"
        assert "user 'nobody' does not have the permission 'subscribe'" in ended.message
        with connected(port, "ben") as ben:
            ben.publish("q", rows_of(1))
            ann.send(encode_body(CommandType.PING, "p"))
            assert decode_body(ann.receive()).type == CommandType.PONG


def test_a_malformed_hash_is_refused_at_the_start(tmp_path: Path) -> None:
    config = tmp_path / "vibemq.toml"
    config.write_text('[auth.users.ann]\npassword_hash = "scrypt$14$8$0$c2FsdHNhbHQ=$AAAA"\n')
    said = run("vibemq", "serve", "--config", config, "--data-dir", tmp_path / "data")
    assert said.code != 0
    assert "auth.users.ann.password_hash" in said.err
    assert "vibemq-admin user hash" in said.err
    assert "scrypt$14$8$0" not in said.err


@pytest.mark.anyio
async def test_a_revocation_reaches_subscribers_of_every_protocol(tmp_path: Path) -> None:
    rules = auth(ann=("subscribe", "create"))
    everywhere = settings(tmp_path, rules).model_copy(update={"listeners": (Listener(port=0), OMQ)})
    async with Broker(settings=everywhere) as broker:
        omq_port = next(one.port for one in broker.listening if one.protocol == "omq")

        def plain(ready: Callable[[], None], revoked: Callable[[], None]) -> str:
            """A client without extensions: nothing tells it, and its next Subscribe is refused."""
            headers = {"authUsername": "ann", "authPassword": PASSWORD, "supported-extensions": ""}
            with closing(Peer(broker.port, headers=headers)) as peer:
                peer.send(encode_body(CommandType.SUBSCRIBE, "s", "q"))
                peer.answer()
                ready()
                revoked()
                peer.send(encode_body(CommandType.SUBSCRIBE, "s2", "q"))
                with pytest.raises(Refusal) as refusal:
                    peer.answer()
            return str(refusal.value)

        def omq(ready: Callable[[], None], revoked: Callable[[], None]) -> str:
            with OmqWire(omq_port, name=f"ann:{PASSWORD}") as wire:
                wire.subscribe("q", "From_current")
                ready()
                revoked()
                kind, _ = next(wire.frames)
                assert kind == UNSUBSCRIBED
                wire.tell("(Subscribe q From_current)\n")
                return next(wire.frames)[1].decode()

        for talk in (plain, omq):
            await broker.replace_users(rules)
            ready, revoked, said = anyio.Event(), anyio.Event(), list[str]()

            async def run(
                talk: Callable[..., str] = talk,
                ready: anyio.Event = ready,
                revoked: anyio.Event = revoked,
                said: list[str] = said,
            ) -> None:
                call = anyio.from_thread.run
                said.append(
                    await to_thread.run_sync(
                        talk, lambda: anyio.from_thread.run_sync(ready.set), lambda: call(revoked.wait)
                    )
                )

            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(run)
                    await ready.wait()
                    await broker.replace_users(auth(ann=("publish",)))
                    revoked.set()
            assert "user 'ann' does not have the permission 'subscribe'" in said[0]


@pytest.mark.anyio
@pytest.mark.parametrize("lost", ["token", "password"])
async def test_a_credential_that_is_replaced_ends_the_connections_that_hold_it(tmp_path: Path, lost: str) -> None:
    def rules(*, token: str = "t0ken", password: str = PASSWORD) -> Auth:
        everything = Permission(queues="*", actions=("*",))
        users = {
            name: User(password_hash=SecretStr(cheap_hash(secret)), permissions=(everything,))
            for name, secret in (("ann", password), ("ben", PASSWORD))
        }
        # Its password stands in clear: each reading of the settings makes another hash of it.
        secret = SecretStr(PASSWORD)
        return Auth(users=users, token=SecretStr(token), superuser="root", superuser_password=secret)

    everywhere = settings(tmp_path, rules()).model_copy(update={"listeners": (Listener(port=0), OMQ)})
    changed = rules(token="0ther") if lost == "token" else rules(password="0ther")
    reason = "the token was changed" if lost == "token" else "the password of user 'ann' was changed"
    token, ann = {"authToken": "t0ken"}, {"authUsername": "ann", "authPassword": PASSWORD}
    async with Broker(settings=everywhere) as broker:
        omq_port = next(one.port for one in broker.listening if one.protocol == "omq")
        with ExitStack() as stack:

            def come() -> tuple[Peer, OmqWire, list[Peer]]:
                """Two who lose what they hold, one of them with a request under way, and all who lose nothing."""
                holder = stack.enter_context(closing(Peer(broker.port, headers=token if lost == "token" else ann)))
                holder.admin("queue.create", queue="q")
                holder.ask("group.join", "q", group="g")
                waiting = orjson.dumps(
                    {"verb": "group.advance", "arguments": {"group": "g", "from": 1, "wait_ms": 30_000}}
                )
                holder.send(encode_body(CommandType.CURSOR_REQUEST, "w", "q", waiting))
                secret = "who:t0ken" if lost == "token" else f"ann:{PASSWORD}"
                wire = stack.enter_context(OmqWire(omq_port, name=secret))
                wire.subscribe("q", "From_current")
                others = [stack.enter_context(connected(broker.port, name)) for name in ("ben", "root")]
                others.append(
                    stack.enter_context(closing(Peer(broker.port, headers=ann if lost == "token" else token)))
                )
                return holder, wire, others

            def hear(holder: Peer, wire: OmqWire) -> None:
                goodbye = decode_body(holder.receive())
                assert goodbye.type == CommandType.DISCONNECT
                assert reason in goodbye.headers["reason"]
                with pytest.raises(ConnectionError):
                    holder.receive()
                kinds = dict(wire.frames)
                assert reason in kinds[ERROR].decode()

            with anyio.fail_after(60):
                holder, wire, others = await to_thread.run_sync(come)
                await broker.replace_users(changed)
                await to_thread.run_sync(hear, holder, wire)
                for other in others:
                    answer = await to_thread.run_sync(partial(other.admin, "queue.info", queue="q"))
                    assert answer["name"] == "q"
