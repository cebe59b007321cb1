"""Who may do what, seen from outside: every operation, every command and every kind of job, by every kind of user.

What is expected stands here once more, by hand: the table of the product is compared with outcomes, not with itself.
What depends on a condition, whose a group is or whether a queue is there, is in `test_conditional_rights.py`, and what
other protocols can say in `test_protocol_rights.py`.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

import pytest

from tests.integration.access import EVERYBODY, SINGLE, connected
from tests.integration.conditions import running
from tests.integration.cursor_peer import Peer, Refusal, rows_of
from tests.interop.omq import ERROR, MESSAGE, SUBSCRIBED, UNSUBSCRIBED, OmqBroker, OmqWire
from vibemq.auth.matrix import JOB_KINDS, OPERATIONS
from vibemq.model import commands as c
from vibemq.model.jobs.job import JobKind
from vibemq.model.rows import pack_row
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body

Q = "a.q"
PRESENT = (Q, "a.gone", "a.to")
"""Queues that operations and commands name; what is not there would be answered before a check that is forgotten."""
MISSING = ".missing"
TOKENS: dict[str, tuple[str, str | None]] = {
    **{f"owner's {action}": ("owner", action) for action in (*SINGLE, "transact")},
    "root's publish": ("root", "publish"),
    "root's whole": ("root", None),
    "publish's more": ("publish", "*"),
    # Whoever stages in transactions, and may not make queues.
    "owner's publish and transact": ("owner", "publish transact"),
}
"""Tokens by name: whose, and narrowed to what; a token gives nothing that its user does not have."""
NARROWED = [name for name, (user, action) in TOKENS.items() if user == "owner" and action in (*SINGLE, "transact")]
KINDS = ("anonymous", "root", "owner", "none", "transact", *SINGLE, *TOKENS)
LIMITED = tuple(kind for kind in KINDS if kind not in ("anonymous", "root", "root's whole"))
"""Who may do nothing to queues `b.*`."""


def narrowing(actions: str) -> list[dict[str, Any]]:
    return [
        {"transactions": "a-*", "actions": [action]}
        if action == "transact"
        else {"queues": "*" if action == "*" else "a.*", "actions": [action]}
        for action in actions.split()
    ]


class Broker(OmqBroker):
    """With the text of every token in TOKENS."""

    tokens: dict[str, str]

    def make_tokens(self) -> None:
        with connected(self.port, "root") as root:
            self.tokens = {
                kind: root.admin(
                    "token.create", user=name, **({} if action is None else {"permissions": narrowing(action)})
                )["token"]
                for kind, (name, action) in TOKENS.items()
            }

    def connect(self, kind: str) -> Any:
        return connected(self.port, kind, token=self.tokens.get(kind, ""))


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("asking"), toml=EVERYBODY)
    with running(broker):
        broker.make_tokens()
        yield broker


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("trusting"))
    with running(broker):
        broker.tokens = {}
        yield broker


@pytest.fixture
def broker(request: pytest.FixtureRequest, kind: str) -> Broker:
    found: Broker = request.getfixturevalue("trusting" if kind == "anonymous" else "asking")
    with found.connect(chief_of(kind)) as root:
        for queue in (queue["name"] for queue in root.admin("queue.list")):
            if queue.endswith(MISSING):
                root.admin("queue.delete", queue=queue)
        for queue in PRESENT:
            for place in (queue, elsewhere(queue)):
                root.admin("queue.create", queue=place)
    return found


def chief_of(kind: str) -> str:
    """Who may do everything on the broker that this kind of user is on."""
    return "anonymous" if kind == "anonymous" else "root"


def user_of(kind: str) -> str:
    return TOKENS[kind][0] if kind in TOKENS else kind


def held(kind: str) -> frozenset[str]:
    """The rights of a kind of user on queue `a.q`, its groups, and applications `a-…`; `self`: to look after itself."""
    if kind in TOKENS:
        name, action = TOKENS[kind]
        if action is None:
            return held(name)
        return frozenset((name,) if action == "*" else action.split())
    if kind in ("anonymous", "root"):
        return frozenset((*SINGLE, "transact", "admin", "self"))
    if kind == "owner":
        return frozenset((*SINGLE, "transact", "self"))
    return frozenset(("self",) if kind == "none" else (kind, "self"))


# -- places -----------------------------------------------------------------------------------------------------------


def elsewhere(name: str) -> str:
    """What nobody but superusers has a right to: of another owner."""
    return "b" + name[1:]


def missing(name: str) -> str:
    return name + MISSING


PLACES: dict[str, Callable[[str], str]] = {
    "own": str,
    "own missing": missing,
    "foreign": elsewhere,
    "foreign missing": lambda name: elsewhere(missing(name)),
}


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
    "broker.overview": admin(""),
    "queue.rows": admin(""),
    "history.get": admin("inspect", queue=Q),
    "audit.list": admin("admin"),
    "broker.checks": admin("admin"),
    "broker.settings": admin("admin"),
    "listeners.list": admin("admin"),
    "consumer.list": admin("inspect", queue=Q),
    "cursor.list": admin(""),
    "transaction.list": admin(""),
    "broker.reload": admin("admin"),
    "user.add": admin("admin", user="no name"),
    "user.change": admin("admin", user="nobody", superuser=False),
    "user.remove": admin("admin", user="nobody"),
    "user.list": admin("admin"),
    "user.show": admin("self", user="NAME"),
    "user.password": admin("self", user="NAME", password="new"),
    "user.grant": admin("admin", user="nobody", queues="*", actions=["publish"]),
    "user.revoke": admin("admin", user="nobody", queues="*"),
    "user.check": admin("self", user="NAME", queues=Q, action="publish"),
    "user.self": admin(""),
    "token.create": admin("self", user="NAME", expires_ms=0),
    "token.list": admin("self", user="NAME"),
    "token.revoke": admin("self", user="NAME", token_id="none"),
    "connections.list": admin("self", user="NAME"),
    "connections.consumers": admin("self", user="NAME", connection_id="none"),
    "connections.close": admin("self", user="NAME", connection_id="none"),
    "connections.redirect": admin("admin", connection_id="none", host="localhost", port=1),
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
    "queue.export": admin("inspect subscribe", queue=Q),
    "queue.move": admin("subscribe purge publish", queue=Q, to="a.to"),
    "queue.import": admin("publish", queue=Q, import_id="file", position=0, messages=[]),
    "message.show": admin("inspect subscribe", queue=Q, sequence=1),
    "message.part": admin("inspect subscribe", queue=Q, sequence=1),
    "message.remove": admin("purge", queue=Q, sequences=[1]),
    "dlq.list": admin("inspect", queue=Q),
    "dlq.groups": admin("inspect", queue=Q),
    "dlq.preview": admin("inspect", queue=Q),
    "dlq.show": admin("inspect", queue=Q, dead_id=1),
    "dlq.replay": admin("purge publish", queue=Q),
    "dlq.purge": admin("purge", queue=Q),
    "dlq.edit": admin("purge publish", queue=Q, dead_id=1),
    "job.start": admin("purge publish", kind="replay", filter={"queue": Q}),
    "job.list": admin(
        "",
    ),
    "job.show": admin("", job="999"),
    "job.change": admin("", job="999", state="paused"),
    "backup.list": admin("admin"),
    "definitions.import": admin("admin", queues=[], dry_run=True),
    "job.result": admin("", job="999"),
    "job.discard": admin("", job="999"),
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
    "group.filter": cursor("subscribe", group="USER", where="n > 3"),
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


def answer_of(ask: Callable[[], Any]) -> str:
    """The code and the sentence of a refusal; "" for what is done."""
    try:
        ask()
    except Refusal as error:
        return str(error)
    return ""


def refusal_of(ask: Callable[[], Any]) -> str:
    """The sentence when it is the permission that is missing; "" for any other answer, good or bad."""
    answer = answer_of(ask)
    return answer if "NOT_AUTHORIZED" in answer else ""


def refused(ask: Callable[[], Any]) -> bool:
    return bool(refusal_of(ask))


def send(peer: Peer, name: str, operation: Operation, kind: str, place: Callable[[str], str] = str) -> Any:
    def filled(key: str, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if key in ("queue", "app"):
            value = place(value)
        return value.replace("USER", kind).replace("NAME", user_of(kind))

    arguments = {key: filled(key, value) for key, value in operation.arguments.items()}
    if operation.frame == CURSOR_FRAME:
        return peer.ask(name, operation.queue and place(operation.queue), **arguments)
    return peer.admin(name, **{key.rstrip("_"): value for key, value in arguments.items()})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["own", "own missing"])
def test_every_operation(broker: Broker, kind: str, place: str) -> None:
    with broker.connect(kind) as peer:
        answers = {name: answer_of(partial(send, peer, name, it, kind, PLACES[place])) for name, it in EXPECTED.items()}
    assert allowed(answers) == {name for name, operation in EXPECTED.items() if operation.needs <= held(kind)}
    assert place != "own" or not unknown_queues(answers)


def allowed(answers: dict[Any, str]) -> set[Any]:
    """What is not refused for want of a permission."""
    return {asked for asked, answer in answers.items() if "NOT_AUTHORIZED" not in answer}


def unknown_queues(answers: dict[Any, str]) -> set[Any]:
    """Where they are there, to be told otherwise would hide whether the permission was looked at."""
    return {asked for asked, answer in answers.items() if "QUEUE_NOT_FOUND" in answer}


JOBS: dict[JobKind, frozenset[str]] = {
    JobKind.REPLAY: frozenset(("purge", "publish")),
    JobKind.PURGE_DEAD: frozenset(("purge",)),
    JobKind.EXPORT_DEAD: frozenset(("inspect",)),
}


def test_every_kind_of_job_is_expected_to_need_something() -> None:
    assert set(JOBS) == set(JobKind) == set(JOB_KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_of_every_kind(broker: Broker, kind: str) -> None:
    """Of an own queue; of somebody else's, that is there or not; of all of them."""
    with broker.connect(kind) as peer:
        for job, needs in JOBS.items():

            def answer(job: JobKind = job, **given: Any) -> str:
                return answer_of(partial(peer.admin, "job.start", kind=job, **given))

            own = answer(filter={"queue": Q})
            assert ("NOT_AUTHORIZED" not in own) == (needs <= held(kind)), (job, own)
            assert "SERVER_ERROR" not in own, job
            there, gone = (answer(filter={"queue": PLACES[place](Q)}) for place in ("foreign", "foreign missing"))
            assert ("NOT_AUTHORIZED" in there) == (kind in LIMITED), (job, there)
            assert kind not in LIMITED or gone.replace(MISSING, "") == there, job
            assert ("NOT_AUTHORIZED" in answer()) == (kind in LIMITED), job
            if "publish" in needs:
                assert ("NOT_AUTHORIZED" in answer(filter={"queue": Q}, to=elsewhere(Q))) == (kind in LIMITED), job


def concerns_a_place(operation: Operation) -> bool:
    return bool(operation.queue) or bool({"queue", "app"} & set(operation.arguments))


@pytest.mark.parametrize("kind", KINDS)
def test_no_operation_reaches_what_belongs_to_others_or_tells_whether_it_is_there(broker: Broker, kind: str) -> None:
    with broker.connect(kind) as peer:
        for name, it in EXPECTED.items():
            if concerns_a_place(it):
                there, gone = (
                    refusal_of(lambda name=name, it=it, place=place: send(peer, name, it, kind, PLACES[place]))  # type: ignore[misc]
                    for place in ("foreign", "foreign missing")
                )
                assert bool(there) == bool(gone) == (kind in LIMITED), name
                assert gone.replace(MISSING, "") == there, name


@pytest.mark.parametrize("kind", LIMITED)
def test_no_operation_reaches_all_queues_at_once_or_another_user(broker: Broker, kind: str) -> None:
    with broker.connect(kind) as peer:
        for name in ("dlq.show", "dlq.replay", "dlq.purge"):
            others = {key: value for key, value in EXPECTED[name].arguments.items() if key != "queue"}
            assert refused(lambda name=name, others=others: peer.admin(name, **others)), name  # type: ignore[misc]
        for name, it in EXPECTED.items():
            if it.arguments.get("user") == "NAME":
                for other in ("nobody", "transact" if kind != "transact" else "owner", "root"):
                    if other != user_of(kind) or kind in TOKENS:
                        arguments = {**it.arguments, "user": other}
                        assert refused(lambda name=name, them=arguments: peer.admin(name, **them)), name  # type: ignore[misc]


# -- commands ---------------------------------------------------------------------------------------------------------


def subscribe(peer: Peer, queue: str = Q) -> Any:
    peer.send(encode_body(CommandType.SUBSCRIBE, "sub", queue, headers={"subscriptionId": "sub"}))
    return peer.answer()


Place = Callable[[str], str]
Provoke = Callable[[Peer, str, Place], Any]
"""(peer, kind of user, place)"""


def plain(kind: CommandType, queue: str = Q) -> Provoke:
    def send(peer: Peer, user: str, place: Place) -> Any:
        peer.send(encode_body(kind, "x", place(queue)))
        return peer.answer()

    return send


def named(operation: str) -> Provoke:
    return lambda peer, kind, place: send(peer, operation, EXPECTED[operation], kind, place)


def unanswered(body: bytes) -> Provoke:
    """A frame without an answer: the connection goes on."""

    def send(peer: Peer, user: str, place: Place) -> Any:
        peer.send(body)
        return plain(CommandType.PING)(peer, user, place)

    return send


def reply_to_nobody(peer: Peer, user: str, place: Place) -> Any:
    peer.send(extensions.response("x", "a" * 32, pack_row("m", b"1")))
    return peer.answer()


def staged(peer: Peer, kind: str, place: Place) -> Any:
    return peer.stage(place(Q), rows_of(1), app=place(f"a-{kind}"), version=2, stage="s")


SERVERS_OWN: tuple[str, None] = ("never", None)

COMMANDS: dict[type, tuple[str, Provoke | None]] = {
    c.Publish: ("publish", lambda peer, kind, place: peer.publish(place(Q), rows_of(1))),
    c.Subscribe: ("subscribe", lambda peer, kind, place: subscribe(peer, place(Q))),
    c.Respond: ("", reply_to_nobody),
    c.GiveUp: ("", unanswered(extensions.give_up("x"))),
    c.Unsubscribe: ("", plain(CommandType.UNSUBSCRIBE)),
    c.SetCapacity: ("", unanswered(extensions.flow("sub", 1))),
    c.SetShare: ("", unanswered(extensions.flow("sub", 1))),
    c.Settle: ("", unanswered(extensions.settle("sub", 0, [(1, 1)]))),
    c.Extend: ("", unanswered(extensions.extend_many("sub", [(1, 1)]))),
    c.CreateQueue: ("create", plain(CommandType.CREATE_QUEUE)),
    c.ChangeQueue: ("create", named("queue.change")),
    c.DeleteQueue: ("delete", plain(CommandType.DELETE_QUEUE, "a.gone")),
    c.PurgeQueue: ("purge", named("queue.purge")),
    c.RemoveMessages: ("purge", named("queue.remove")),
    c.RemoveListed: ("purge", named("message.remove")),
    c.DescribeQueue: ("inspect", plain(CommandType.QUEUE_INFO)),
    c.ListQueues: ("", plain(CommandType.LIST_QUEUES)),
    c.DeleteGroup: ("subscribe", named("group.delete")),
    c.SeekGroup: ("subscribe", named("group.seek")),
    c.FilterGroup: ("subscribe", named("group.filter")),
    c.JoinCursor: ("subscribe", named("group.join")),
    c.CommitCursor: ("subscribe", named("group.commit")),
    c.PlanBatch: ("subscribe", named("group.plan")),
    c.EnterBatch: ("subscribe", named("group.enter")),
    c.RejectAt: ("subscribe", named("group.reject")),
    c.Quarantine: ("subscribe", named("group.quarantine")),
    c.Stage: ("publish transact", staged),
    c.DecideTransaction: ("transact", named("transaction.commit")),
    c.DropStages: ("transact", named("transaction.abort")),
    c.MoveMessages: ("subscribe purge publish", named("queue.move")),
    c.ImportMessages: ("publish", named("queue.import")),
    c.ReplayDead: ("purge publish", named("dead.redrive")),
    c.PurgeDead: ("purge", named("dlq.purge")),
    c.StartJob: SERVERS_OWN,
    c.ChangeJob: SERVERS_OWN,
    c.AdvanceJob: SERVERS_OWN,
    c.ForgetJobs: SERVERS_OWN,
    c.ForgetMade: SERVERS_OWN,
    c.ForgetApplication: ("admin", named("transaction.forget")),
    # No frame of any protocol says these.
    c.MoveStage: SERVERS_OWN,
    c.MoveStaged: SERVERS_OWN,
    c.ChangeAccounts: SERVERS_OWN,
    c.SetFlow: SERVERS_OWN,
    c.Classified: SERVERS_OWN,
    c.CloseSession: SERVERS_OWN,
    c.Classified: SERVERS_OWN,
    c.EndConsumers: SERVERS_OWN,
    c.SetPressure: SERVERS_OWN,
}


def test_every_command_is_expected_to_need_something() -> None:
    assert set(COMMANDS) == set(get_args(c.Command))


ALONE = (c.Subscribe, c.Respond, c.GiveUp, c.Unsubscribe, c.SetCapacity, c.SetShare, c.Settle, c.Extend)
"""Each in a connection of its own: what is pushed, and an error for a frame without an answer, would be taken for the
answer to the next command."""


def outcomes_of(broker: Broker, kind: str, place: str) -> dict[type, str]:
    """The answer to every command that a frame says: see `answer_of`."""
    outcomes = {}
    with broker.connect(kind) as shared:
        for command, (_, provoke) in COMMANDS.items():
            if provoke is not None:
                with broker.connect(kind) if command in ALONE else nullcontext(shared) as peer:
                    outcomes[command] = answer_of(partial(provoke, peer, kind, PLACES[place]))
    return outcomes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["own", "own missing"])
@pytest.mark.long_where(place="own missing", kind=NARROWED)
def test_every_command(broker: Broker, kind: str, place: str) -> None:
    answers = outcomes_of(broker, kind, place)
    assert allowed(answers) == {command for command in answers if needs_of(command) <= held(kind)}
    assert place != "own" or not unknown_queues(answers)


def needs_of(command: type) -> frozenset[str]:
    return frozenset(COMMANDS[command][0].split())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long_where(kind=NARROWED)
def test_no_command_reaches_what_belongs_to_others_or_tells_whether_it_is_there(broker: Broker, kind: str) -> None:
    there, gone = (outcomes_of(broker, kind, place) for place in ("foreign", "foreign missing"))
    forbidden = {command for command in there if needs_of(command)} if kind in LIMITED else set()
    assert there.keys() - allowed(there) == gone.keys() - allowed(gone) == forbidden
    assert {command: gone[command].replace(MISSING, "") for command in forbidden} == {
        command: there[command] for command in forbidden
    }


# -- rights that are taken away from an open connection ---------------------------------------------------------------


@pytest.fixture
def root(asking: Broker) -> Iterator[Peer]:
    """Its user `temp` may do everything to queues `a.*`, until it is revoked."""
    with asking.connect("root") as root:
        root.admin("queue.create", queue=Q)
        root.admin("user.add", user="temp", password="pw")
        root.admin("user.grant", user="temp", queues="a.*", actions=["*"])
        root.admin("user.grant", user="temp", transactions="a-*", actions=["transact"])
        yield root
        root.admin("user.remove", user="temp")


def revoke_everything(root: Peer) -> None:
    root.admin("user.revoke", user="temp", queues="a.*")
    root.admin("user.revoke", user="temp", transactions="a-*")


def grant_everything(root: Peer) -> None:
    root.admin("user.grant", user="temp", queues="a.*", actions=["*"])
    root.admin("user.grant", user="temp", transactions="a-*", actions=["transact"])


NEEDY = [
    command for command, (needs, provoke) in COMMANDS.items() if provoke is not None and needs not in ("", "admin")
]


def test_no_command_passes_after_a_revocation(asking: Broker, root: Peer) -> None:
    for command in NEEDY:
        provoke = COMMANDS[command][1]
        assert provoke is not None
        with asking.connect("temp") as peer:

            def ask(peer: Peer = peer, provoke: Provoke = provoke) -> Any:
                return provoke(peer, "temp", str)

            assert not refused(ask), command
            if command is c.Subscribe:
                continue  # Its subscription ends with the right; the test below is about that.
            revoke_everything(root)
            assert refused(ask), command
        grant_everything(root)


def test_no_operation_passes_after_a_revocation(asking: Broker, root: Peer) -> None:
    needy = {name: it for name, it in EXPECTED.items() if it.needs and not it.needs & {"admin", "self"}}
    with asking.connect("temp") as peer:
        before = {name for name, it in needy.items() if refused(lambda n=name, o=it: send(peer, n, o, "temp"))}  # type: ignore[misc]
        assert before == set()
        revoke_everything(root)
        after = {name for name, it in needy.items() if refused(lambda n=name, o=it: send(peer, n, o, "temp"))}  # type: ignore[misc]
        assert after == set(needy)


def test_no_operation_of_superusers_passes_after_a_demotion(asking: Broker, root: Peer) -> None:
    """Nor one that looks at all queues at once."""
    needy = {name: it for name, it in EXPECTED.items() if "admin" in it.needs}
    needy |= {name: replace(EXPECTED[name], arguments={}) for name in ("dlq.replay", "dlq.purge")}
    root.admin("user.change", user="temp", superuser=True)
    with asking.connect("temp") as peer, asking.connect("temp") as queue_user:
        for superuser in (True, False):
            for name, it in needy.items():
                told = refused(lambda n=name, o=it: send(peer, n, o, "temp"))  # type: ignore[misc]
                assert told != superuser, name
            root.admin("user.change", user="temp", superuser=False)
        assert queue_user.publish(Q, rows_of(1)), "its own rights stay"
        assert refused(lambda: queue_user.publish(elsewhere(Q), rows_of(1)))


def test_a_running_subscription_ends_with_its_right(asking: Broker, root: Peer) -> None:
    with asking.connect("temp") as peer:
        subscribe(peer)
        revoke_everything(root)
        # What waited in the queue was handed out before.
        while (body := peer.receive())[1] == CommandType.DELIVER_MANY:
            pass
        assert body[1] == CommandType.SUBSCRIPTION_ENDED
        ended = extensions.parse_subscription_ended(body)
        assert ended.code == "NOT_AUTHORIZED"
        assert "'subscribe'" in ended.message
        root.publish(Q, rows_of(1))
        peer.send(encode_body(CommandType.PING, "x"))
        assert peer.receive()[1] == CommandType.PONG
        assert refused(lambda: subscribe(peer))


def test_a_removed_user_and_a_revoked_token_are_hung_up_on(asking: Broker) -> None:
    with asking.connect("root") as root:
        root.admin("user.add", user="brief", password="pw")
        made = root.admin("token.create", user="brief")
        with connected(asking.port, "brief", token=made["token"]) as peer, connected(asking.port, "brief") as other:
            root.admin("token.revoke", user="brief", token_id=made["token_id"])
            assert "revoked" in farewell(peer)
            with pytest.raises(Refusal, match="the token is not valid"):
                connected(asking.port, "brief", token=made["token"]).__enter__()
            root.admin("user.remove", user="brief")
            assert "removed" in farewell(other)


def farewell(peer: Peer) -> str:
    """The reason in the goodbye; nothing comes behind it."""
    message = decode_body(peer.receive())
    assert message.type == CommandType.DISCONNECT
    with pytest.raises(ConnectionError):
        peer.receive()
    return message.headers["reason"]


# -- the message-queue protocol ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in TOKENS])
def test_a_topic_needs_subscribe(broker: Broker, kind: str) -> None:
    for place, of in PLACES.items():
        rights = held(kind) if place.startswith("own") or kind not in LIMITED else frozenset()
        text = omq_answer(broker, kind, of(Q))
        assert ("not authorized" in text) == ("subscribe" not in rights), (place, text)


def omq_answer(broker: Broker, kind: str, topic: str) -> str:
    name = kind if kind == "anonymous" else f"{kind}:pw"
    with OmqWire(broker.omq_port, name=name) as wire:
        wire.tell(f"(Subscribe {topic} From_current)\n")
        _, payload = next(wire.frames)
        return payload.decode()


def test_no_topic_is_served_after_a_revocation(asking: Broker, root: Peer) -> None:
    with OmqWire(asking.omq_port, name="temp:pw") as wire:
        wire.subscribe(Q, "From_current")
        revoke_everything(root)
        # What waited in the queue was handed out before.
        kind, payload = next(frame for frame in wire.frames if frame[0] != MESSAGE)
        assert kind == UNSUBSCRIBED, payload
        wire.tell(f"(Subscribe {Q} From_current)\n")
        kind, payload = next(wire.frames)
        assert (kind, b"not authorized" in payload) == (ERROR, True), payload
        grant_everything(root)
        wire.tell(f"(Subscribe {Q} From_current)\n")
        assert next(wire.frames)[0] == SUBSCRIBED
