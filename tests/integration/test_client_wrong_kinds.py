"""Every parameter of every public method, given every kind of value that it does not take: the error names the
parameter and what it was given, or its type, and says what it must be.

The kinds that a parameter takes are read from its annotation, so a new parameter is tested without being listed here.
"""

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import anyio
import pytest

import vibemq
from tests.integration.fake_broker import FakeBroker, broker_and_client
from tests.integration.test_client_sync import address, serving_in_a_thread
from vibemq.client import Client, ClientSettings, Outgoing, Publisher, ReconnectPolicy
from vibemq.errors import VibeMQError
from vibemq.sync.client import Client as BlockingClient
from vibemq.sync.inbox import Inbox

SURROGATE = "\ud800"
VALUES: tuple[Any, ...] = (None, 5, 2.5, "five", b"five", ["five"], {"five": 5}, ("five",), object(), SURROGATE)
FOR_PEOPLE = {"reason"}
"""Texts in which escapes take the place of lone surrogates."""
FALSY_IS_NOTHING = {"reason", "headers"}
SECRETS = {"password", "token"}


def takes(annotation: Any, value: Any) -> bool:
    """Whether a type checker accepts the value for the annotation. Numbers of a wrong size are another matter."""
    origin = get_origin(annotation)
    if value is SURROGATE and annotation is not Any:
        return False
    if annotation in (Any, object) or isinstance(annotation, TypeVar):
        return True
    if origin in (Union, types.UnionType):
        return any(takes(part, value) for part in get_args(annotation))
    if origin is Literal:
        return value in get_args(annotation) if isinstance(value, str) else False
    kind = origin or annotation
    if kind is None or kind is type(None):
        return value is None
    if kind is float:
        return isinstance(value, int | float)
    if kind is Callable or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return False
    if kind is tuple:
        # Of texts, or of exceptions, which none of the values has.
        return isinstance(value, tuple) and get_args(annotation)[:1] == (str,)
    return isinstance(value, kind) and not (issubclass(kind, Mapping) and value)


def wrong_of(function: Any, *, of: Any = None) -> Iterator[tuple[str, Any]]:
    """Parameters and values. `of`: the function that has the parameters, when this one passes options on."""
    hints = get_type_hints(of or function)
    for name, parameter in inspect.signature(of or function).parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        for value in VALUES:
            is_nothing = name in FALSY_IS_NOTHING and not value
            if not (takes(hints[name], value) or is_nothing or (value is SURROGATE and name in FOR_PEOPLE)):
                yield name, value


def complaint(name: str, value: Any, error: Exception | None) -> str:
    """What is wrong with the answer; nothing when it is as it should be."""
    given = f"{name}={ascii(value)[:40]}"
    if error is None:
        return f"{given}: accepted"
    sentence = str(error)
    if not isinstance(error, VibeMQError) and " must " not in sentence:
        return f"{given}: {type(error).__name__}: {sentence!a}"
    if not name_is_told(name, sentence):
        return f"{given}: does not name it: {sentence!a}"
    shown = (repr(value)[:20], repr(value).strip("{}"), type(value).__name__, "surrogate", "is 5;")
    if not any(part in sentence for part in shown):
        return f"{given}: does not say what was given: {sentence!a}"
    if name in SECRETS and isinstance(value, str) and ascii(value) in ascii(sentence):
        return f"{given}: tells a secret"
    return ""


def name_is_told(name: str, sentence: str) -> bool:
    return name in sentence or (name == "messages" and "many bodies" in sentence)


def complaints_of(call: Callable[..., Any], good: dict[str, Any], *, of: Any = None) -> list[str]:
    found = []
    for name, value in wrong_of(call, of=of):
        error = None
        try:
            call(**{**good, name: value})
        except Exception as raised:
            error = raised
        found.append(complaint(name, value, error))
    return [f"{(of or call).__qualname__} {told}" for told in found if told]


async def awaited_complaints_of(call: Callable[..., Any], good: dict[str, Any], *, of: Any = None) -> list[str]:
    found = []
    for name, value in wrong_of(call, of=of):
        error = None
        try:
            with anyio.fail_after(30):
                result = call(**{**good, name: value})
                if inspect.isawaitable(result):
                    await result
        except Exception as raised:
            error = raised
        found.append(complaint(name, value, error))
    return [f"{call.__qualname__} {told}" for told in found if told]


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    with serving_in_a_thread() as broker:
        yield broker


QUEUE: dict[str, Any] = {"queue": "orders"}
BODY: dict[str, Any] = {**QUEUE, "body": 1}
MANY: dict[str, Any] = {**QUEUE, "messages": [1]}
METHODS: dict[str, dict[str, Any]] = {
    "on_connection_change": {},
    "publish": BODY,
    "request": {**BODY, "timeout": 0.001},
    "publish_many": MANY,
    "publisher": QUEUE,
    "subscribe": QUEUE,
    "fetch": {**QUEUE, "timeout": 0.001},
    "create_queue": QUEUE,
    "declare": QUEUE,
    "change_queue": QUEUE,
    "delete_queue": QUEUE,
    "purge_queue": QUEUE,
    "queue_info": QUEUE,
    "admin": {},
}
"""With arguments that are good."""
WITHOUT_ARGUMENTS = {"open", "close", "ping", "flush", "list_queues"}


def methods_of(kind: type[Any]) -> set[str]:
    return {name for name, value in vars(kind).items() if name[0] != "_" and inspect.isfunction(value)}


@pytest.mark.parametrize("kind", [Client, BlockingClient])
def test_every_method_of_a_client_is_here(kind: type[Any]) -> None:
    own_of_forks = {"forked"}
    assert methods_of(kind) - WITHOUT_ARGUMENTS - own_of_forks <= METHODS.keys()


@pytest.mark.anyio
async def test_the_client_names_arguments_of_a_wrong_kind() -> None:
    async with broker_and_client() as (_, mq):
        await mq.create_queue("orders")
        complaints: list[str] = []
        for name, good in METHODS.items():
            complaints += await awaited_complaints_of(getattr(mq, name), good)
        assert not complaints, "\n".join(complaints)
        # Nothing of all that has harmed the connection.
        assert (await mq.publish("orders", 1)).queue == "orders"
        assert mq.reconnects == 0


def test_the_blocking_client_names_them_alike(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        mq.create_queue("orders")
        complaints: list[str] = []
        for name, good in METHODS.items():
            if hasattr(mq, name):
                complaints += complaints_of(getattr(mq, name), good, of=getattr(Client, name))
        with mq.publisher("orders") as out:
            complaints += complaints_of(out.send, {"body": 1}, of=Publisher.send)
        with mq.subscribe("orders") as messages:
            complaints += complaints_of(messages.set_prefetch, {})
            complaints += complaints_of(messages.next_batch, {})
            complaints += complaints_of(messages.drain, {})
            complaints += complaints_of(messages.stop, {})
        assert not complaints, "\n".join(complaints)
        assert mq.publish("orders", 1).queue == "orders"
        assert mq.reconnects == 0


@pytest.mark.anyio
async def test_many_messages_name_them() -> None:
    async with broker_and_client() as (_, mq):

        async def publish(**options: Any) -> None:
            await mq.publish_many("orders", [Outgoing(**options)])

        complaints = await awaited_complaints_of(publish, {"body": 1}, of=Outgoing)
        assert not complaints, "\n".join(complaints)
        for body in (SURROGATE, {SURROGATE: 1}, [SURROGATE]):
            with pytest.raises(VibeMQError, match="surrogates"):
                await mq.publish("orders", body)
        with pytest.raises(VibeMQError, match=r"body is .* surrogates"):
            await mq.publish_many("orders", [SURROGATE], headers={"content-type": "text/plain"})
        assert mq.reconnects == 0


@pytest.mark.anyio
async def test_publishers_subscriptions_and_messages_name_them() -> None:
    async with broker_and_client() as (_, mq), mq.publisher("orders") as out:
        complaints = await awaited_complaints_of(out.send, {"body": 1})
        await out.send(1)
        await out.flush()
        async with mq.subscribe("orders") as messages:
            batch = await messages.next_batch()
            message = batch[0]
            for verb, good in (("retry", {}), ("reject", {}), ("extend", {}), ("process", {}), ("reply", {"body": 1})):
                complaints += await awaited_complaints_of(getattr(message, verb), good)
            for verb in ("retry_all", "reject_all"):
                complaints += await awaited_complaints_of(getattr(batch, verb), {})
            assert not message.settled
            for method in (messages.set_prefetch, messages.next_batch_or_none, messages.drain, messages.stop):
                complaints += await awaited_complaints_of(method, {})
        assert not complaints, "\n".join(complaints)
        assert mq.reconnects == 0


def test_an_inbox_names_them(broker: FakeBroker) -> None:
    with Inbox() as inbox:
        complaints: list[str] = []
        for method in (inbox.add, inbox.remove, inbox.take, inbox.get):
            complaints += complaints_of(method, {})
        assert not complaints, "\n".join(complaints)


def test_options_of_connections_name_them() -> None:
    complaints = complaints_of(vibemq.connect, {"username": None})
    complaints += complaints_of(vibemq.sync.connect, {}, of=vibemq.connect)
    for kind in (ClientSettings, ReconnectPolicy):
        complaints += complaints_of(kind, {})
    assert not complaints, "\n".join(complaints)


def test_a_broker_names_them(tmp_path: Path) -> None:
    complaints = complaints_of(vibemq.Broker, {"data_dir": tmp_path}, of=vibemq.Broker.__init__)
    assert not complaints, "\n".join(complaints)


@pytest.mark.anyio
async def test_a_running_broker_names_them() -> None:
    async with vibemq.Broker(storage="memory") as broker:
        complaints: list[str] = []
        for method in (broker.queue_info, broker.reload, broker.replace_users):
            complaints += await awaited_complaints_of(method, {})
        assert not complaints, "\n".join(complaints)
        assert broker.queue_info("orders") is None
