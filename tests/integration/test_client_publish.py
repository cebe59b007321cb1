"""Publishing through the client against a broker in memory, on asyncio and trio."""

import pickle
import ssl
from pathlib import Path
from typing import Any

import anyio
import pytest

import vibemq
from tests.integration.fake_broker import FakeBroker, broker_and_client, give_little_time
from tests.waiting import until
from vibemq.client import Outgoing, ReconnectPolicy
from vibemq.errors import (
    AuthFailed,
    ConnectionLost,
    LocalProtocolError,
    MessageTooLarge,
    NotConnected,
    PublishFailed,
    PublishRefused,
    QueueFull,
    RequestTimeout,
)
from vibemq.model.rows import RowView
from vibemq.protocols.native.codec.wire import CommandType

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_publish_is_confirmed_with_its_place_in_the_queue() -> None:
    async with broker_and_client() as (broker, mq):
        first = await mq.publish("orders", {"id": 1}, id="mine", headers={"a": "b"})
        second = await mq.publish("orders", b"\x00raw")
        assert (first, second.sequence) == (("orders", 1, False), 2)
        row = RowView(broker.queue("orders").rows[1])
        assert (row.message_id, row.payload, row.headers) == ("mine", b'{"id":1}', {"a": "b"})
        assert RowView(broker.queue("orders").rows[2]).headers == {"content-type": "application/octet-stream"}


async def test_publishes_of_one_turn_share_a_frame() -> None:
    async with broker_and_client() as (broker, mq):
        receipts: list[int] = []

        async def publish(number: int) -> None:
            receipts.append((await mq.publish("orders", number)).sequence)

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(publish, number)
        assert sorted(receipts) == list(range(1, 201))
        assert broker.frames.count(CommandType.PUBLISH_MANY) <= 3


async def test_a_broker_that_reads_no_columns_is_told_extras_in_json() -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish_many("orders", range(20), delay=2)
        await mq.publish_many("orders", [Outgoing(number, ttl=1 + number) for number in range(20)])
        common = {number: {"delay_ms": 2_000} for number in range(20)}
        assert broker.extras == [common, {number: {"ttl_ms": 1_000 + 1_000 * number} for number in range(20)}]


async def test_many_messages_are_pipelined_and_keep_their_order() -> None:
    async with broker_and_client() as (broker, mq):
        report = await mq.publish_many("orders", (b"%d" % n for n in range(5_000)))
        assert [receipt.sequence for receipt in report] == list(range(1, 5_001))
        assert report[-1].sequence == 5_000
        assert [RowView(row).payload for row in broker.queue("orders").rows.values()] == [
            b"%d" % n for n in range(5_000)
        ]


async def test_partial_refusals_say_which_and_why() -> None:
    async with broker_and_client() as (broker, mq):
        broker.refuse_bodies = b"bad"
        with pytest.raises(PublishRefused) as caught:
            await mq.publish_many("orders", ["good", "bad", "good"])
        assert list(caught.value.refused) == [1]
        assert isinstance(caught.value.refused[1], QueueFull)
        assert caught.value.code == "QUEUE_FULL"
        report = await mq.publish_many("orders", ["bad", "good"], return_refused=True)
        assert (report.accepted, report[1].sequence) == (1, 3)
        with pytest.raises(QueueFull):
            report[0]
        # A worker of a process pool may return it.
        copied = pickle.loads(pickle.dumps(report))
        assert (copied[1], copied.accepted, str(copied.refused[0])) == (report[1], 1, str(report.refused[0]))
        with pytest.raises(QueueFull):
            copied[0]


async def test_a_refusal_of_everything_is_its_own_error() -> None:
    async with broker_and_client() as (broker, mq):
        broker.refuse["orders"] = ("QUEUE_FULL", "no room")
        with pytest.raises(QueueFull, match="no room"):
            await mq.publish("orders", 1)
        with pytest.raises(QueueFull):
            await mq.publish_many("orders", [1, 2, 3])


async def test_a_dedup_id_gives_the_known_sequence() -> None:
    async with broker_and_client() as (_, mq):
        await mq.publish("orders", 1, dedup_id="once")
        again = await mq.publish("orders", 1, dedup_id="once")
        assert again == ("orders", 1, True)
        report = await mq.publish_many("orders", [Outgoing(2), Outgoing(1, dedup_id="once"), Outgoing(3)])
        assert list(report) == [("orders", 2, False), ("orders", 1, True), ("orders", 3, False)]


async def test_bodies_that_cannot_travel_are_refused_here() -> None:
    async with broker_and_client() as (broker, mq):
        with pytest.raises(LocalProtocolError, match="cannot be published"):
            await mq.publish("orders", object())
        with pytest.raises(MessageTooLarge):
            await mq.publish("orders", b"x" * 1_048_576)
        assert broker.unsettled("orders") == 0


async def test_a_lost_confirm_is_sent_again_without_doubling() -> None:
    async with broker_and_client() as (broker, mq):
        broker.swallow_acks = 2
        receipt = await mq.publish("orders", "precious")
        assert receipt == ("orders", 1, False)
        assert broker.unsettled("orders") == 1
        assert mq.reconnects == 2
        broker.swallow_acks = 1
        report = await mq.publish_many("orders", range(100), dedup=True)
        assert [r.sequence for r in report] == list(range(2, 102))
        assert broker.unsettled("orders") == 101


async def test_publishing_survives_restarts_of_the_broker() -> None:
    async with broker_and_client() as (broker, mq), anyio.create_task_group() as tasks:
        moments = {number: anyio.Event() for number in range(60, 360, 60)}
        sequences: list[int] = []

        async def restart() -> None:
            for moment in moments.values():
                await moment.wait()
                await broker.stop()
                await until(lambda: not mq.is_connected)
                await broker.start(tasks)

        async with anyio.create_task_group() as trouble:
            trouble.start_soon(restart)
            for number in range(400):
                if number in moments:
                    moments[number].set()
                sequences.append((await mq.publish("orders", number)).sequence)
        assert sequences == list(range(1, 401))
        await until(lambda: mq.reconnects == len(moments))
        tasks.cancel_scope.cancel()


async def test_back_pressure_bounds_what_is_unconfirmed() -> None:
    async with broker_and_client(max_unconfirmed=100, command_timeout=60) as (broker, mq):
        broker.silent = True
        taken = 0

        def bodies() -> Any:
            nonlocal taken
            for taken in range(1, 100_001):  # noqa: B007  # counts what was asked for
                yield b"x" * 10_000

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mq.publish_many, "orders", bodies())
            await anyio.wait_all_tasks_blocked()
            # Asking in vain takes as long as the client may go on reading bodies: it must not.
            for _ in range(3):
                before = taken
                await anyio.wait_all_tasks_blocked()
            assert taken == before
            assert taken <= 200
            assert mq.unconfirmed <= 200
            tasks.cancel_scope.cancel()
        broker.silent = False


async def test_what_a_broker_refuses_while_it_stops_goes_to_the_next_connection() -> None:
    async with broker_and_client() as (broker, mq), anyio.create_task_group() as tasks:
        broker.refuse["orders"] = ("SHUTTING_DOWN", "the broker stops")

        async def come_back() -> None:
            await until(lambda: broker.accepted >= 2)
            broker.refuse.clear()

        tasks.start_soon(come_back)
        assert (await mq.publish("orders", 1)).sequence == 1


async def test_a_publisher_streams_and_tells_about_refusals() -> None:
    async with broker_and_client() as (broker, mq):
        async with mq.publisher("orders") as out:
            confirms = [await out.send(n) for n in range(2_000)]
            assert (await confirms[-1]).sequence == 2_000
            assert await out.flush() == 2_000
        assert broker.frames.count(CommandType.PUBLISH_MANY) <= 10
        broker.refuse_bodies = b"bad"
        out = mq.publisher("orders")
        for body in ["good", "bad", "good"]:
            await out.send(body)
        with pytest.raises(PublishRefused) as caught:
            await out.flush()
        assert list(caught.value.refused) == [1]


async def test_a_silent_broker_is_found_out_and_the_publish_sent_again() -> None:
    async with broker_and_client(keep_alive=0.2) as (broker, mq), anyio.create_task_group() as tasks:
        give_little_time(mq, 0.5)
        broker.silent = True
        receipts: list[Any] = []

        async def publish() -> None:
            receipts.append(await mq.publish("orders", 1))

        tasks.start_soon(publish)
        await until(lambda: broker.accepted >= 2)
        broker.silent = False
        await until(lambda: receipts)
        assert receipts == [("orders", 1, False)]


async def test_nobody_there_is_told_at_once() -> None:
    with pytest.raises(NotConnected, match="cannot connect"):
        async with vibemq.connect("vibemq://127.0.0.1:1"):
            raise AssertionError("there is no broker")


async def test_a_peer_that_never_shakes_hands_is_given_up() -> None:
    broker = FakeBroker()
    async with anyio.create_task_group() as tasks:
        await broker.start(tasks)
        broker.silent = True
        with pytest.raises(RequestTimeout, match=r"handshake|answer within"):
            async with vibemq.connect(f"vibemq://127.0.0.1:{broker.port}", command_timeout=0.5):
                raise AssertionError("nobody shook hands")
        tasks.cancel_scope.cancel()


async def test_wrong_credentials_are_told_at_once() -> None:
    with pytest.raises(AuthFailed, match="wrong user"):
        async with broker_and_client(username="me", password="wrong"):
            raise AssertionError("the broker refused")


async def test_a_policy_that_gives_up_fails_what_waits() -> None:
    policy = ReconnectPolicy(max_attempts=2, initial_delay=0.001, max_delay=0.002)
    async with broker_and_client(reconnect=policy) as (broker, mq):
        await broker.stop()
        with pytest.raises(NotConnected, match="gave up"):
            await mq.publish("orders", 1)
        with pytest.raises(NotConnected, match="gave up"):
            await mq.ping()


async def test_connections_that_are_made_and_lost_are_no_failed_attempts() -> None:
    policy = ReconnectPolicy(max_attempts=1, initial_delay=0.001, max_delay=0.002)
    async with broker_and_client(reconnect=policy) as (_, mq):
        for lost in range(1, 4):
            mq._supervisor._connection.end("of the test")  # type: ignore[union-attr]
            await until(lambda lost=lost: mq.is_connected and mq.reconnects == lost)
        await mq.publish("orders", 1)


async def test_a_long_absence_fails_what_waits_but_dialling_goes_on() -> None:
    policy = ReconnectPolicy(initial_delay=0.01, max_delay=0.02, offline_timeout=0.1)
    async with broker_and_client(reconnect=policy) as (broker, mq):
        await broker.stop()
        await until(lambda: "cannot connect" in mq._link.unreachable)
        why = rf"within 0\.1 s \(cannot connect to 127\.0\.0\.1:{broker.port}: .*\); the client continues to reconnect"
        with pytest.raises(NotConnected, match=why):
            await mq.publish("orders", 1)
        with pytest.raises(NotConnected, match=r"within 0\.01 s \(cannot connect"):
            await mq.request("orders", 1, timeout=0.01)
        with pytest.raises(NotConnected, match=r"within 0 s \(cannot connect.*, so what waits"):
            await mq.fetch("orders", timeout=0)
        async with anyio.create_task_group() as tasks:
            await broker.start(tasks)
            await until(lambda: mq.is_connected)
            assert (await mq.publish("orders", 1)).sequence == 1
            tasks.cancel_scope.cancel()


async def test_the_programs_exception_leaves_the_block_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with broker_and_client():
            raise ZeroDivisionError


async def test_cancelling_the_block_ends_it() -> None:
    broker = FakeBroker()
    async with anyio.create_task_group() as tasks:
        await broker.start(tasks)
        with anyio.CancelScope() as scope:
            async with vibemq.connect(f"vibemq://127.0.0.1:{broker.port}"):
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        tasks.cancel_scope.cancel()


async def test_a_closed_client_says_so() -> None:
    async with broker_and_client() as (_, mq):
        await mq.close()
        with pytest.raises(NotConnected, match="closed"):
            await mq.publish("orders", 1)


async def test_an_answer_that_never_comes_is_a_timeout_with_a_hint() -> None:
    async with broker_and_client() as (broker, mq):
        give_little_time(mq, 0.3)
        broker.mute = True
        with pytest.raises(RequestTimeout, match=r"no answer to a publish .* not so fast"):
            await mq.publish("orders", 1)
        with pytest.raises(RequestTimeout, match=r"queue\.info"):
            await mq.queue_info("orders")
        assert mq.is_connected
        assert mq.unconfirmed == 0


async def test_the_brokers_goodbye_is_followed_by_a_new_connection() -> None:
    async with broker_and_client() as (broker, mq):
        await broker.goodbye("maintenance")
        await until(lambda: broker.accepted >= 2)
        assert (await mq.publish("orders", 1)).sequence == 1


async def test_a_request_that_changes_things_is_not_repeated_by_itself() -> None:
    async with broker_and_client(command_timeout=60) as (broker, mq), anyio.create_task_group() as tasks:
        broker.mute = True
        raised: list[Exception] = []

        async def purge() -> None:
            try:
                await mq.purge_queue("orders")
            except ConnectionLost as exc:
                raised.append(exc)

        looked = anyio.Event()

        async def look() -> None:
            assert await mq.queue_info("orders") is None
            looked.set()

        tasks.start_soon(purge)
        tasks.start_soon(look)
        await anyio.wait_all_tasks_blocked()
        await broker.stop()
        broker.mute = False
        async with anyio.create_task_group() as serving:
            await broker.start(serving)
            await looked.wait()
            assert [type(exc) for exc in raised] == [ConnectionLost]
            serving.cancel_scope.cancel()


async def test_a_body_that_cannot_be_packed_says_what_was_published_before_it() -> None:
    async with broker_and_client() as (broker, mq):
        bodies: list[object] = [b"%d" % number for number in range(5_000)]
        with pytest.raises(LocalProtocolError) as caught:
            await mq.publish_many("orders", [*bodies[:10], object(), *bodies])
        assert not broker.queue("orders").rows
        assert not hasattr(caught.value, "__notes__")
        with pytest.raises(LocalProtocolError) as caught:
            await mq.publish_many("orders", [*bodies, object(), *bodies])
        count = len(broker.queue("orders").rows)
        assert 0 < count < 5_000
        assert caught.value.__notes__ == [
            f"{count:,} of the first {count:,} messages are published to 'orders'; no later one was sent"
        ]


async def test_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        *subject,
        "-keyout",
        key,
        "-out",
        certificate,
    ]
    await anyio.run_process(list(map(str, command)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    broker = FakeBroker()
    broker.tls = context
    async with anyio.create_task_group() as tasks:
        await broker.start(tasks)
        address = f"vibemqs://127.0.0.1:{broker.port}"
        async with vibemq.connect(f"{address}?skipCertValidation=true") as mq:
            assert (await mq.publish("orders", 1)).sequence == 1
        tasks.cancel_scope.cancel()


async def test_tls_against_a_plain_broker_fails() -> None:
    with pytest.raises(NotConnected):
        async with broker_and_client(tls=True):
            raise AssertionError("the broker speaks no TLS")


async def test_publishing_without_waiting() -> None:
    async with broker_and_client() as (broker, mq):
        for number in range(3_000):
            assert await mq.publish("orders", number, wait=False) is None
        receipt = await mq.publish("orders", "last")
        assert receipt.sequence == 3_001
        await mq.flush()
        assert mq.unconfirmed == 0
        assert broker.unsettled("orders") == 3_001
        assert broker.frames.count(CommandType.PUBLISH_MANY) < 50


async def test_it_keeps_its_place_before_publish_many() -> None:
    async with broker_and_client() as (_, mq):
        await mq.publish("orders", "first", wait=False)
        await mq.publish_many("orders", ["second", "third"])
        await mq.publish("orders", "fourth", wait=False)
        await mq.flush()
        messages = await mq.fetch("orders", max=4, timeout=60)
        assert [message.body for message in messages] == ["first", "second", "third", "fourth"]


async def test_one_caller_keeps_its_order_however_it_publishes() -> None:
    async with broker_and_client() as (broker, mq):
        async with mq.publisher("orders") as out:
            await mq.publish("orders", 0, wait=False)
            await out.send(1)
            await mq.publish("orders", 2, wait=False)
            await out.send(3)
            await mq.publish_many("orders", [4, 5])
            await out.send(6)
            await mq.publish("orders", 7)
            assert await out.flush() == 3
        assert [RowView(row).payload for row in broker.queue("orders").rows.values()] == [b"%d" % n for n in range(8)]


async def test_a_publisher_counts_its_own_among_those_of_others() -> None:
    async with broker_and_client() as (broker, mq):
        broker.refuse_bodies = b"bad"
        out = mq.publisher("orders")
        confirms = []
        for own, other in (("bad 0", "x"), ("1", "bad"), ("2", "bad"), ("bad 3", "bad")):
            confirms.append(await out.send(own))
            await mq.publish("orders", other, wait=False)
        with pytest.raises(PublishRefused, match="refused 2 of 4 messages; message 0: ") as refused:
            await out.flush()
        assert sorted(refused.value.refused) == [0, 3]
        assert [(await confirms[index]).sequence for index in (1, 2)] == [2, 3]
        with pytest.raises(PublishFailed) as failed:
            await mq.flush()
        assert len(failed.value.failures) == 3
        assert (await out.flush(), out.unconfirmed) == (0, 0)


@pytest.mark.parametrize("what", ["purge", "delete", "ping"])
async def test_what_is_asked_comes_behind_what_was_published_before(what: str) -> None:
    async with broker_and_client() as (broker, mq):
        await mq.publish("orders", "first", wait=False)
        match what:
            case "purge":
                assert await mq.purge_queue("orders") == 1
            case "delete":
                await mq.delete_queue("orders")
            case "ping":
                await mq.ping()
        first, second = broker.frames[-2:]
        assert (first, second) == (CommandType.PUBLISH_MANY, CommandType.PING if what == "ping" else CommandType.ADMIN)
        await mq.flush()


async def test_what_failed_without_waiting_is_told_by_the_next_call_by_flush_and_once() -> None:
    async with broker_and_client() as (broker, mq):
        broker.refuse_bodies = b"bad"
        await mq.publish("orders", "good", wait=False)
        await mq.publish("orders", "bad", wait=False, id="b")
        await until(lambda: mq.unconfirmed == 0)
        assert (await mq.publish("orders", "waited for")).sequence == 2
        with pytest.raises(PublishFailed, match=r"1 messages of earlier .* 'orders', id 'b': no room") as told:
            await mq.publish("orders", "not published", wait=False)
        [(queue, message_id, error)] = told.value.failures
        assert (queue, message_id, type(error), told.value.code) == ("orders", "b", QueueFull, QueueFull.code)
        await mq.publish("orders", "bad", wait=False)
        with pytest.raises(PublishFailed):
            await mq.flush()
        await mq.flush()
        assert broker.unsettled("orders") == 2


async def test_what_failed_without_waiting_is_told_at_the_end() -> None:
    async def publish() -> None:
        async with broker_and_client() as (broker, mq):
            broker.refuse_bodies = b"bad"
            await mq.publish("orders", "bad", wait=False)

    with pytest.raises(PublishFailed, match="no room"):
        await publish()


async def test_an_error_of_the_program_is_not_hidden_by_what_failed(caplog: pytest.LogCaptureFixture) -> None:
    async def publish() -> None:
        async with broker_and_client() as (broker, mq):
            broker.refuse_bodies = b"bad"
            await mq.publish("orders", "bad", wait=False)
            await until(lambda: mq.unconfirmed == 0)
            raise KeyError

    with pytest.raises(KeyError) as told:
        await publish()
    (note,) = told.value.__notes__
    assert note.startswith("1 messages of earlier publish(wait=False) failed; the first one, to queue 'orders'")
    assert note in caplog.text


async def test_without_an_answer_it_waits_for_room_and_tells_what_timed_out() -> None:
    async with broker_and_client(max_unconfirmed=10) as (broker, mq):
        await mq.ping()
        broker.mute = True
        give_little_time(mq, 0.3)
        for number in range(10):
            await mq.publish("orders", number, wait=False)
        await mq.publish("orders", "waits for room", wait=False)
        broker.mute = False
        with pytest.raises(PublishFailed, match=r"10 messages .* no answer to a publish within") as told:
            await mq.flush()
        assert {type(failure.error) for failure in told.value.failures} == {RequestTimeout}


@pytest.mark.parametrize("body", ["text", b"bytes", bytearray(b"bytes"), {"a": 1}])
async def test_one_body_is_not_many(body: Any) -> None:
    async with broker_and_client() as (broker, mq):
        with pytest.raises(LocalProtocolError, match=r"or publish_many\(queue, \[body\]\)"):
            await mq.publish_many("orders", body)
        assert broker.unsettled("orders") == 0
