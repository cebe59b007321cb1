"""BlazingMQ's clients on a broker that has users: who may come in, and what they may do."""

from collections.abc import Iterator

import pytest

from tests.integration.access import connected
from tests.interop.blazingmq.broker import PRIORITY, BlazingmqBroker, ModelClient
from tests.interop.blazingmq.model_sdk import READ, WRITE
from tests.waiting import wait_until
from vibemq.auth.passwords import hash_password
from vibemq.protocols.blazingmq.codec.control import decode_authentication, decode_negotiation, encode_authentication
from vibemq.protocols.blazingmq.codec.events import ControlCodec, Event, EventReader
from vibemq.protocols.blazingmq.codec.messages import (
    AuthenticationRequest,
    AuthenticationResponse,
    BrokerResponse,
    ControlChoice,
    RequestStatus,
    StatusCategory,
)

pytestmark = pytest.mark.slow

USERS = """
[auth.users.root]
password_hash = "HASH"
superuser = true
[auth.users.reader]
password_hash = "HASH"
permissions = [{queues = "bmq.test.mmap.priority..*", actions = ["subscribe"]}]
[auth.users.writer]
password_hash = "HASH"
permissions = [{queues = "bmq.test.mmap.priority..made", actions = ["publish"]}]
"""
MADE = f"bmq://{PRIORITY}/made"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlazingmqBroker]:
    users = USERS.replace("HASH", hash_password("pass:word"))
    process = BlazingmqBroker(tmp_path_factory.mktemp("users"), toml=users)
    process.start()
    yield process
    process.kill()
    process.wait()


def read_event(client: ModelClient) -> Event:
    reader = EventReader(event_bytes_max=10_000, control_bytes_max=10_000)
    while not (events := reader.read()):
        data = client.socket.recv(10_000)
        assert data
        reader.receive_data(data)
    return events[0]


def logged_in(broker: BlazingmqBroker, user: str) -> ModelClient:
    client = ModelClient(broker.bmq_port, hello=False)
    request = AuthenticationRequest(mechanism="basic", data=f"{user}:pass:word".encode())
    client.say(encode_authentication(ControlCodec.BER, request))
    answer = decode_authentication(read_event(client))
    assert isinstance(answer, AuthenticationResponse)
    assert answer.status.category is StatusCategory.E_SUCCESS
    client.greet()
    return client


def category(answer: ControlChoice) -> StatusCategory:
    return answer.category if isinstance(answer, RequestStatus) else StatusCategory.E_SUCCESS


def test_who_sends_no_credentials_is_told_so(broker: BlazingmqBroker) -> None:
    with ModelClient(broker.bmq_port, hello=False) as client:
        client.say(client.sdk.hello())
        answer = decode_negotiation(read_event(client))
        assert isinstance(answer, BrokerResponse)
        assert answer.result.category is StatusCategory.E_REFUSED
        assert "authentication" in answer.result.message
        assert client.at_its_end() == b""


@pytest.mark.parametrize(
    "request_",
    [
        AuthenticationRequest(mechanism="basic", data=b"root:wrong"),
        AuthenticationRequest(mechanism="basic", data=b"nobody:pass:word"),
        AuthenticationRequest(mechanism="anonymous"),
    ],
)
def test_wrong_credentials_are_refused(broker: BlazingmqBroker, request_: AuthenticationRequest) -> None:
    with ModelClient(broker.bmq_port, hello=False) as client:
        # What is sent ahead is not looked at.
        client.say(encode_authentication(ControlCodec.BER, request_) + client.sdk.hello())
        answer = decode_authentication(read_event(client))
        assert isinstance(answer, AuthenticationResponse)
        assert answer.status.category is StatusCategory.E_REFUSED
        assert client.at_its_end() == b""


def test_permissions_decide_what_a_client_may_open(broker: BlazingmqBroker) -> None:
    with (
        logged_in(broker, "root") as root,
        logged_in(broker, "reader") as reader,
        logged_in(broker, "writer") as writer,
    ):
        before = writer.ask(writer.sdk.open(MADE, 0, flags=WRITE))
        assert category(before) is StatusCategory.E_UNKNOWN, "it is not there, and a writer may not create it"
        root.ask(root.sdk.open(MADE, 0, flags=WRITE))
        assert category(writer.ask(writer.sdk.open(MADE, 0, flags=WRITE))) is StatusCategory.E_SUCCESS
        writer.post_and_wait(0, b"1")
        other = writer.ask(writer.sdk.open(f"bmq://{PRIORITY}/other", 1, flags=WRITE))
        assert category(other) is StatusCategory.E_REFUSED
        assert category(reader.ask(reader.sdk.open(MADE, 0, flags=WRITE))) is StatusCategory.E_REFUSED
        reader.open_reader(MADE, 1)
        assert reader.pushed(1) == [b"1"]
        writer.ask(writer.sdk.open(MADE, 0, flags=READ))
        assert category(writer.ask(writer.sdk.configure(0))) is StatusCategory.E_REFUSED


def test_only_what_a_client_has_changed_is_audited(broker: BlazingmqBroker) -> None:
    uri = f"bmq://{PRIORITY}/audited"
    with logged_in(broker, "root") as root:
        root.ask(root.sdk.open(uri, 0, flags=WRITE))
        root.ask(root.sdk.open(f"bmq://{PRIORITY}/audited-too", 1, flags=WRITE))
    for user in ("root", "reader"):
        with logged_in(broker, user) as client:
            assert category(client.ask(client.sdk.open(uri, 0, flags=READ))) is StatusCategory.E_SUCCESS
    with connected(broker.port, "root", password="pass:word") as root_admin:

        def told() -> list[tuple[str, str, str]]:
            found = root_admin.admin("audit.list", operation="queue", order="oldest")["records"]
            return [(r["user"], r["protocol"], r["outcome"]) for r in found if "audited" in r["resource"]]

        wait_until(lambda: len(told()) >= 2)
        assert told() == [("root", "blazingmq", "done")] * 2
        assert not [
            r for r in root_admin.admin("audit.list", user="reader")["records"] if not r["operation"].startswith("log")
        ]
