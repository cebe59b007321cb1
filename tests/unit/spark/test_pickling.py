"""What crosses between processes, and what importing costs there."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from vibemq.spark.source import DefaultSource
from vibemq.spark.write.sink import SinkTransaction, Written

OPTIONS = {"endpoint": "localhost", "queue": "orders"}
BODY = StructType([StructField("body", BinaryType())])

SHIPPED = """
import sys
from pyspark import cloudpickle
import vibemq.spark

class Registry:
    def register(self, source):
        self.source = cloudpickle.dumps(source)

class Session:
    dataSource = Registry()

vibemq.spark.register(Session, ship=True)
sys.stdout.buffer.write(Session.dataSource.source)
"""
UNPACKED = """
import importlib.abc, pickle, sys

class Nothing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "vibemq":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Nothing())
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType
source = pickle.loads(sys.stdin.buffer.read())
body = StructType([StructField("body", BinaryType())])
for use in ({}, {"group": "etl"}):
    made = source({"endpoint": "localhost:1", "queue": "orders", "retryTimeout": "1ms", **use})
    again = pickle.loads(cloudpickle.dumps(made))
    reader = again.streamReader(body) if use else again.reader(body)
    reader = pickle.loads(cloudpickle.dumps(reader))
    try:
        reader.initialOffset() if use else reader.partitions()
    except Exception as error:
        print(type(error).__name__, error)
    writer = None if use else pickle.loads(cloudpickle.dumps(again.writer(body, False)))
try:
    source({"nonsense": "1"})
except Exception as error:
    print(error)
print(sorted(name for name in sys.modules if name.startswith("vibemq")))
"""


def copy(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def run(program: str, given: bytes = b"") -> bytes:
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], input=given, capture_output=True, cwd=root, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_sources_readers_and_writers_are_copied() -> None:
    source = copy(DefaultSource(OPTIONS))
    assert source.schema().names[0] == "queue"
    assert copy(source.reader(BODY))._settings.queue == "orders"
    assert copy(source.writer(BODY, False))._settings.max_in_flight == 4
    streamed = DefaultSource({**OPTIONS, "group": "etl"})
    assert copy(streamed.streamReader(BODY))._settings.group == "etl"
    assert copy(DefaultSource(OPTIONS).streamWriter(BODY, False))._settings.queue == "orders"


def test_messages_are_copied() -> None:
    written = Written(3, SinkTransaction("app", 7, "stage"))
    assert copy(written) == written


def test_no_partitions_at_all_read_nothing() -> None:
    reader = DefaultSource(OPTIONS).reader(BODY)
    assert list(reader.read(InputPartition(None))) == []


@pytest.mark.slow
def test_code_is_shipped_whole() -> None:
    """Unpickled where `vibemq` cannot be imported, it works as far as it can without a broker."""
    said = run(UNPACKED, run(SHIPPED)).decode().splitlines()
    assert said[:2] == [
        line for line in said[:2] if line.startswith("Unreachable cannot reach the broker at localhost:1")
    ]
    assert "unknown option 'nonsense'" in said[2]
    assert said[3] == "['vibemq']" or said[3] == "[]"


@pytest.mark.slow
def test_executors_import_nothing_but_spark_and_arrow() -> None:
    program = "import sys, vibemq.spark, pyspark_vibemq; print(*sys.modules); assert pyspark_vibemq.DefaultSource"
    loaded = set(run(program).decode().split())
    assert not loaded & {"anyio", "lmdb", "orjson", "pydantic", "brotli", "rich", "starlette", "uvloop"}
    ours = {name for name in loaded if name.startswith("vibemq")}
    others = {name for name in ours if not name.startswith("vibemq.spark")}
    assert others == {"vibemq", "vibemq._version", "vibemq.model", "vibemq.model.quantities"}


@pytest.mark.slow
def test_planning_processes_do_not_pay_for_arrow() -> None:
    """Spark makes several for each micro-batch; pyarrow takes longer to import than all the rest."""
    program = """
import sys
from vibemq.spark.source import DefaultSource
from pyspark.sql.types import BinaryType, StructField, StructType
options = {"endpoint": "localhost:1", "queue": "q", "retryTimeout": "0"}
body = StructType([StructField("body", BinaryType())])
DefaultSource(options).schema()
DefaultSource({**options, "group": "g"}).streamReader(body)
DefaultSource(options).streamWriter(body, False).commit([None], 0)
print("pyarrow" in sys.modules)
"""
    assert run(program) == b"False\n"


OLDER = """
import sys, pyspark, pyspark.sql.datasource
sys.modules["pyspark.sql.streaming.datasource"] = None
pyspark.__version__ = "4.1.2"
"""
"""PySpark 4.1, as far as its names go."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        'from pyspark_vibemq import DefaultSource; DefaultSource({"endpoint": "localhost:1", "queue": "q"})',
        "from vibemq.spark import register; register(None)",
    ],
    ids=["discovered", "registered"],
)
@pytest.mark.parametrize("lacks", ["", "del pyspark.sql.datasource.DataSourceStreamArrowWriter"], ids=["4.1", "4.0"])
def test_an_older_spark_is_refused_at_the_start(lacks: str, start: str) -> None:
    """It asks for the end of a batch without saying where the batch begins: none could be acknowledged or repeated."""
    program = f"""{OLDER}{lacks}
try:
    {start}
except Exception as error:
    print(type(error).__name__, error)
"""
    told = run(program).decode()
    assert told.startswith("SourceError VibeMQ's data source needs PySpark 4.2 or later, and this is PySpark 4.1.2")


@pytest.mark.slow
def test_the_module_that_spark_finds_can_always_be_imported() -> None:
    program = "import sys; sys.modules['pyspark'] = None; import pyspark_vibemq; print(pyspark_vibemq.__all__)"
    assert run(program) == b"[]\n"
