"""Batch reads against a real broker: ranges, views, dead letters, and connections that break."""

import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import vibemq.sync
from tests.crash.ledger import BrokerProcess
from tests.integration.conditions import running
from tests.unit.spark.hand import Query, copied, facts, options_of, publish_at_three_instants, read
from vibemq.spark.connection import pool
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import DataLoss, OptionError, Refused, SourceError, Unreachable
from vibemq.spark.options import parse
from vibemq.spark.source import DefaultSource

pytestmark = pytest.mark.slow
Publish = Callable[..., None]


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["body"]) for row in rows]


def test_every_column(broker: BrokerProcess, mq: Any, queue: str) -> None:
    before = time.time()
    headers = {"key": "k", "content-type": "text/plain", "x": "ä"}
    mq.publish(queue, b"one", id="m-1", headers=headers)
    (row,) = read(broker, queue=queue)
    assert before - 60 < row.pop("enqueued_at").timestamp() < time.time() + 60
    assert dict(row.pop("headers")) == {key: value.encode() for key, value in headers.items()}
    assert row == {
        "queue": queue,
        "seq": 1,
        "message_id": "m-1",
        "body": b"one",
        "priority": 1,
        "attempts": 1,
        "key": "k",
        "content_type": "text/plain",
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(10)),
        ({"startingOffsets": "latest"}, []),
        ({"startingOffsets": '{"Q": 4}', "endingOffsets": '{"Q": 6}'}, [3, 4]),
        ({"startingOffsets": '{"q":{"Q":{"i":"x","s":9}},"v":1}'}, [8, 9]),
        ({"startingOffsets": '{"Q": "earliest"}', "endingOffsets": '{"Q": 99}'}, range(10)),
        ({"group": "nobody"}, range(10)),
    ],
)
def test_ranges(
    broker: BrokerProcess, queue: str, publish: Publish, options: dict[str, str], expected: list[int]
) -> None:
    publish(queue, 0, 10)
    given = {name: value.replace("Q", queue) for name, value in options.items()}
    assert numbers(read(broker, queue=queue, **given)) == list(expected)


def test_offsets_must_name_every_queue(broker: BrokerProcess, queue: str) -> None:
    with pytest.raises(OptionError, match=f"startingOffsets names order; what is read is {queue}"):
        read(broker, queue=queue, startingOffsets='{"order": 4}')


def test_instants(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    _, (first, *wanted), (second, *_) = publish_at_three_instants(broker, publish, queue)
    assert numbers(read(broker, queue=queue, startingTimestamp=first, endingTimestamp=second)) == wanted


def test_a_group_says_where_to_start_and_does_not_move(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 4)
    query = Query(broker, queue=queue, maxMessagesPerTrigger=2)
    query.latest(query.batch(query.live.initialOffset())[0])
    for _ in range(2):
        assert numbers(read(broker, queue=queue, group="etl")) == [2, 3]


def test_a_group_that_goes_on_between_planning_and_reading(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish
) -> None:
    """A look at what a running query has still to do."""
    name = f"{queue}.settled"
    mq.create_queue(name, mode="fan_out_with_ack")
    query = Query(broker, queue=name, maxMessagesPerTrigger=2)
    start = query.live.initialOffset()
    publish(name, 0, 4)
    source = DefaultSource(options_of(broker, queue=name, group="etl", columns="seq"))
    reader = source.reader(source.schema())
    (task,) = reader.partitions()
    query.latest(query.batch(start)[0])
    with pytest.raises(DataLoss, match=r"query of group .etl. has acknowledged .* since this read was"):
        list(reader.read(task))
    careless = DefaultSource(options_of(broker, queue=name, group="etl", failOnDataLoss="false", columns="seq"))
    assert [row["seq"] for batch in careless.reader(source.schema()).read(task) for row in batch.to_pylist()] == [3, 4]


def test_what_a_group_has_given_up_is_not_lost_to_a_batch_read(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish
) -> None:
    """Nobody needs the first messages any more, so the queue begins behind them, and the group before them."""
    name = f"{queue}.settled"
    mq.create_queue(name, mode="fan_out_with_ack")
    Query(broker, queue=name).live.initialOffset()
    publish(name, 0, 4)
    mq.admin("group.quarantine", queue=name, group="etl", runs=[[1, 2]])
    assert facts(broker, name)["committed"] == 1
    assert numbers(read(broker, queue=name, group="etl")) == [2, 3]


def test_what_was_purged_is_lost_to_a_batch_read_of_a_group(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, capfd: pytest.CaptureFixture[str]
) -> None:
    Query(broker, queue=queue).live.initialOffset()
    publish(queue, 0, 2)
    mq.purge_queue(queue)
    publish(queue, 2, 4)
    with pytest.raises(DataLoss, match=r"2 messages are gone before they were read \(sequences 1-2\)"):
        read(broker, queue=queue, group="etl")
    assert numbers(read(broker, queue=queue, group="etl", failOnDataLoss="false")) == [2, 3]
    assert "2 messages are gone before they were read" in capfd.readouterr().err


def test_a_frame_is_the_piece_of_a_fetch(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 3000, size=1000)
    for fetch in ("20k", "1m"):
        assert numbers(read(broker, queue=queue, fetchBytes=fetch, maxPartitions=2)) == list(range(3000))


def test_the_largest_messages(broker: BrokerProcess, mq: Any, queue: str) -> None:
    bodies = [bytes([n]) * 1_040_000 for n in range(3)]
    for body in bodies:
        mq.publish(queue, body)
    assert [row["body"] for row in read(broker, queue=queue)] == bodies


def test_a_pattern(broker: BrokerProcess, mq: Any, queue: str, publish: Publish) -> None:
    mq.create_queue(f"{queue}.b", retention="log")
    publish(queue, 0, 2)
    publish(f"{queue}.b", 2, 3)
    rows = read(broker, queuePattern=f"{queue}*")
    assert [(row["queue"], row["seq"]) for row in rows] == [(queue, 1), (queue, 2), (f"{queue}.b", 1)]
    assert read(broker, queuePattern=f"{queue}.nothing*") == []


@pytest.mark.parametrize("dead", ["false", "true"])
def test_a_queue_of_a_pattern_that_goes_before_its_range_is_known_is_left_out(
    broker: BrokerProcess, queue: str, publish: Publish, monkeypatch: pytest.MonkeyPatch, dead: str
) -> None:
    """Like one that went before the pattern was looked up."""
    publish(queue, 0, 2)
    monkeypatch.setattr(BrokerClient, "list_queues", lambda client, prefix: [queue, f"{queue}.gone"])
    wanted = [] if dead == "true" else [0, 1]
    assert numbers(read(broker, queuePattern=f"{queue}*", deadLetters=dead)) == wanted
    with pytest.raises(Refused, match="does not exist"):
        read(broker, queues=f"{queue},{queue}.gone", deadLetters=dead)


def test_a_queue_of_a_pattern_that_goes_when_its_range_is_known_is_told_as_deleted(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(queue, 0, 2)
    real = BrokerClient.ask_verb

    def ask(self: Any, verb: str, *arguments: Any, **more: Any) -> Any:
        if verb == "group.split":
            mq.delete_queue(queue)
        return real(self, verb, *arguments, **more)

    monkeypatch.setattr(BrokerClient, "ask_verb", ask)
    with pytest.raises(DataLoss, match=f"queue '{queue}' was deleted.*failOnDataLoss=false"):
        read(broker, queuePattern=f"{queue}*")


def test_what_is_no_longer_kept(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, capfd: pytest.CaptureFixture[str]
) -> None:
    publish(queue, 0, 4)
    mq.purge_queue(queue)
    publish(queue, 4, 6)
    from_one = {"queue": queue, "startingOffsets": f'{{"{queue}": 1}}'}
    with pytest.raises(DataLoss, match=r"keeps messages from 5 on; the read begins at 1.*failOnDataLoss=false"):
        read(broker, **from_one)
    assert numbers(read(broker, **from_one, failOnDataLoss="false")) == [4, 5]
    assert "keeps messages from 5 on" in capfd.readouterr().err


def test_a_log_that_goes_on_between_planning_and_reading(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish, capfd: pytest.CaptureFixture[str]
) -> None:
    publish(queue, 0, 4)
    source = DefaultSource(options_of(broker, queue=queue, columns="seq"))
    reader = source.reader(source.schema())
    (task,) = reader.partitions()
    mq.purge_queue(queue)
    with pytest.raises(DataLoss, match=r"4 messages are gone before they were read \(sequences 1-4\)"):
        list(reader.read(task))
    careless = DefaultSource(options_of(broker, queue=queue, failOnDataLoss="false")).reader(source.schema())
    assert list(careless.read(task)) == []
    assert "4 messages are gone before they were read" in capfd.readouterr().err


def test_a_queue_that_does_not_exist(broker: BrokerProcess) -> None:
    with pytest.raises(Refused, match="queue 'nowhere' does not exist"):
        read(broker, queue="nowhere")


def test_a_queue_that_goes_between_planning_and_reading(
    broker: BrokerProcess, mq: Any, queue: str, publish: Publish
) -> None:
    publish(queue, 0, 4)
    source = DefaultSource(options_of(broker, queue=queue))
    reader = source.reader(source.schema())
    (task,) = reader.partitions()
    mq.delete_queue(queue)
    mq.create_queue(queue, retention="log")
    with pytest.raises(DataLoss, match="was deleted and created again"):
        list(reader.read(task))
    careless = DefaultSource(options_of(broker, queue=queue, failOnDataLoss="false")).reader(source.schema())
    assert list(careless.read(task)) == []


def test_dead_letters(broker: BrokerProcess, mq: Any, queue: str, publish: Publish) -> None:
    publish(queue, 0, 5)
    query = Query(broker, queue=queue)
    query.live.initialOffset()
    client = BrokerClient(parse(options_of(broker)))
    assert read(broker, queue=queue, deadLetters="true") == []
    client.call("group.reject", queue, {"group": "etl", "rejects": [[2, "odd"], [4, "odder"]]})
    rows = read(broker, queue=queue, deadLetters="true", minPartitions=2)
    assert [(row["seq"], row["body"], row["reason"], row["detail"]) for row in rows] == [
        (2, b"1", "rejected", "odd"),
        (4, b"3", "rejected", "odder"),
    ]
    assert [(row["origin_queue"], row["origin_seq"], row["origin_group"]) for row in rows] == [
        (queue, 2, "etl"),
        (queue, 4, "etl"),
    ]
    assert rows[0]["dead_id"] < rows[1]["dead_id"]
    assert rows[0]["dead_at"] is not None


def test_a_message_larger_than_an_answer_is_named(broker: BrokerProcess, mq: Any, queue: str, publish: Publish) -> None:
    publish(queue, 0, 2)
    mq.publish(queue, bytes(2_200_000))
    with pytest.raises(Refused, match=rf"^message 3 of queue {queue!r}, or .* limits.body_bytes_max, ") as e:
        read(broker, queue=queue)
    assert "quarantine" not in str(e.value), "nobody's view"
    assert [row["seq"] for row in read(broker, queue=queue, columns="seq")] == [1, 2, 3]
    query = Query(broker, queue=queue)
    start = query.live.initialOffset()
    with pytest.raises(Refused, match=rf"`vibemq-admin group quarantine {queue} etl 3-3`"):
        query.batch(start)


def test_connections_are_left_for_the_next_task(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 2)
    settings = parse(options_of(broker, queue=queue))
    with pool.leased(settings) as first:
        first.call("group.offsets", queue, {})
    with pool.leased(settings) as second:
        assert second is first
    with pytest.raises(Refused), pool.leased(settings) as third:
        third.call("group.offsets", "nowhere", {})
    with pool.leased(settings) as fourth:
        assert fourth is not first, "an answer may have been on its way"


def test_a_generator_that_is_left_in_the_middle(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 3000, size=1000)
    source = DefaultSource(options_of(broker, queue=queue, columns="body", maxPartitions=1))
    reader = source.reader(source.schema())
    (task,) = reader.partitions()
    batches: Any = reader.read(task)
    next(batches)
    batches.close()
    assert numbers(read(broker, queue=queue)) == list(range(3000))


def test_a_broker_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    with running(BrokerProcess(tmp_path / "data")) as broker:
        with vibemq.sync.connect(broker.url) as mq:
            mq.create_queue("orders", retention="log")
            mq.publish_many("orders", [f"{n}".encode().ljust(1000) for n in range(3000)])
        source = DefaultSource(options_of(broker, queue="orders", columns="body", maxPartitions=1))
        reader = source.reader(source.schema())
        (task,) = reader.partitions()
        batches = reader.read(task)
        seen = next(batches).to_pylist()
        broker.kill()
        broker.start()
        seen += [row for batch in batches for row in batch.to_pylist()]
        assert numbers(seen) == list(range(3000)), "nothing twice, nothing left out"
        assert numbers(read(broker, queue="orders")) == list(range(3000)), "also over a connection kept from before"


def test_logging_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "vibemq.toml"
    config.write_text('[auth]\ntoken = "open sesame"\n')
    secret = tmp_path / "secret"
    secret.write_text("open sesame\n")
    monkeypatch.setenv("THE_TOKEN", "open sesame")
    with running(BrokerProcess(tmp_path / "data", arguments=("--config", str(config)))) as broker:
        with vibemq.sync.connect(broker.url, token="open sesame") as mq:
            mq.create_queue("orders", retention="log")
        for options in ({"tokenFile": secret}, {"tokenEnv": "THE_TOKEN"}):
            assert read(broker, queue="orders", **options) == []
            assert "sesame" not in repr(copied(DefaultSource(options_of(broker, queue="orders", **options)))._options)
        for options in ({}, {"tokenEnv": "PATH"}):
            with pytest.raises(Refused, match="AUTH"):
                read(broker, queue="orders", **options)
        with pytest.raises(SourceError, match=r"NOT_SET is not set on .*spark.executorEnv.NOT_SET"):
            read(broker, queue="orders", tokenEnv="NOT_SET")
        with pytest.raises(SourceError, match=r"option tokenFile: .*No such file"):
            read(broker, queue="orders", tokenFile=tmp_path / "none")


def test_access_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "vibemq.toml"
    config.write_text('[auth]\nsuperuser = "root"\nsuperuser_password = "pw"\n')
    with (
        running(BrokerProcess(tmp_path / "data", arguments=("--config", str(config)))) as broker,
        vibemq.sync.connect(broker.url, username="root", password="pw") as root,
    ):
        root.create_queue("orders", retention="log")
        root.publish_many("orders", [b"0", b"1"])
        root.admin("user.add", user="spark", password="secret")
        root.admin("user.grant", user="spark", queues="*", actions=["*"])
        narrow = [{"queues": "orders", "actions": ["subscribe"]}]
        made = root.admin("token.create", user="spark", permissions=narrow)
        file = tmp_path / "token"
        file.write_text(f"{made['token']}\n")
        monkeypatch.setenv("THE_TOKEN", made["token"])
        ways: list[dict[str, Any]] = [
            {"tokenFile": file},
            {"tokenEnv": "THE_TOKEN"},
            {"username": "spark", "passwordFile": file},
            {"username": "spark", "passwordEnv": "THE_TOKEN"},
        ]
        for way in ways:
            assert numbers(read(broker, queue="orders", **way)) == [0, 1], way
        with pytest.raises(Refused, match="NOT_AUTHORIZED"):
            read(broker, queue="others", tokenFile=file)

        # Connections are kept between reads: the revoked token's are gone, and a new one is refused.
        root.admin("token.revoke", token_id=made["token_id"])
        for way in ways:
            with pytest.raises(Refused, match="AUTH_FAILED"):
                read(broker, queue="orders", **way)
        file.write_text(root.admin("token.create", user="spark")["token"])
        assert numbers(read(broker, queue="orders", tokenFile=file)) == [0, 1], "the file is read again"


def test_tls(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    config = tmp_path / "vibemq.toml"
    config.write_text(
        f'[[listeners]]\nprotocol = "native"\nport = 0\ntls = {{ certificate = "{certificate}", key = "{key}" }}\n'
    )
    with running(BrokerProcess(tmp_path / "data", arguments=("--config", str(config)))) as broker:
        with vibemq.sync.connect(f"vibemqs://127.0.0.1:{broker.port}?skipCertValidation=true") as mq:
            mq.create_queue("orders", retention="log")
            mq.publish("orders", b"7")
        secure = {"queue": "orders", "endpoint": f"vibemqs://127.0.0.1:{broker.port}"}
        for options in ({"tls.verify": "false"}, {"tls.ca": certificate, "tls.serverName": "localhost"}):
            for _ in range(2):
                assert numbers(read(broker, **secure, **options)) == [7]
        with pytest.raises(SourceError, match=r"speaks TLS; write vibemqs://"):
            read(broker, queue="orders", endpoint=f"127.0.0.1:{broker.port}")
        with pytest.raises(SourceError, match=r"self-signed certificate; see tls.ca"):
            read(broker, **secure)
        with pytest.raises(SourceError, match=r"IP address mismatch.*see tls.ca and tls.serverName"):
            read(broker, **secure, **{"tls.ca": certificate})
        with pytest.raises(SourceError, match=r"option tls.ca: the file .*none cannot be read on "):
            read(broker, **secure, **{"tls.ca": tmp_path / "none"})
        with pytest.raises(SourceError, match=r"does not speak TLS; write vibemq://"):
            read(broker, queue="q", endpoint=f"vibemqs://127.0.0.1:{broker.http_port}", retryTimeout="0")


def test_a_listener_that_is_no_broker(broker: BrokerProcess) -> None:
    """Another protocol is told at once, silence when `retryTimeout` is over: both in spite of the time that remains."""
    with pytest.raises(SourceError, match=r"this port answers in HTTP; name that of the native listener") as caught:
        read(broker, queue="q", endpoint=f"127.0.0.1:{broker.http_port}")
    assert not isinstance(caught.value, Unreachable)
    with pytest.raises(SourceError, match=r"does not speak TLS; write vibemq://"):
        read(broker, queue="q", endpoint=f"vibemqs://127.0.0.1:{broker.port}")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(
            Unreachable, match=r"no answer to the login \(timed out\); is this the native .*gave up after 0.2 s"
        ):
            read(broker, queue="q", endpoint=f"127.0.0.1:{port}", retryTimeout="200ms")
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):  # Another attempt would have begun when the time was over.
            silent.accept()
