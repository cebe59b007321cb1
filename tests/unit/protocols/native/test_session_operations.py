"""Requests about queues, and operations by name."""

import orjson
import pytest

from tests.unit.protocols.native.native_peer import Peer, admin, bulk, frame, plain
from vibemq.errors import QueueExists, QueueNotFound
from vibemq.model import commands as c
from vibemq.model.effects import Counted, QueuePage
from vibemq.model.options import Overflow, QueueOptions
from vibemq.model.shared.queue_info import GroupInfo, QueueInfo
from vibemq.protocols.native.codec.wire import CommandType as T
from vibemq.protocols.native.codec.wire import WireMessage
from vibemq.protocols.session import OperationRequest
from vibemq.testing.session_conformance import NOW


def described(name: str = "q") -> QueueInfo:
    groups = [GroupInfo("g", True, 1, 2, 0, 0, 1)]
    return QueueInfo(name, 1, "ab", QueueOptions(), NOW, 4, 0, 0, 0, 2, 0, 1, 5, NOW, groups, {"published": 4})


def test_queue_commands_are_answered_by_their_own_type() -> None:
    peer = plain()
    create = peer.ask(T.CREATE_QUEUE, "1", "q", b'{"maxQueueSize":5,"overflowStrategy":1}')
    assert isinstance(create, c.CreateQueue)
    assert create.options is not None
    assert (create.options.max_messages, create.options.overflow) == (5, Overflow.DROP_NEWEST)
    assert peer.answer(create, None) == WireMessage(T.CREATE_QUEUE, "1", "q")
    delete = peer.ask(T.DELETE_QUEUE, "2", "q")
    assert isinstance(delete, c.DeleteQueue)
    assert peer.answer(delete, None) == WireMessage(T.DELETE_QUEUE, "2", "q")
    info = peer.ask(T.QUEUE_INFO, "3", "q")
    assert orjson.loads(peer.answer(info, described()).payload or b"")["deliveryMode"] == 0
    names = peer.ask(T.LIST_QUEUES, "4")
    assert peer.answer(names, QueuePage(["a", "b"], [])).payload == b'["a","b"]'


def test_an_unknown_queue_has_an_answer_without_payload() -> None:
    peer = plain()
    for result in (None, QueueNotFound("q")):
        assert peer.answer(peer.ask(T.QUEUE_INFO, "3", "q"), result) == WireMessage(T.QUEUE_INFO, "3", "q")


def test_bad_options_do_not_close_the_connection() -> None:
    peer = plain()
    assert list(peer.hear(frame(T.CREATE_QUEUE, "1", "q", b'{"mode":99}'))) == []
    assert (peer.one().error_code, peer.session.closing) == ("INVALID_OPTIONS", False)


@pytest.mark.parametrize("connect", [{}, {"supported-extensions": "batch/1"}])
def test_what_describes_a_queue_or_a_user_is_small(connect: dict[str, str]) -> None:
    """To read a megabyte of it would hold up everybody for tens of milliseconds."""
    peer = Peer(connect=connect)
    queue = b'{"maxQueueSize":5,"x":[' + b"1," * 1_020 + b"1]}"
    assert isinstance(peer.ask(T.CREATE_QUEUE, "1", "q", queue), c.CreateQueue)
    for kind, code in ((T.CREATE_QUEUE, "INVALID_OPTIONS"), (T.ADMIN_GRANT_PERMISSION, "INVALID_PAYLOAD")):
        assert list(peer.hear(frame(kind, "2", "q", queue[:-2] + b",1,1,1]}"))) == []
        refusal = peer.one()
        assert (refusal.error_code, "more than 1,024 values" in (refusal.error_message or "")) == (code, True)


def test_an_answer_too_large_for_a_frame_becomes_an_error() -> None:
    peer = plain()
    queues = QueuePage(["q" * 200 + str(number) for number in range(6_000)], [])
    assert peer.answer(peer.ask(T.LIST_QUEUES, "4"), queues).error_code == "MESSAGE_TOO_LARGE"


def test_operations_are_handed_over_by_name() -> None:
    [request] = bulk().hear(admin("queue.remove", queue="q", runs=[[5, 6], [1, 2]]))
    assert isinstance(request, OperationRequest)
    assert (request.name, request.arguments) == ("queue.remove", {"queue": "q", "runs": [[5, 6], [1, 2]]})


def test_arguments_may_have_very_many_numbers_and_texts_that_look_like_json() -> None:
    runs = [[number, number + 1] for number in range(60_000)]
    [request] = bulk().hear(admin("queue.remove", queue='{"a":{"b":1},"c":[]}' * 2_000, runs=runs))
    assert isinstance(request, OperationRequest)
    assert request.arguments["runs"] == runs


def test_admin_results_are_json() -> None:
    peer = bulk()
    for data, result, expected in (
        (admin("queue.delete", queue="q"), None, {}),
        (admin("queue.purge", queue="q"), Counted(5), {"count": 5}),
        (admin("queue.info", queue="q"), None, None),
        (admin("queue.info", queue="q"), QueueNotFound("q"), None),
        (admin("broker.info"), {"version": "9"}, {"version": "9"}),
    ):
        [request] = peer.hear(data)
        answer = peer.answer(request, result)
        assert (answer.type, answer.id, orjson.loads(answer.payload or b"")) == (T.ADMIN, "a", expected)
    [request] = peer.hear(admin("queue.list"))
    page = orjson.loads(peer.answer(request, QueuePage(["q"], [described()])).payload or b"")
    [info] = page["queues"]
    assert (info["name"], info["options"]["overflow"], info["groups"][0]["name"]) == ("q", 1, "g")
    assert page["next"] is None
    [request] = peer.hear(admin("queue.create", queue="q", must_match=True))
    assert peer.answer(request, QueueExists("q", "mode")).error_code == "QUEUE_EXISTS"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(T.ADMIN, "a"), "INVALID_PAYLOAD"),
        (frame(T.ADMIN, "a", payload=b"[]"), "INVALID_PAYLOAD"),
        (frame(T.ADMIN, "a", payload=b"\xff"), "INVALID_PAYLOAD"),
        (admin(5), "INVALID_PAYLOAD"),
        # To read so many objects would hold up everybody for tens of milliseconds.
        (admin("queue.info", queue=32_768 * [{"a": 1}]), "INVALID_PAYLOAD"),
        (admin("queue.info", queue=131_073 * [[]]), "INVALID_PAYLOAD"),
    ],
)
def test_bad_admin_requests_are_refused(data: bytes, code: str) -> None:
    peer = bulk()
    assert list(peer.hear(data)) == []
    assert (peer.one().error_code, peer.session.closing) == (code, False)
