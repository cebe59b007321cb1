"""What tests of queries share: one local session for all modules, and a broker.

A session costs thirteen seconds of processor time before its first query has read a row, and a query one. So modules
have no sessions of their own; what a test changes in the session, it changes back."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import vibemq.sync
from tests.crash.ledger import BrokerProcess
from tests.integration.conditions import running
from vibemq.demos.spark import tidy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.queries import World


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running(BrokerProcess(tmp_path_factory.mktemp("broker") / "data")) as process:
        yield process


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    with tidy.folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        more = {"spark__log__level": "OFF", "spark__sql__shuffle__partitions": "1"}
        session = tidy.session("vibemq-tests", "local[2]", folder, **more)
        yield session
        tidy.end(session)


@pytest.fixture
def mq(broker: BrokerProcess) -> Iterator[Any]:
    with vibemq.sync.connect(broker.url) as client:
        yield client


@pytest.fixture
def world(broker: BrokerProcess, spark: "SparkSession", mq: Any, tmp_path: Path) -> "World":
    from tests.spark.queries import World
    from vibemq.spark import register

    register(spark)
    return World(broker, spark, mq, tmp_path)
