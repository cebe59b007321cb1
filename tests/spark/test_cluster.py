"""docker/compose.spark.yaml as plain processes: a standalone master and two workers from pip's pyspark, spark-submit of
an example, with the package installed and shipped with the plan; and Spark Connect."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

import vibemq.sync
from tests.crash.ledger import BrokerProcess
from tests.spark.world import CEILING_S, drained, endpoint, needs_spark, running_broker
from vibemq.demos.spark import tidy

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.spark_cluster, needs_spark]

ENOUGH_S = 240
WORKERS = 2
EXAMPLES = Path(tidy.__file__).parents[2] / "spark" / "examples"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("cluster")) as broker:
        yield broker


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tidy.folder() as folder:
        yield folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def daemon(folder: Path, name: str, *arguments: str, environment: dict[str, str]) -> Iterator[Path]:
    """A class of Spark that serves; its log. Everything that it starts ends with it."""
    log = folder / f"{name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(tidy.spark_home() / "bin" / "spark-class"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment | {"SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_JAVA_OPTS": tidy.QUICK_JVM},
            start_new_session=True,
        )
    try:
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            pass
        tidy.sweep(process.pid)
        process.wait()


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + CEILING_S
    while text not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, f"{text!r} is not in the log:\n{log.read_text(errors='replace')[-3000:]}"
        time.sleep(0.1)


def wait_until_open(port: int, log: Path) -> None:
    deadline = time.monotonic() + CEILING_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nobody listens:\n{log.read_text(errors='replace')[-3000:]}"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def master(folder: Path) -> Iterator[str]:
    """spark://… of a master with two workers of one core each."""
    port, environment = free_port(), tidy.environment(folder)
    host = "org.apache.spark.deploy"
    with daemon(
        folder,
        "master",
        f"{host}.master.Master",
        *("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"),
        environment=environment,
    ) as log:
        wait_for(log, "I have been elected leader")
        url = f"spark://127.0.0.1:{port}"
        options = ("--cores", "1", "--memory", "600m", "--webui-port", "0", url)
        # Of two hosts: a task that is slow is not started once more on the same one.
        named = [(f"worker-{number}", f"{host}.worker.Worker", "--host", f"127.0.0.{number}") for number in (1, 2)]
        with (
            daemon(folder, *named[0], *options, environment=environment) as one,
            daemon(folder, *named[1], *options, environment=environment) as two,
        ):
            for worker in (one, two):
                wait_for(worker, "Successfully registered with master")
            yield url


def submit(folder: Path, master: str, environment: dict[str, str], *job: str) -> None:
    configured = [part for key, value in tidy.settings(folder).items() for part in ("--conf", f"{key}={value}")]
    done = subprocess.run(
        [
            str(tidy.spark_home() / "bin" / "spark-submit"),
            *("--master", master, "--executor-memory", "512m"),
            *("--conf", "spark.executor.instances=2", "--conf", "spark.scheduler.minRegisteredResourcesRatio=1"),
            *configured,
            *job,
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=ENOUGH_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"


def filled(mq: vibemq.sync.Client, queue: str) -> list[dict[str, object]]:
    orders: list[dict[str, object]] = [{"order": n, "amount": f"{n % 50}.25"} for n in range(1, 2001)]
    mq.create_queue(queue, mode="fan-out-with-ack")
    mq.publish_many(queue, orders)
    return orders


def without_vibemq(folder: Path) -> str:
    """A Python for executors: pyspark and pyarrow of this environment, and nothing of VibeMQ."""
    site = folder / "site"
    site.mkdir()
    for entry in Path(tidy.spark_home()).parent.iterdir():
        if "vibemq" not in entry.name and not entry.name.endswith(".pth"):
            (site / entry.name).symlink_to(entry)
    python = folder / "python-without"
    # -S: no site-packages but the one on the path.
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}:$PYTHONPATH" exec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    checked = subprocess.run(
        [str(python), "-c", "import pyarrow, vibemq"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert "No module named 'vibemq'" in checked.stderr, checked.stderr
    return str(python)


def test_spark_submit_with_the_package_installed(master: str, broker: BrokerProcess, folder: Path) -> None:
    with vibemq.sync.connect(broker.url) as mq:
        orders = filled(mq, "installed")
        job = (str(EXAMPLES / "rejects.py"), "--endpoint", endpoint(broker), "--once")
        names = ("--source", "installed", "--sink", "installed.checked", "--checkpoint", str(folder / "installed"))
        submit(folder, master, tidy.environment(folder), *job, *names)
        assert sorted(row["order"] for row in drained(mq, "installed.checked")) == [one["order"] for one in orders]


def test_spark_submit_with_the_code_shipped(master: str, broker: BrokerProcess, folder: Path) -> None:
    """Executors whose Python has no vibemq; the processes in which Spark plans, beside the driver, have none either."""
    environment = tidy.environment(folder) | {"PYSPARK_PYTHON": without_vibemq(folder)}
    with vibemq.sync.connect(broker.url) as mq:
        orders = filled(mq, "shipped")
        job = (str(EXAMPLES / "rejects.py"), "--endpoint", endpoint(broker), "--once", "--ship")
        names = ("--source", "shipped", "--sink", "shipped.checked", "--checkpoint", str(folder / "shipped"))
        submit(folder, master, environment, *job, *names)
        assert sorted(row["order"] for row in drained(mq, "shipped.checked")) == [one["order"] for one in orders]


SPECULATING_JOB = """
import sys, time
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from vibemq.spark import register

endpoint, folder = sys.argv[1], Path(sys.argv[2])
spark = SparkSession.builder.getOrCreate()
register(spark)

def run(name, writer):
    overtaken = folder / f"{name}.overtaken"

    @udf("string")
    def slow(body):
        if '"order":1,' in body:
            if TaskContext.get().attemptNumber():
                overtaken.touch()
            else:
                while not overtaken.exists():
                    time.sleep(0.05)
        return body

    options = {"endpoint": endpoint, "queue": "speculating", "group": name, "minPartitions": "4"}
    messages = spark.readStream.format("vibemq").options(**options).load()
    rows = messages.select(slow(messages.body.cast("string")).alias("body"))
    query = writer(rows).option("checkpointLocation", str(folder / f"{name}.checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()

target = {"endpoint": endpoint, "queue": "speculating.out", "exactlyOnce": "true"}
run("once", lambda rows: rows.writeStream.format("vibemq").options(**target))
run("files", lambda rows: rows.writeStream.format("json").option("path", str(folder / "files")))
(folder / "files.txt").write_text("\\n".join(row.body for row in spark.read.json(str(folder / "files")).collect()))
"""


def test_a_task_that_was_overtaken_by_its_copy_adds_nothing(master: str, broker: BrokerProcess, folder: Path) -> None:
    """`spark.speculation`: the first attempt waits until another one has begun."""
    place = folder / "speculating"
    place.mkdir()
    (place / "job.py").write_text(SPECULATING_JOB)
    eager = {"quantile": "0.5", "multiplier": "1.1", "minTaskRuntime": "100ms", "interval": "50ms"}
    settings = {"spark.speculation": "true", **{f"spark.speculation.{name}": value for name, value in eager.items()}}
    configured = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    with vibemq.sync.connect(broker.url) as mq:
        wanted = [one["order"] for one in filled(mq, "speculating")]
        for group in ("once", "files"):
            mq.admin("group.join", queue="speculating", group=group)
        job = (*configured, str(place / "job.py"), endpoint(broker), str(place))
        submit(folder, master, tidy.environment(folder), *job)
        assert {file.name for file in place.glob("*.overtaken")} == {"once.overtaken", "files.overtaken"}
        assert sorted(row["order"] for row in drained(mq, "speculating.out")) == wanted
    assert sorted(json.loads(line)["order"] for line in (place / "files.txt").read_text().splitlines()) == wanted


CONNECT_JOB = """
import json, sys
from pyspark.sql import SparkSession
from vibemq.spark import register

remote, endpoint, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
register(spark, ship=True)
options = {"endpoint": endpoint, "queue": "connect"}
rows = spark.read.format("vibemq").options(**options).load().count()
messages = spark.readStream.format("vibemq").options(**options).option("group", "connect").load()
writer = messages.select("body").writeStream.format("vibemq").options(endpoint=endpoint, queue="connect.out")
query = writer.option("exactlyOnce", "true").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()

def in_batches(group, breaks, **name):
    def write(frame, batch_id):
        more = {**name, "txnVersion": batch_id} if name else {}
        target = {"endpoint": endpoint, "queue": "connect.batches", "exactlyOnce": "true"}
        frame.select("body").write.format("vibemq").options(**target, **more).mode("append").save()
        if breaks:
            raise RuntimeError("broken on purpose")

    messages = spark.readStream.format("vibemq").options(**options).option("group", group).load()
    writer = messages.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint + group)
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:
        return str(error)
    return ""

said = [in_batches("nameless", False)]
said += [in_batches("named", breaks, txnAppId="connect/batches") for breaks in (True, False)]
print(json.dumps({"rows": rows, "said": said}))
"""


@pytest.mark.skipif(find_spec("grpc_status") is None, reason="Spark Connect needs pyspark[connect]")
def test_spark_connect(broker: BrokerProcess, folder: Path) -> None:
    """A server whose Python has no vibemq; the client ships it."""
    port = free_port()
    environment = tidy.environment(folder)
    python = folder / "python-without"
    environment |= {"PYSPARK_PYTHON": str(python) if python.exists() else without_vibemq(folder)}
    settings = tidy.settings(folder) | {"spark.connect.grpc.binding.port": str(port), "spark.master": "local[2]"}
    configured = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    launch = ("org.apache.spark.deploy.SparkSubmit", *configured, "--class", server, "spark-internal")
    with daemon(folder, "connect", *launch, environment=environment) as log, vibemq.sync.connect(broker.url) as mq:
        orders = filled(mq, "connect")
        for group in ("nameless", "named"):
            mq.admin("group.join", queue="connect", group=group)
        wait_until_open(port, log)
        arguments = (f"sc://127.0.0.1:{port}", endpoint(broker), str(folder / "connect"))
        done = subprocess.run(
            [sys.executable, "-c", CONNECT_JOB, *arguments],
            env=os.environ | {"PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            timeout=ENOUGH_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr[-4000:]}\n{log.read_text(errors='replace')[-4000:]}"
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["rows"] == len(orders)
        assert "exactlyOnce needs the name of the batch" in found["said"][0]
        assert "broken on purpose" in found["said"][1]
        assert found["said"][2] == ""
        for queue in ("connect.out", "connect.batches"):
            assert sorted(row["order"] for row in drained(mq, queue)) == [one["order"] for one in orders]
