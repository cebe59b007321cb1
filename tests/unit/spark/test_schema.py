"""Which columns may be read and written, and how the others are refused."""

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from vibemq.spark.errors import OptionError
from vibemq.spark.options import parse
from vibemq.spark.schema import check_read, check_write, read_schema
from vibemq.spark.source import DefaultSource

AT = {"endpoint": "localhost", "queue": "orders"}
TEXTS = MapType(StringType(), StringType())


def struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_the_columns_of_a_queue() -> None:
    assert DefaultSource(AT).schema().simpleString() == (
        "struct<queue:string,seq:bigint,message_id:string,body:binary,enqueued_at:timestamp,priority:tinyint,"
        "attempts:int,key:string,content_type:string,headers:map<string,binary>>"
    )


def test_the_columns_of_dead_letters() -> None:
    names = DefaultSource({**AT, "deadLetters": "true"}).schema().simpleString()
    assert names.endswith(
        "dead_id:bigint,origin_queue:string,origin_seq:bigint,origin_group:string,reason:string,detail:string,"
        "failed:int,first_failed_at:timestamp,dead_at:timestamp>"
    )


def test_columns_may_be_chosen() -> None:
    assert DefaultSource({**AT, "columns": "body, seq"}).schema().names == ["body", "seq"]
    assert "headers" not in DefaultSource({**AT, "includeHeaders": "false"}).schema().names
    assert "headers" in DefaultSource({**AT, "includeHeaders": "false", "columns": "headers"}).schema().names


def test_a_column_that_does_not_exist_is_refused() -> None:
    with pytest.raises(OptionError, match="option columns names 'sequence'; the columns are queue, seq"):
        read_schema(parse({**AT, "columns": "sequence"}))
    with pytest.raises(OptionError, match="a column 'dead_id'; the source has queue, seq"):
        check_read(struct(dead_id=LongType()), parse(AT))
    check_read(struct(dead_id=LongType()), parse({**AT, "deadLetters": "true"}))


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("seq", IntegerType(), "column 'seq' is bigint, not int"),
        ("body", StringType(), r"column 'body' is binary, not string; cast\(body as string\)"),
        ("headers", TEXTS, "column 'headers' is map<string,binary>, not map<string,string>"),
    ],
)
def test_a_column_of_another_type_is_refused(name: str, kind: DataType, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        check_read(struct(**{name: kind}), parse(AT))


@pytest.mark.parametrize(
    "columns",
    [
        {"body": BinaryType()},
        {"body": StringType(), "headers": TEXTS, "priority": IntegerType(), "deliver_at": TimestampType()},
        {"body": BinaryType(), "seq": LongType(), "enqueued_at": TimestampType(), "attempts": IntegerType()},
    ],
)
def test_rows_that_can_be_published(columns: dict[str, DataType]) -> None:
    check_write(struct(**columns), parse(AT))


@pytest.mark.parametrize(
    ("options", "columns", "sentence"),
    [
        ({}, {"value": StringType()}, "needs a column 'body'; there are value"),
        ({}, {"body": StringType(), "partition": StringType()}, "nothing can be done with column 'partition'"),
        ({}, {"body": LongType()}, "column 'body' is bigint; it must be binary or string"),
        ({}, {"body": StringType(), "priority": DoubleType()}, "'priority' is double; it must be bigint or int"),
        ({"dedup": "true"}, {"body": StringType()}, "dedup=true needs a column message_id"),
        (
            {},
            {"body": StringType(), "delay_ms": LongType(), "deliver_at": TimestampType()},
            "one of the columns delay_ms and deliver_at",
        ),
        ({"action": "reject", "group": "g"}, {"reason": StringType()}, "needs a column 'seq'"),
        ({"action": "redrive"}, {"seq": LongType()}, "needs a column 'dead_id'"),
        ({"action": "reject", "group": "g"}, {"seq": StringType()}, "'seq' is string; it must be bigint"),
    ],
)
def test_rows_that_cannot_be_written(options: dict[str, str], columns: dict[str, DataType], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        check_write(struct(**columns), parse({**AT, **options}))


def test_rows_do_not_go_back_where_they_were_read() -> None:
    """A copy of a queue would be written into the queue itself, for ever."""
    read = DefaultSource(AT).schema()
    with pytest.raises(OptionError, match=r"go back there instead of into queue 'copies'. Drop the column queue; or"):
        check_write(read, parse({**AT, "queue": "copies"}))
    check_write(struct(**{name: read[name].dataType for name in read.names if name != "queue"}), parse(AT))
    check_write(struct(**{name: read[name].dataType for name in read.names if name != "seq"}), parse(AT))
    check_write(read, parse({"endpoint": "localhost"}))
    check_write(read, parse({**AT, "action": "reject", "group": "g"}))


def test_without_a_queue_nothing_can_be_written() -> None:
    settings = parse({"endpoint": "localhost"})
    with pytest.raises(OptionError, match="no row says where it belongs"):
        check_write(struct(body=StringType()), settings)
    check_write(struct(body=StringType(), queue=StringType()), settings)


def test_overwriting_is_refused() -> None:
    for make in (DefaultSource(AT).writer, DefaultSource(AT).streamWriter):
        with pytest.raises(OptionError, match="cannot be overwritten"):
            make(struct(body=StringType()), True)


def test_an_unknown_option_is_refused_at_once() -> None:
    with pytest.raises(OptionError, match="did you mean 'group'"):
        DefaultSource({**AT, "grop": "etl"})
