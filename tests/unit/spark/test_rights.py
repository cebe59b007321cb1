"""What users of a Spark job need, as docs/howto/security.md says, and no more."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.crash.ledger import BrokerProcess
from tests.integration.access import PASSWORD, connected, queues, transactions, user
from tests.integration.conditions import broker_on, running
from tests.unit.spark.hand import Query, copied, options_of, read
from vibemq.spark.errors import Refused
from vibemq.spark.source import DefaultSource

BODY = StructType([StructField("body", BinaryType())])
TOML = "\n".join(
    (
        '[auth]\nsuperuser = "root"\nsuperuser_password = "pw"',
        user("writer", queues("orders", "publish")),
        user("once", queues("orders", "publish"), transactions("*")),
        user("nightly", queues("orders", "publish"), transactions("nightly*")),
        user("whole", queues("orders", "publish"), transactions("batch-*")),
        user("reader", queues("orders", "subscribe")),
        user("colleague", queues("orders", "subscribe")),
        user("mortician", queues("orders", "inspect")),
        user("job", queues("orders", "subscribe"), queues("orders.checked", "publish")),
    )
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder: Path = tmp_path_factory.mktemp("rights")
    with running(broker_on(folder / "data", folder, toml=TOML)) as started:
        with connected(started.port, "root") as root:
            root.admin("queue.create", queue="orders", options={"retention": "log"})
            root.admin("queue.create", queue="orders.checked", options={"retention": "log"})
        yield started


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PW", PASSWORD)


def write(broker: BrokerProcess, number: int, name: str, **more: object) -> None:
    options = options_of(broker, queue="orders", username=name, passwordEnv="SPARK_PW", **more)
    writer = copied(DefaultSource(options)).writer(BODY, False)
    message = copied(writer).write(iter([pa.RecordBatch.from_pylist([{"body": b"%d" % number}])]))
    copied(writer).commit([message])


def test_writers(broker: BrokerProcess) -> None:
    write(broker, 1, "writer")
    write(broker, 2, "once", atomic="true")
    write(broker, 3, "nightly", exactlyOnce="true", txnAppId="nightly", txnVersion=1)
    write(broker, 6, "whole", atomic="true")
    for name in ("writer", "nightly"):
        with pytest.raises(Refused, match=r"NOT_AUTHORIZED.*transact|transact.*NOT_AUTHORIZED"):
            write(broker, 4, name, atomic="true")
    with pytest.raises(Refused, match="NOT_AUTHORIZED"):
        write(broker, 5, "reader")
    rights = {"queue": "orders", "username": "reader", "passwordEnv": "SPARK_PW"}
    assert sorted(int(row["body"]) for row in read(broker, **rights)) == [1, 2, 3, 6]
    query = Query(broker, **rights)
    start = query.live.initialOffset()
    end, numbers = query.batch(start)
    assert sorted(numbers) == [1, 2, 3, 6]
    query.live.commit(end)


def test_a_pattern_takes_in_queues_that_the_user_may_only_write(broker: BrokerProcess) -> None:
    """To leave them out would leave out the queues of a missing permission, too."""
    job = {"username": "job", "passwordEnv": "SPARK_PW"}
    Query(broker, queuePattern="order[s]", group="of-job", **job).live.initialOffset()
    with pytest.raises(Refused, match=r"'subscribe' on queue 'orders.checked'"):
        Query(broker, queuePattern="orders*", group="of-job", **job).live.initialOffset()
    with pytest.raises(Refused, match=r"'subscribe' on queue 'orders.checked'"):
        read(broker, queuePattern="orders*", **job)


def test_readers_of_dead_letters(broker: BrokerProcess) -> None:
    options = {"queue": "orders", "deadLetters": "true", "passwordEnv": "SPARK_PW"}
    assert read(broker, **options, username="mortician") == []
    with pytest.raises(Refused, match="NOT_AUTHORIZED"):
        read(broker, **options, username="reader")


def test_who_is_refused_is_told_what_is_missing(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(**more: object) -> str:
        options: dict[str, object] = {"queue": "orders", "group": "mine", "passwordEnv": "SPARK_PW", **more}
        with pytest.raises(Refused) as caught:
            Query(broker, **{name: value for name, value in options.items() if value}).live.initialOffset()
        return str(caught.value)

    Query(broker, queue="orders", group="mine", username="reader", passwordEnv="SPARK_PW").live.initialOffset()
    monkeypatch.setenv("WRONG", "no")
    for login in ({"username": "reader", "passwordEnv": "WRONG"}, {"passwordEnv": None}):
        for queue in ({}, {"queue": None, "queuePattern": "orders*"}):
            assert "does not let this user in: see username with passwordFile" in refusal(**login, **queue)
    for name in ("writer", "colleague"):
        said = refusal(username=name)
        assert said.startswith("this user may not do that: docs/reference/spark.md#connection says which permissions")
        assert "'subscribe' on queue 'orders'" in said or "belongs to another user" in said
