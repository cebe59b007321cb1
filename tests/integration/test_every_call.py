"""No call of any door holds the loop for longer than 5 ms, with very many queues, dead letters, groups, messages and
users;
10 ms are let pass, see `tests/watchdog.py`.

A new operation, frame, command or page without a row in `every_call/` fails here.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, get_args

import pytest
from anyio import to_thread
from pydantic import SecretStr
from starlette.routing import Route

from tests.integration.access import cheap_hash
from tests.integration.every_call.crowds import CROWD_ROWS
from tests.integration.every_call.native_frames import ANSWERS, FRAME_ROWS
from tests.integration.every_call.omq_commands import OMQ_ROWS
from tests.integration.every_call.operations import OPERATION_ROWS
from tests.integration.every_call.pages import page
from tests.integration.every_call.peers import DEAD, HOLES, JOBS, LOG, NEWS, ROOT
from tests.integration.every_call.world import Prepared, Row, World, prepare
from tests.waiting import until
from tests.watchdog import ATTEMPTS, HOLD_S_MAX, longest_hold_s
from vibemq.config import Auth, Http, Limits, Listener, Settings, User
from vibemq.model.access import ResourceKind, Rule
from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.options import DeliveryMode, QueueOptions, Retention
from vibemq.model.records import (
    ALL_GROUPS,
    CursorChanged,
    CursorFacts,
    DeadFacts,
    DeadLettered,
    GroupCreated,
    MessagesAdded,
    QueueCreated,
    Reason,
    Record,
    Settled,
    TokenStored,
    UserStored,
)
from vibemq.model.rows import Rows, pack_row
from vibemq.operations import OPERATIONS
from vibemq.protocols.native.codec.wire import CommandType
from vibemq.protocols.omq.commands import ClientCommand
from vibemq.server.broker import Broker
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.web.app import Pages, make_app

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("every_call")]
"""In one worker: each would fill a crowded store of its own."""

QUEUES, LETTERS, GROUPS, MESSAGES, FAN_OUT = 10_000, 50_000, 2_000, 20_000, 10_000
USERS, TOKENS = 5_000, 1_000
AT_ONCE = 5_000
REASONS, ERRORS = (Reason.REJECTED, Reason.EXPIRED, Reason.MAX_ATTEMPTS), 1_300
"""The errors are of more kinds than a queue has groups for."""
WORDS = ("no", "yes", "maybe", "never", "rain", "snow", "left", "right", "up", "down")
SCATTERED = 4_000
"""Queues that have a letter each."""


# -- a crowded store --------------------------------------------------------------------------------------------------


def queue(queue_id: int, name: str, **options: Any) -> list[Record]:
    created = QueueCreated(queue_id, name, QueueOptions(**options), 1_000, f"{queue_id:032x}")
    return [created, GroupCreated(queue_id, 0, "", True, 1)]


def messages(queue_id: int, count: int) -> Iterator[Record]:
    rows = Rows.of([pack_row("m", b"x" * 20)] * AT_ONCE)
    for first in range(1, count + 1, AT_ONCE):
        yield MessagesAdded(queue_id, first, 2_000, rows)


def letters(queue_id: int, first: int) -> DeadLettered:
    facts = [
        DeadFacts(n, n, REASONS[n % 3], f"order {n}: {words(n % ERRORS)}", 1, 1, 2_000, 3_000 + n)
        for n in range(first, first + AT_ONCE)
    ]
    return DeadLettered(queue_id, ALL_GROUPS, facts)


def words(number: int) -> str:
    """As many texts as numbers; in none of them is a digit."""
    return " ".join(
        ("no", "yes", "maybe", "never", "rain", "snow", "left", "right", "up", "down")[int(n)] for n in str(number)
    )


def scattered_letters(first: int, last: int) -> Iterator[Record]:
    """One of each queue."""
    for queue_id in range(first, last + 1):
        yield MessagesAdded(queue_id, 1, 2_000, Rows.of([pack_row("m", b"x" * 20)]))
        facts = DeadFacts(LETTERS + queue_id, 1, Reason.REJECTED, "alone", 1, 1, 2_000, 90_000 + queue_id)
        yield DeadLettered(queue_id, ALL_GROUPS, [facts])


def cursors(queue_id: int) -> Iterator[Record]:
    for number in range(1, GROUPS + 1):
        yield GroupCreated(queue_id, number, f"g{number}", True, 1)
        yield CursorChanged(queue_id, number, CursorFacts(1, number, 0, 0, 0, False, 0, ""))


def people() -> Iterator[Sequence[Record]]:
    """Users with permissions, and some with very many tokens."""
    hashed = cheap_hash()
    rules = tuple(Rule(ResourceKind.QUEUE, f"part-{number}.*", frozenset({"publish"})) for number in range(10))
    for first in range(0, USERS, AT_ONCE):
        names = [f"u{number}" for number in range(first, first + AT_ONCE)]
        yield [UserStored(StoredUser(name, hashed, False, rules, 1_000, 1_000)) for name in names]
    for kind in ("bearer", "holder"):
        for number in range(ATTEMPTS):
            name = f"{kind}-{number}"
            held = (StoredToken(f"{name}-{n}", name, b"k", b"d", "", 1_000, 0, 0) for n in range(TOKENS))
            yield [UserStored(StoredUser(name, hashed, False, rules, 1_000, 1_000)), *map(TokenStored, held)]


def crowd() -> Iterator[Sequence[Record]]:
    yield queue(1, DEAD)
    yield list(messages(1, LETTERS))
    for first in range(1, LETTERS + 1, AT_ONCE):
        yield [letters(1, first)]
    yield [*queue(2, LOG, retention=Retention.LOG), *messages(2, MESSAGES), *cursors(2)]
    yield [*queue(3, JOBS), *messages(3, MESSAGES)]
    yield [*queue(4, HOLES), *messages(4, MESSAGES)]
    yield [Settled(4, 0, [(sequence, sequence) for sequence in range(2, MESSAGES, 2)])]
    yield [GroupCreated(4, 1, "g1", True, 1), CursorChanged(4, 1, CursorFacts(1, 1, 0, 0, 0, False, 0, ""))]
    yield queue(5, NEWS, mode=DeliveryMode.FAN_OUT_WITH_ACK)
    yield [GroupCreated(5, number, f"n{number}", True, 1) for number in range(1, FAN_OUT + 1)]
    for first in range(6, QUEUES + 1, 1_000):
        numbers = range(first, min(first + 1_000, QUEUES + 1))
        yield [record for number in numbers for record in queue(number, f"q{number - 5}")]
        if first <= SCATTERED:
            yield list(scattered_letters(first, min(first + 1_000, QUEUES + 1) - 1))
    yield from people()


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("crowded")
    storage = LmdbProvider(folder / "data", LmdbSettings())
    storage.open()
    for records in crowd():
        storage.append(records)
    storage.close()
    settings = Settings(
        data_dir=folder / "data",
        listeners=(Listener(port=0, settings={"prefetch": MESSAGES}), Listener(port=0, protocol="omq")),
        http=Http(port=0),
        limits=Limits(connections_per_ip_per_minute=0),
        auth=Auth(users={ROOT: User(password_hash=SecretStr(cheap_hash()), superuser=True)}),
    )
    async with Broker(settings=settings) as broker:
        assert broker.http_address is not None
        native, omq = (listening.port for listening in broker.listening)
        http = "http://{}:{}".format(*broker.http_address)
        pacer = broker._running().pacer

        def is_quiet() -> bool:
            return broker.connection_count <= 1 and not pacer.busy

        def forget_the_picture() -> None:
            snapshots = broker.report.snapshots
            snapshots.attach(snapshots._observed)

        world = await to_thread.run_sync(World, native, omq, http, folder, is_quiet, forget_the_picture)
        yield world
        await to_thread.run_sync(world.close)


# -- the walk ---------------------------------------------------------------------------------------------------------


async def assert_does_not_hold(row: Row | Prepared, world: World) -> None:
    async def prepared(attempt: int) -> Callable[[], object]:
        # What the peers of the last attempt held has gone back.
        await to_thread.run_sync(world.hang_up)
        await until(world.is_quiet)
        world.forget_the_picture()
        return await to_thread.run_sync(prepare, row, world, attempt)

    assert await longest_hold_s(to_thread.run_sync, prepared) <= HOLD_S_MAX


@pytest.mark.parametrize("name", [operation.name for operation in OPERATIONS])
async def test_operations(world: World, name: str) -> None:
    await assert_does_not_hold(OPERATION_ROWS[name], world)


@pytest.mark.parametrize("kind", [kind for kind in CommandType if kind not in ANSWERS])
async def test_frames_of_the_native_protocol(world: World, kind: CommandType) -> None:
    await assert_does_not_hold(FRAME_ROWS[kind], world)


@pytest.mark.parametrize("name", CROWD_ROWS)
async def test_calls_that_meet_a_crowd(world: World, name: str) -> None:
    await assert_does_not_hold(CROWD_ROWS[name], world)


@pytest.mark.parametrize("name", [command.__name__ for command in get_args(ClientCommand)])
async def test_commands_of_the_ocaml_message_queue(world: World, name: str) -> None:
    await assert_does_not_hold(OMQ_ROWS[name], world)


def pages() -> list[str]:
    app: Any = make_app(Pages(Any, None))  # type: ignore[arg-type]  # nothing is asked of it
    return [route.path for route in app.routes if isinstance(route, Route)]


@pytest.mark.parametrize("path", pages())
async def test_pages(world: World, path: str) -> None:
    crowded = path.replace("{name:path}", NEWS)
    await assert_does_not_hold(lambda world, attempt: page(world, crowded), world)
