"""Columns: what a read offers, what a write takes, and the checks that they fit.

Their names are compared without regard to case, as Spark does.
"""

from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from vibemq.spark.errors import OptionError
from vibemq.spark.options import SourceOptions

_HEADERS = MapType(StringType(), BinaryType(), True)

QUEUE_COLUMNS: dict[str, DataType] = {
    "queue": StringType(),
    "seq": LongType(),
    "message_id": StringType(),
    "body": BinaryType(),
    "enqueued_at": TimestampType(),
    "priority": ByteType(),
    "attempts": IntegerType(),
    "key": StringType(),
    "content_type": StringType(),
    "headers": _HEADERS,
}
DEAD_COLUMNS: dict[str, DataType] = {
    "dead_id": LongType(),
    "origin_queue": StringType(),
    "origin_seq": LongType(),
    "origin_group": StringType(),
    "reason": StringType(),
    "detail": StringType(),
    "failed": IntegerType(),
    "first_failed_at": TimestampType(),
    "dead_at": TimestampType(),
}

_WHOLE = (LongType(), IntegerType(), ShortType(), ByteType())
PUBLISH_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "body": (BinaryType(), StringType()),
    "queue": (StringType(),),
    "message_id": (StringType(),),
    "key": (StringType(),),
    "content_type": (StringType(),),
    "priority": _WHOLE,
    "delay_ms": _WHOLE,
    "deliver_at": (TimestampType(),),
    "ttl_ms": _WHOLE,
    "headers": (_HEADERS, MapType(StringType(), StringType(), True)),
}
REJECT_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "queue": (StringType(),),
    "seq": _WHOLE,
    "reason": (StringType(),),
}
REDRIVE_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "queue": (StringType(),),
    "dead_id": _WHOLE,
    "to": (StringType(),),
}
_TAKEN = {"publish": PUBLISH_COLUMNS, "reject": REJECT_COLUMNS, "redrive": REDRIVE_COLUMNS}
_REQUIRED = {"publish": "body", "reject": "seq", "redrive": "dead_id"}


def offered(settings: SourceOptions) -> dict[str, DataType]:
    return QUEUE_COLUMNS | DEAD_COLUMNS if settings.dead_letters else QUEUE_COLUMNS


def read_schema(settings: SourceOptions) -> StructType:
    """What `load()` yields when the user gives no schema. Raises OptionError for a column that does not exist."""
    known = offered(settings)
    asked = [name.lower() for name in settings.columns]
    names = asked or [name for name in known if name != "headers" or settings.include_headers]
    for name in names:
        if name not in known:
            raise OptionError(f"option columns names {name!r}; the columns are {', '.join(known)}")
    return StructType([StructField(name, known[name]) for name in names])


def check_read(schema: StructType, settings: SourceOptions) -> None:
    """Raises OptionError for a column the source does not have, or has with another type."""
    known = offered(settings)
    for column in schema.fields:
        kind = known.get(column.name.lower())
        if kind is None:
            raise OptionError(f"the schema has a column {column.name!r}; the source has {', '.join(known)}")
        if not _alike(column.dataType, kind):
            hint = "; cast(body as string) afterwards" if column.name == "body" else ""
            raise OptionError(
                f"column {column.name!r} is {kind.simpleString()}, not {column.dataType.simpleString()}{hint}"
            )
    if not schema.fields:
        raise OptionError("the schema has no columns")


def check_write(schema: StructType, settings: SourceOptions) -> None:
    """Raises OptionError for missing columns, columns that nothing can be done with, and wrong types."""
    action = settings.action
    taken, needed = _TAKEN[action], _REQUIRED[action]
    given = {column.name.lower(): column.dataType for column in schema.fields}
    if len(given) < len(schema.fields):
        raise OptionError(f"two columns have the same name but for its case: {', '.join(schema.names)}")
    if needed not in given:
        raise OptionError(f"a write with action={action} needs a column {needed!r}; there are {', '.join(given)}")
    for name, kind in given.items():
        if name in taken:
            if not any(_alike(kind, fitting) for fitting in taken[name]):
                choice = " or ".join(dict.fromkeys(fitting.simpleString() for fitting in taken[name]))
                raise OptionError(f"column {name!r} is {kind.simpleString()}; it must be {choice}")
        elif name not in QUEUE_COLUMNS and name not in DEAD_COLUMNS:
            raise OptionError(f"nothing can be done with column {name!r}; a write takes {', '.join(taken)}")
    if "queue" not in given and not settings.queue:
        raise OptionError("no row says where it belongs: give the option queue, or a column queue")
    if action == "publish" and settings.queue and {"queue", "seq"} <= given.keys():
        raise OptionError(
            f"the rows were read from a queue, as their column seq says, and their column queue names it: they would go"
            f" back there instead of into queue {settings.queue!r}. Drop the column queue; or drop seq, if the column"
            " queue says where each row belongs"
        )
    if settings.dedup and "message_id" not in given:
        raise OptionError("dedup=true needs a column message_id, the same for the same message whenever it is written")
    if "delay_ms" in given and "deliver_at" in given:
        raise OptionError("give one of the columns delay_ms and deliver_at")


def _alike(one: DataType, other: DataType) -> bool:
    """Equal but for nullability."""
    if isinstance(one, MapType) and isinstance(other, MapType):
        return _alike(one.keyType, other.keyType) and _alike(one.valueType, other.valueType)
    return type(one) is type(other)
