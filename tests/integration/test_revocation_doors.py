"""A permission that is taken away refuses the next command of every connection that is open, whatever its protocol."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

import vibemq
from tests.integration.access import PASSWORD, cheap_hash
from tests.integration.eventmesh_http import IDENTITY, LOOPBACK
from tests.integration.test_omq_broker import Door
from tests.integration.test_omq_broker import Peer as OmqPeer
from tests.interop.blazingmq.broker import ModelClient
from tests.interop.blazingmq.model_sdk import WRITE
from tests.interop.eventmesh import MeshWire
from tests.waiting import WAIT_S
from vibemq.cli.online import ONCE
from vibemq.config import Auth, Http, Listener, Settings, StorageChoice
from vibemq.errors import NotAuthorized, UserNotFound, VibeMQError
from vibemq.protocols.omq.frames import ACCEPTED, Error, SubscribedFrame

pytestmark = pytest.mark.slow

DOMAIN, NAME = "domain", "queue"
QUEUE = f"{DOMAIN}..{NAME}"
"""As BlazingMQ's clients name theirs in the broker."""
Publishes = Callable[[], bool]
"""Publish once more; whether it was accepted."""


RIGHTS = ["publish", "subscribe", "create"]
ENDS = (VibeMQError, OSError, AssertionError, StopIteration, httpx.HTTPError)
BYTES = {"content-type": "application/octet-stream"}


SETTINGS: dict[str, dict[str, Any]] = {
    "eventmesh": {"answer_late_requests": True},
    "eventmesh-http": {"push_allowed_networks": LOOPBACK},
}


class Doors:
    """A broker in a thread of its own, with a listener of each protocol."""

    def __init__(self, folder: Path, auth: Auth, domains: Sequence[str]) -> None:
        """`domains`: those of BlazingMQ."""
        protocols = ("native", "omq", "blazingmq", "eventmesh", "eventmesh-http")
        self._settings = Settings(
            data_dir=folder,
            storage=StorageChoice(provider="memory"),
            queue_defaults={"durability": "transient"},
            listeners=tuple(Listener(protocol=name, port=0, settings=SETTINGS.get(name, {})) for name in protocols),
            protocols={"blazingmq": {"domains": {domain: {"durability": "transient"} for domain in domains}}},
            http=Http(port=0),
            auth=auth,
        )
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.ports: dict[str, int] = {}

    async def _run(self) -> None:
        try:
            async with vibemq.Broker(settings=self._settings) as broker:
                self._broker, self._loop = broker, asyncio.get_running_loop()
                self.ports = {each.protocol: each.port for each in broker.listening}
                assert broker.http_address is not None
                self.ports["http"] = broker.http_address[1]
                self._ready.set()
                await broker.run()
        finally:
            self._ready.set()

    def __enter__(self) -> "Doors":
        self._thread.start()
        assert self._ready.wait(WAIT_S)
        assert self.ports, "the broker does not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._broker.stop)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the broker does not stop"

    def native(self, user: str) -> vibemq.sync.Client:
        url = f"vibemq://127.0.0.1:{self.ports['native']}"
        return vibemq.sync.connect(url, username=user, password=PASSWORD, reconnect=ONCE)


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    auth = Auth(superuser="root", superuser_password=SecretStr(PASSWORD))
    with Doors(tmp_path_factory.mktemp("doors"), auth, (DOMAIN,)) as doors:
        with doors.native("root") as root:
            root.create_queue(QUEUE)
            root.admin("user.add", user="ann", password_hash=cheap_hash())
        yield doors


def waiting(root: vibemq.sync.Client) -> int:
    return int(root.admin("queue.info", queue=QUEUE)["ready"])


@contextmanager
def native(doors: Doors) -> Iterator[Publishes]:
    with doors.native("ann") as mq:

        def publish() -> bool:
            try:
                mq.publish(QUEUE, b"x")
            except NotAuthorized:
                return False
            return True

        yield publish


@contextmanager
def native_by_the_second_connection(doors: Doors) -> Iterator[Publishes]:
    with native(doors) as publish, doors.native("root") as root:
        while len(root.admin("connections.list", user="ann")) < 2:
            assert publish()
        yield publish


@contextmanager
def omq(doors: Doors) -> Iterator[Publishes]:
    with OmqPeer(Door(doors.ports["omq"]), ACCEPTED + f'(Connect 1 "ann:{PASSWORD}")'.encode()) as peer:

        def subscribe() -> bool:
            peer.say(b"(Subscribe topic From_current)\n")
            while not isinstance(frame := peer.frame(), SubscribedFrame | Error):
                pass
            if isinstance(frame, SubscribedFrame):
                peer.say(b"(Unsubscribe topic)\n")
            return isinstance(frame, SubscribedFrame)

        yield subscribe


@contextmanager
def blazingmq(doors: Doors) -> Iterator[Publishes]:
    with ModelClient(doors.ports["blazingmq"], hello=False) as client:
        client.log_in("ann", PASSWORD)
        client.greet()
        client.ask(client.sdk.open(f"bmq://{DOMAIN}/{NAME}", 0, flags=WRITE))

        def publish() -> bool:
            client.post_and_wait(0, b"x")
            return client.sdk.got.acks[-1][1] == 0

        yield publish


@contextmanager
def eventmesh_tcp(doors: Doors) -> Iterator[Publishes]:
    with MeshWire(doors.ports["eventmesh"]) as wire:
        assert wire.hello("g", "pub", username="ann", password=PASSWORD).code == 0
        yield lambda: wire.publish(QUEUE, "x").code == 0


@contextmanager
def eventmesh_http(doors: Doors) -> Iterator[Publishes]:
    url = f"http://127.0.0.1:{doors.ports['eventmesh-http']}"
    with httpx.Client(base_url=url, timeout=WAIT_S, trust_env=False, auth=("ann", PASSWORD)) as http:

        def publish() -> bool:
            answer: Any = http.post(f"/eventmesh/publish/{QUEUE}", json={}, headers=IDENTITY).json()
            return bool(answer["retCode"] == 0)

        yield publish


@contextmanager
def http_api(doors: Doors) -> Iterator[Publishes]:
    url = f"http://127.0.0.1:{doors.ports['http']}/api/v1"
    with httpx.Client(base_url=url, timeout=WAIT_S, trust_env=False, auth=("ann", PASSWORD)) as http:

        def publish() -> bool:
            answer = http.post(f"/queues/{QUEUE}/messages", content=b"x", headers=BYTES)
            assert answer.is_success or answer.status_code == 403, answer.text
            return answer.is_success

        yield publish


Enter = Callable[[Doors], AbstractContextManager[Publishes]]
DOORS: list[Enter] = [
    native,
    native_by_the_second_connection,
    omq,
    blazingmq,
    eventmesh_tcp,
    eventmesh_http,
    http_api,
]


@pytest.mark.parametrize("enter", DOORS, ids=lambda enter: enter.__name__)
def test_the_next_command_of_an_open_connection_is_refused(doors: Doors, enter: Enter) -> None:
    with doors.native("root") as root:
        root.admin("user.grant", user="ann", queues="*", actions=RIGHTS)
        with enter(doors) as publish:
            assert publish()
            before = waiting(root)
            root.admin("user.revoke", user="ann", queues="*")
            assert not publish()
            assert waiting(root) == before
            # It was the permission, and not the connection, that was missing.
            root.admin("user.grant", user="ann", queues="*", actions=RIGHTS)
            assert publish()


def removed(root: vibemq.sync.Client) -> None:
    root.admin("user.remove", user="ann")


def made_anew(root: vibemq.sync.Client) -> None:
    removed(root)
    root.admin("user.add", user="ann", password_hash=cheap_hash("another"))
    root.admin("user.grant", user="ann", queues="*", actions=RIGHTS)


def password_changed(root: vibemq.sync.Client) -> None:
    root.admin("user.password", user="ann", password="another")


@pytest.mark.parametrize("change", [removed, made_anew, password_changed], ids=lambda change: change.__name__)
@pytest.mark.parametrize("enter", DOORS, ids=lambda enter: enter.__name__)
def test_an_open_connection_has_nothing_done_when_its_login_has_ended(
    doors: Doors, enter: Enter, change: Callable[[vibemq.sync.Client], None]
) -> None:
    with doors.native("root") as root:
        root.admin("user.grant", user="ann", queues="*", actions=RIGHTS)
        try:
            # A connection that was ended says so in its own way, now or when it is closed.
            with suppress(*ENDS), enter(doors) as publish:
                assert publish()
                before = waiting(root)
                change(root)
                done = False
                with suppress(*ENDS):
                    done = publish()
            assert not done
            assert waiting(root) == before
        finally:
            with suppress(UserNotFound):
                removed(root)
            root.admin("user.add", user="ann", password_hash=cheap_hash())
