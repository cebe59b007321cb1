"""Who may do what in each protocol: whatever it can say of a queue, by every kind of user, of an own queue and of
somebody else's, that is there or missing.

A protocol that is added needs a dialect here, and one that learns a command needs a phrase for it.
"""

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, get_args

import httpx
import pytest
from pydantic import SecretStr

from tests.integration.access import PASSWORD, SINGLE, cheap_hash, connected
from tests.integration.cursor_peer import Peer, Refusal, rows_of
from tests.integration.eventmesh_http import IDENTITY
from tests.integration.test_revocation_doors import Doors
from tests.interop.blazingmq.broker import ModelClient
from tests.interop.blazingmq.model_sdk import READ, WRITE
from tests.interop.eventmesh import MeshFrame, MeshWire
from tests.interop.omq import SUBSCRIBED, OmqWire
from tests.waiting import WAIT_S
from vibemq import plugins
from vibemq.auth import matrix
from vibemq.config import Auth, Permission, User
from vibemq.model import commands as c
from vibemq.model.access import Action
from vibemq.protocols.blazingmq.codec.messages import (
    ControlChoice,
    RequestStatus,
    StatusCategory,
)
from vibemq.protocols.eventmesh.http.codes import RequestCode
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.protocols.session import ProtocolPlugin

DOMAINS = ("a", "b")
"""As BlazingMQ's clients name what stands before the dots."""
OWN, OWN_MISSING, FOREIGN, FOREIGN_MISSING = "a..here", "a..gone", "b..here", "b..gone"
RIGHTS: dict[str, frozenset[str]] = {
    "anonymous": frozenset(SINGLE),
    "root": frozenset(SINGLE),
    "owner": frozenset(SINGLE),
    "none": frozenset(),
    **{action: frozenset((action,)) for action in SINGLE},
    "producer": frozenset(("publish", "create")),
    "consumer": frozenset(("subscribe", "create")),
}
"""Of each kind of user on queues `a.*`; the first two may do everything everywhere."""
LIMITED = tuple(RIGHTS)[2:]
NUMBERS = count(1)


class Said(NamedTuple):
    done: bool
    why: str = ""
    """What a refusal says."""


@dataclass(frozen=True)
class Phrase:
    """Something that a client can say of a queue."""

    command: type
    """What it is for; a session may ask for more along with it."""
    say: Callable[[Any, str], Said]
    """(connection, queue)"""
    creates: bool = False
    """A missing queue is made for whoever may."""
    waits: bool = False
    """For a reply. When none has come in time, the message is not there any more."""

    @property
    def needs(self) -> frozenset[str]:
        """Of the rights in RIGHTS."""
        return frozenset(need.action.value for need in matrix.COMMANDS[self.command] if need.action in SINGLE) - (
            {"create"} if self.creates and self.command is not c.CreateQueue else set()
        )


@dataclass(frozen=True)
class Dialect:
    enter: Callable[[int, str], Any]
    """(port, kind of user) -> a context manager of a connection."""
    phrases: Mapping[str, Phrase]
    asked_along: frozenset[type] = frozenset()
    """Commands that the session asks for on its own, and with no answer to the client."""


# -- native -----------------------------------------------------------------------------------------------------------


def told(ask: Callable[[], Any]) -> Said:
    try:
        ask()
    except Refusal as refusal:
        return Said(False, str(refusal))
    return Said(True)


def native_frame(kind: CommandType, payload: bytes = b"") -> Callable[[Peer, str], Said]:
    def say(peer: Peer, queue: str) -> Said:
        peer.send(encode_body(kind, "x", queue, payload))
        return told(peer.answer)

    return say


def native_publish_many(peer: Peer, queue: str) -> Said:
    return told(lambda: peer.publish(queue, rows_of(1)))


def native_stage(peer: Peer, queue: str) -> Said:
    return told(lambda: peer.stage(queue, rows_of(1), app="app", version=1, stage="s"))


NATIVE = Dialect(
    connected,
    {
        "Publish": Phrase(c.Publish, native_frame(CommandType.PUBLISH, b"{}"), creates=True),
        "PublishMany": Phrase(
            c.Publish, lambda peer, queue: told(lambda: peer.publish(queue, rows_of(1))), creates=True
        ),
        "Stage": Phrase(c.Stage, native_stage, creates=True),
        "Subscribe": Phrase(c.Subscribe, native_frame(CommandType.SUBSCRIBE), creates=True),
        "CreateQueue": Phrase(c.CreateQueue, native_frame(CommandType.CREATE_QUEUE), creates=True),
        "DeleteQueue": Phrase(c.DeleteQueue, native_frame(CommandType.DELETE_QUEUE)),
        "QueueInfo": Phrase(c.DescribeQueue, native_frame(CommandType.QUEUE_INFO)),
    },
    # A list shows what the user may see; Connect with a reply inbox subscribes to one of the broker's own queues.
    asked_along=frozenset((c.ListQueues,)),
)


# -- the message queue in OCaml ---------------------------------------------------------------------------------------


def omq_enter(port: int, kind: str) -> OmqWire:
    return OmqWire(port, name=kind if kind == "anonymous" else f"{kind}:{PASSWORD}")


def omq_subscribe(replay: str) -> Callable[[OmqWire, str], Said]:
    def say(wire: OmqWire, topic: str) -> Said:
        wire.tell(f"(Subscribe {topic} {replay})\n")
        kind, payload = next(wire.frames)
        return Said(kind == SUBSCRIBED, payload.decode())

    return say


OMQ = Dialect(
    omq_enter,
    {
        f"Subscribe {replay}": Phrase(c.Subscribe, omq_subscribe(replay), creates=True)
        for replay in ("From_current", "From_beginning")
    },
)


# -- BlazingMQ --------------------------------------------------------------------------------------------------------


def bmq_enter(port: int, kind: str) -> ModelClient:
    client = ModelClient(port, hello=False)
    if kind != "anonymous":
        client.log_in(kind, PASSWORD)
    client.greet()
    return client


def bmq_said(answer: ControlChoice) -> Said:
    if isinstance(answer, RequestStatus):
        return Said(answer.category is StatusCategory.E_SUCCESS, answer.message)
    return Said(True)


def bmq_open(client: ModelClient, queue: str, flags: int) -> Said:
    domain, _, name = queue.partition("..")
    return bmq_said(client.ask(client.sdk.open(f"bmq://{domain}/{name}", 0, flags=flags)))


def bmq_post(client: ModelClient, queue: str) -> Said:
    opened = bmq_open(client, queue, WRITE)
    if opened.done:
        client.post_and_wait(0, b"x")
        assert client.sdk.got.acks[-1][1] == 0
    return opened


def bmq_read(client: ModelClient, queue: str) -> Said:
    opened = bmq_open(client, queue, READ)
    return bmq_said(client.ask(client.sdk.configure(0))) if opened.done else opened


BLAZINGMQ = Dialect(
    bmq_enter,
    {
        "open to write, put": Phrase(c.Publish, bmq_post, creates=True),
        "open to read, configure": Phrase(c.Subscribe, bmq_read, creates=True),
    },
    asked_along=frozenset((c.CreateQueue,)),
)


# -- EventMesh over TCP -----------------------------------------------------------------------------------------------


def mesh_enter(port: int, kind: str) -> MeshWire:
    wire = MeshWire(port)
    login = {} if kind == "anonymous" else {"username": kind, "password": PASSWORD}
    assert wire.hello(f"g{next(NUMBERS)}", **login).code == 0
    return wire


def mesh_said(frame: MeshFrame) -> Said:
    # A request that nobody answers was published.
    return Said(frame.code == 0 or "NO_REPLY" in frame.text, frame.text)


def mesh_request(wire: MeshWire, topic: str) -> Said:
    message = {"topic": topic, "properties": {"ttl": "1"}, "body": "x"}
    how = {"answer": "RESPONSE_TO_CLIENT", "protocol": "eventmeshmessage"}
    return mesh_said(wire.ask("REQUEST_TO_SERVER", message, **how))


EVENTMESH = Dialect(
    mesh_enter,
    {
        "publish": Phrase(c.Publish, lambda wire, topic: mesh_said(wire.publish(topic, "x")), creates=True),
        "broadcast": Phrase(
            c.Publish,
            lambda wire, topic: mesh_said(wire.publish(topic, "x", "BROADCAST_MESSAGE_TO_SERVER")),
            creates=True,
        ),
        "request": Phrase(c.Publish, mesh_request, creates=True, waits=True),
        "subscribe": Phrase(c.Subscribe, lambda wire, topic: mesh_said(wire.subscribe(topic)), creates=True),
        "subscribe to broadcasts": Phrase(
            c.Subscribe, lambda wire, topic: mesh_said(wire.subscribe(topic, "BROADCASTING")), creates=True
        ),
    },
    asked_along=frozenset((c.CreateQueue, c.DescribeQueue)),
)


# -- EventMesh over HTTP ----------------------------------------------------------------------------------------------

URL = "http://127.0.0.1:65535/"
"""Nobody is there."""


@contextmanager
def http_enter(port: int, kind: str) -> Iterator[httpx.Client]:
    auth = None if kind == "anonymous" else (kind, PASSWORD)
    url = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=url, timeout=WAIT_S, trust_env=False, verify=False, auth=auth, headers=IDENTITY) as http:
        yield http


def http_said(answer: httpx.Response) -> Said:
    about = answer.json()
    text = str(about.get("retMsg") or about.get("retMessage"))
    return Said(about["retCode"] == 0 or "waiting rr msg error" in text, text)


def http_code(code: RequestCode, **fields: str) -> Callable[[httpx.Client, str], Said]:
    def say(http: httpx.Client, topic: str) -> Said:
        given = {"bizseqno": "1" * 30, "uniqueid": "2" * 30, "producergroup": "pg", "topic": topic, "content": "x"}
        data = given | {name: value.replace("TOPIC", topic) for name, value in fields.items()}
        return http_said(http.post("/", headers={"code": str(code.value)}, data=data))

    return say


def http_subscribe(http: httpx.Client, topic: str) -> Said:
    """And leave again, or the broker would go on looking for the topic when it is gone."""
    item = f'[{{"topic":"{topic}","mode":"CLUSTERING","type":"ASYNC"}}]'
    about = {"url": URL, "consumerGroup": f"g{next(NUMBERS)}"}
    said = http_code(RequestCode.SUBSCRIBE, **about | {"topic": item})(http, topic)
    if said.done:
        assert http_code(RequestCode.UNSUBSCRIBE, **about | {"topic": f'["{topic}"]'})(http, topic).done
    return said


def http_subscribe_by_path(http: httpx.Client, topic: str) -> Said:
    item = {"topic": topic, "mode": "CLUSTERING", "type": "ASYNC"}
    about: dict[str, Any] = {"url": URL, "consumerGroup": f"g{next(NUMBERS)}"}
    said = http_said(http.post("/eventmesh/subscribe/local", json=about | {"topic": [item]}))
    if said.done:
        assert http_said(http.post("/eventmesh/unsubscribe/local", json=about | {"topic": [topic]})).done
    return said


EVENT = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t", "content-type": "text/plain"}
BATCH = '[{"msg":"x","topic":"TOPIC"}]'

EVENTMESH_HTTP = Dialect(
    http_enter,
    {
        "104": Phrase(c.Publish, http_code(RequestCode.MSG_SEND_ASYNC, ttl=""), creates=True),
        "101": Phrase(c.Publish, http_code(RequestCode.MSG_SEND_SYNC, ttl="1"), creates=True, waits=True),
        "102": Phrase(c.Publish, http_code(RequestCode.MSG_BATCH_SEND, contents=BATCH), creates=True),
        "107": Phrase(c.Publish, http_code(RequestCode.MSG_BATCH_SEND_V2, msg="x", ttl=""), creates=True),
        "publish/": Phrase(
            c.Publish,
            lambda http, topic: http_said(http.post(f"/eventmesh/publish/{topic}", json={})),
            creates=True,
        ),
        "event": Phrase(
            c.Publish,
            lambda http, topic: http_said(http.post(f"/eventmesh/publish/{topic}", content=b"x", headers=EVENT)),
            creates=True,
        ),
        "206": Phrase(c.Subscribe, http_subscribe, creates=True),
        "subscribe/local": Phrase(c.Subscribe, http_subscribe_by_path, creates=True),
        "topic/create": Phrase(
            c.CreateQueue,
            lambda http, topic: http_said(http.post("/eventmesh/topic/create", json={"topic": topic})),
            creates=True,
        ),
        "topic/delete": Phrase(
            c.DeleteQueue, lambda http, topic: http_said(http.post("/eventmesh/topic/delete", json={"topic": topic}))
        ),
    },
    asked_along=frozenset((c.DescribeQueue,)),
)


DIALECTS: dict[str, Dialect] = {
    "native": NATIVE,
    "omq": OMQ,
    "blazingmq": BLAZINGMQ,
    "eventmesh": EVENTMESH,
    "eventmesh-http": EVENTMESH_HTTP,
}
PROTOCOLS = plugins.names("protocols")


def test_every_protocol_has_a_dialect() -> None:
    assert set(DIALECTS) == set(PROTOCOLS)


def commands_in(folder: Path) -> set[type]:
    """Those that the sources make."""
    by_name = {command.__name__: command for command in get_args(c.Command)}
    calls = (
        node.func.id
        for source in folder.rglob("*.py")
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    )
    return {by_name[name] for name in calls if name in by_name}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_command_that_a_protocol_can_say_has_a_phrase(protocol: str) -> None:
    plugin: ProtocolPlugin = plugins.find("protocols", protocol)
    module = inspect.getmodule(plugin.create or plugin.settings)
    assert module is not None
    assert module.__file__
    dialect = DIALECTS[protocol]
    said = {phrase.command for phrase in dialect.phrases.values()} | dialect.asked_along
    made = commands_in(Path(module.__file__).parent)
    assert made, "they are looked for in the wrong place"
    assert {
        command for command in made if any(need.action is not Action.OWN for need in matrix.COMMANDS[command])
    } == said


# -- the walk ---------------------------------------------------------------------------------------------------------


def everybody() -> Auth:
    users = {
        name: User(
            password_hash=SecretStr(cheap_hash()),
            permissions=(
                *([Permission.model_validate({"queues": "a.*", "actions": sorted(rights)})] if rights else []),
                Permission.model_validate({"transactions": "*", "actions": ["transact"]}),
            ),
        )
        for name, rights in RIGHTS.items()
        if name in LIMITED
    }
    return Auth(users=users | {"root": User(password_hash=SecretStr(cheap_hash()), superuser=True)})


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with Doors(tmp_path_factory.mktemp("asking"), everybody(), DOMAINS) as doors:
        yield doors


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with Doors(tmp_path_factory.mktemp("trusting"), Auth(), DOMAINS) as doors:
        yield doors


def info_of(chief: Peer, queue: str) -> dict[str, Any] | None:
    """None: it is missing."""
    found: dict[str, Any] | None = chief.admin("queue.info", queue=queue)
    return found


def put_in_place(chief: Peer, queue: str, *, there: bool) -> None:
    if info_of(chief, queue) is not None:
        chief.admin("queue.delete", queue=queue)
    if there:
        chief.admin("queue.create", queue=queue)


@pytest.mark.parametrize("kind", RIGHTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_protocol_can_say(request: pytest.FixtureRequest, protocol: str, kind: str) -> None:
    chief_is = "anonymous" if kind == "anonymous" else "root"
    doors: Doors = request.getfixturevalue("trusting" if kind == "anonymous" else "asking")
    with connected(doors.ports["native"], chief_is) as chief:
        for name, phrase in DIALECTS[protocol].phrases.items():
            refusals = {}
            for queue in (OWN, OWN_MISSING, FOREIGN, FOREIGN_MISSING):
                there = queue in (OWN, FOREIGN)
                put_in_place(chief, queue, there=there)
                rights = RIGHTS[kind] if queue in (OWN, OWN_MISSING) or kind not in LIMITED else frozenset()
                with DIALECTS[protocol].enter(doors.ports[protocol], kind) as connection:
                    said = phrase.say(connection, queue)
                    check(phrase, said, rights, there=there, after=info_of(chief, queue))
                refusals[queue] = said.why
            if kind in LIMITED:
                assert refusals[FOREIGN_MISSING].replace(FOREIGN_MISSING, FOREIGN) == refusals[FOREIGN], name


def check(phrase: Phrase, said: Said, rights: frozenset[str], *, there: bool, after: dict[str, Any] | None) -> None:
    may = phrase.needs <= rights
    deletes = phrase.command is c.DeleteQueue
    denied = any(f"does not have the permission {need!r}" in said.why for need in phrase.needs)
    assert denied == (not may), said
    if there:
        assert said.done == may, said
        assert (after is None) == (deletes and may), said
        if after is not None:
            assert may or not (after["ready"] or after["consumers"]), (said, after)
            assert after["ready"] or phrase.command is not c.Publish or phrase.waits or not may, (said, after)
        return
    assert after is None or (phrase.creates and "create" in rights), (said, after)
    if phrase.creates:
        assert said.done == (may and "create" in rights), said
        assert not said.done or after is not None, said
    else:
        assert deletes or phrase.command is c.DescribeQueue or not said.done, said
