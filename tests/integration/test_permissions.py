"""Who may do what, seen from outside: every operation, every command, both protocols, every kind of user.

What is expected stands here once more, by hand: the table of the product is compared with outcomes, not with itself.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

import pytest

from tests.integration.access import EVERYBODY, SINGLE, connected
from tests.integration.conditions import running
from tests.integration.cursor_peer import Peer, Refusal, rows_of
from tests.interop.omq import OmqBroker, OmqWire
from vibemq.auth.matrix import OPERATIONS
from vibemq.model import commands as c
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.wire import CommandType, encode_body

Q = "a.q"
KINDS = ("anonymous", "root", "owner", "none", "transact", *SINGLE)


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OmqBroker]:
    broker = OmqBroker(tmp_path_factory.mktemp("asking"), toml=EVERYBODY)
    with running(broker):
        yield broker


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OmqBroker]:
    broker = OmqBroker(tmp_path_factory.mktemp("trusting"))
    with running(broker):
        yield broker


@pytest.fixture
def broker(request: pytest.FixtureRequest, kind: str) -> OmqBroker:
    found: OmqBroker = request.getfixturevalue("trusting" if kind == "anonymous" else "asking")
    with connected(found.port, "anonymous" if kind == "anonymous" else "root") as root:
        root.admin("queue.create", queue=Q)
    return found


def held(kind: str) -> frozenset[str]:
    """The rights of a kind of user on queue `a.q`, its groups, and applications `a-…`."""
    if kind in ("anonymous", "root"):
        return frozenset((*SINGLE, "transact", "admin"))
    if kind == "owner":
        return frozenset((*SINGLE, "transact"))
    return frozenset(() if kind == "none" else (kind,))


# -- operations -------------------------------------------------------------------------------------------------------

ADMIN_FRAME, CURSOR_FRAME = "admin", "cursor"


@dataclass(frozen=True)
class Operation:
    needs: frozenset[str]
    arguments: dict[str, Any]
    frame: str = ADMIN_FRAME
    queue: str = ""


def admin(needs: str, **arguments: Any) -> Operation:
    return Operation(frozenset(needs.split()), arguments)


def cursor(needs: str, queue: str = Q, **arguments: Any) -> Operation:
    return Operation(frozenset(needs.split()), arguments, CURSOR_FRAME, queue)


EXPECTED: dict[str, Operation] = {
    "broker.info": admin("admin"),
    "broker.metrics": admin("admin"),
    "connections.list": admin("admin"),
    "connections.close": admin("admin", connection_id="none"),
    "user.allowed": admin("admin", action="publish", queues=Q),
    "storage.backup": admin("admin", target="not absolute"),
    "transaction.forget": admin("admin", app="a-USER"),
    "queue.create": admin("create", queue="a.new"),
    "queue.change": admin("create", queue=Q, changes={}),
    "queue.delete": admin("delete", queue="a.gone"),
    "queue.purge": admin("purge", queue=Q),
    "queue.remove": admin("purge", queue=Q, runs=[[1, 1]]),
    "queue.info": admin("inspect", queue=Q),
    "queue.list": admin(""),
    "queue.peek": admin("inspect subscribe", queue=Q),
    "dlq.list": admin("inspect", queue=Q),
    "dlq.show": admin("inspect", queue=Q, dead_id=1),
    "dlq.replay": admin("purge publish", queue=Q),
    "dlq.purge": admin("purge", queue=Q),
    "group.list": cursor("subscribe"),
    "group.offsets": cursor("subscribe"),
    "group.advance": cursor("subscribe", from_=1),
    "group.split": cursor("subscribe", from_=1, to=2),
    "group.fetch": cursor("subscribe", from_=1, to=1),
    "group.join": cursor("subscribe", group="USER"),
    "group.commit": cursor("subscribe", group="USER", epoch=1, sequence=1),
    "group.plan": cursor("subscribe", group="USER", epoch=1, tag="t", end="e"),
    "group.enter": cursor("subscribe", group="USER", epoch=1, tag="t", end="e", query="q", batch=0),
    "group.reject": cursor("subscribe", group="USER", rejects=[]),
    "group.quarantine": cursor("subscribe", group="USER", runs=[]),
    "group.set": cursor("subscribe", group="USER"),
    "group.seek": cursor("subscribe", group="USER", start="latest"),
    "group.delete": cursor("subscribe", group="USER"),
    "dead.offsets": cursor("inspect"),
    "dead.fetch": cursor("inspect", from_=1, to=1),
    "dead.redrive": cursor("purge publish", ids=[]),
    "transaction.commit": cursor("transact", "", app="a-USER", version=1, stages=[]),
    "transaction.abort": cursor("transact", "", app="a-USER", version=1, stages=[]),
    "transaction.last": cursor("transact", "", app="a-USER"),
}


def test_every_operation_is_expected_to_need_something() -> None:
    assert set(EXPECTED) == set(OPERATIONS)


def refused(ask: Callable[[], Any]) -> bool:
    """Whether it is the permission that is missing; any other answer, good or bad, is none of it."""
    try:
        ask()
    except Refusal as error:
        return "NOT_AUTHORIZED" in str(error)
    return False


def send(peer: Peer, name: str, operation: Operation, kind: str) -> Any:
    arguments = {
        key: value.replace("USER", kind) if isinstance(value, str) else value
        for key, value in operation.arguments.items()
    }
    if operation.frame == CURSOR_FRAME:
        return peer.ask(name, operation.queue, **arguments)
    return peer.admin(name, **{key.rstrip("_"): value for key, value in arguments.items()})


@pytest.mark.parametrize("kind", KINDS)
def test_every_operation(broker: OmqBroker, kind: str) -> None:
    with connected(broker.port, kind) as peer:
        allowed = {
            name: not refused(lambda name=name, operation=operation: send(peer, name, operation, kind))  # type: ignore[misc]
            for name, operation in EXPECTED.items()
        }
    assert allowed == {name: operation.needs <= held(kind) for name, operation in EXPECTED.items()}


@pytest.mark.parametrize("kind", ["owner", "none", *SINGLE])
def test_no_operation_reaches_what_is_not_named(broker: OmqBroker, kind: str) -> None:
    """Another queue, another application, or all of them."""
    elsewhere = {
        name: Operation(
            operation.needs,
            {
                key: {"queue": "b.q", "app": "b"}.get(key, value)
                for key, value in operation.arguments.items()
                if key != "queue" or name not in ("dlq.list", "dlq.show", "dlq.replay", "dlq.purge")
            },
            operation.frame,
            operation.queue and "b.q",
        )
        for name, operation in EXPECTED.items()
        if name != "queue.list"
    }
    with connected(broker.port, kind) as peer:
        for name, operation in elsewhere.items():
            assert refused(lambda name=name, operation=operation: send(peer, name, operation, kind)), name  # type: ignore[misc]


# -- commands ---------------------------------------------------------------------------------------------------------


def subscribe(peer: Peer, queue: str = Q) -> Any:
    peer.send(encode_body(CommandType.SUBSCRIBE, "sub", queue, headers={"subscriptionId": "sub"}))
    return peer.answer()


def plain(kind: CommandType, queue: str = Q) -> Callable[[Peer, str], Any]:
    def send(peer: Peer, user: str) -> Any:
        peer.send(encode_body(kind, "x", queue))
        return peer.answer()

    return send


def named(operation: str) -> Callable[[Peer, str], Any]:
    return lambda peer, kind: send(peer, operation, EXPECTED[operation], kind)


def unanswered(body: bytes) -> Callable[[Peer, str], Any]:
    """A frame without an answer: the connection goes on."""

    def send(peer: Peer, user: str) -> Any:
        peer.send(body)
        return plain(CommandType.PING)(peer, user)

    return send


SERVERS_OWN: tuple[str, None] = ("never", None)

COMMANDS: dict[type, tuple[str, Callable[[Peer, str], Any] | None]] = {
    c.Publish: ("publish", lambda peer, kind: peer.publish(Q, rows_of(1))),
    c.Subscribe: ("subscribe", lambda peer, kind: subscribe(peer)),
    c.Unsubscribe: ("", plain(CommandType.UNSUBSCRIBE)),
    c.SetCapacity: ("", unanswered(extensions.flow("sub", 1))),
    c.Settle: ("", unanswered(extensions.settle("sub", 0, [(1, 1)]))),
    c.Extend: ("", unanswered(extensions.extend_many("sub", [(1, 1)]))),
    c.CreateQueue: ("create", plain(CommandType.CREATE_QUEUE)),
    c.ChangeQueue: ("create", named("queue.change")),
    c.DeleteQueue: ("delete", plain(CommandType.DELETE_QUEUE, "a.gone")),
    c.PurgeQueue: ("purge", named("queue.purge")),
    c.RemoveMessages: ("purge", named("queue.remove")),
    c.DescribeQueue: ("inspect", plain(CommandType.QUEUE_INFO)),
    c.ListQueues: ("", plain(CommandType.LIST_QUEUES)),
    c.DeleteGroup: ("subscribe", named("group.delete")),
    c.SeekGroup: ("subscribe", named("group.seek")),
    c.JoinCursor: ("subscribe", named("group.join")),
    c.CommitCursor: ("subscribe", named("group.commit")),
    c.PlanBatch: ("subscribe", named("group.plan")),
    c.EnterBatch: ("subscribe", named("group.enter")),
    c.RejectAt: ("subscribe", named("group.reject")),
    c.Quarantine: ("subscribe", named("group.quarantine")),
    c.Stage: (
        "publish transact",
        lambda peer, kind: peer.stage(Q, rows_of(1), app=f"a-{kind}", version=2, stage="s"),
    ),
    c.DecideTransaction: ("transact", named("transaction.commit")),
    c.DropStages: ("transact", named("transaction.abort")),
    c.ReplayDead: ("purge publish", named("dead.redrive")),
    c.PurgeDead: ("purge", named("dlq.purge")),
    c.ForgetApplication: ("admin", named("transaction.forget")),
    # No frame of any protocol says these.
    c.MoveStaged: SERVERS_OWN,
    c.ChangeAccounts: SERVERS_OWN,
    c.SetFlow: SERVERS_OWN,
    c.CloseSession: SERVERS_OWN,
    c.EndConsumers: SERVERS_OWN,
    c.SetPressure: SERVERS_OWN,
}


def test_every_command_is_expected_to_need_something() -> None:
    assert set(COMMANDS) == set(get_args(c.Command))


@pytest.mark.parametrize("kind", KINDS)
def test_every_command(broker: OmqBroker, kind: str) -> None:
    outcomes, expected = {}, {}
    for command, (needs, provoke) in COMMANDS.items():
        if provoke is not None:
            with connected(broker.port, kind) as peer:
                outcomes[command] = not refused(lambda provoke=provoke, peer=peer: provoke(peer, kind))  # type: ignore[misc]
            expected[command] = frozenset(needs.split()) <= held(kind)
    assert outcomes == expected


# -- the message-queue protocol ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_needs_subscribe(broker: OmqBroker, kind: str) -> None:
    for topic, rights in ((Q, held(kind)), ("b.q", held(kind) if kind in ("anonymous", "root") else frozenset())):
        text = omq_answer(broker, kind, topic)
        assert ("not authorized" in text) == ("subscribe" not in rights), (topic, text)


def omq_answer(broker: OmqBroker, kind: str, topic: str) -> str:
    name = kind if kind == "anonymous" else f"{kind}:pw"
    with OmqWire(broker.omq_port, name=name) as wire:
        wire.tell(f"(Subscribe {topic} From_current)\n")
        _, payload = next(wire.frames)
        return payload.decode()
