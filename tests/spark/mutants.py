"""Sabotaged sinks, which the tests of exactly once must notice. Sent with the plan: see `registered`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

from pyspark import TaskContext, cloudpickle
from pyspark.sql.types import StructType

from vibemq.spark import register
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.source import DefaultSource
from vibemq.spark.write.identity import BatchWrite, application_of, begin
from vibemq.spark.write.sink import BatchWriter, SinkTransaction, StreamWriter


def _write() -> BatchWrite:
    context = TaskContext.get()
    assert context is not None
    write = BatchWrite.of(context.getLocalProperty)
    assert write is not None
    return write


class Mutant(DefaultSource):
    """Its writers find their names with `name`."""

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return _changed(super().writer(schema, overwrite), type(self))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return _changed(super().streamWriter(schema, overwrite), type(self))

    @staticmethod
    def transaction(sink: Any, client: BrokerClient) -> SinkTransaction:
        raise NotImplementedError


def _changed(writer: Any, mutant: type[Mutant]) -> Any:
    kind = type(writer)
    writer.__class__ = type("Changed", (kind,), {"_transaction": lambda sink, client: mutant.transaction(sink, client)})
    return writer


class NewNames(Mutant):
    """A new name in every run."""

    @staticmethod
    def transaction(sink: Any, client: BrokerClient) -> SinkTransaction:
        return SinkTransaction(sink._once, 0, uuid4().hex)


class OneName(Mutant):
    """One name for all writes of a batch."""

    @staticmethod
    def transaction(sink: Any, client: BrokerClient) -> SinkTransaction:
        write = _write()
        return SinkTransaction(application_of(write.query, "", 1), write.batch, uuid4().hex, write.run)


class CountsOn(Mutant):
    """Writes are counted as time goes by, whatever run they belong to."""

    @staticmethod
    def transaction(sink: Any, client: BrokerClient) -> SinkTransaction:
        write = replace(_write(), run="always")
        place = begin(client, write, "")
        name = application_of(write.query, "", place.entry.number)
        return SinkTransaction(name, write.batch, uuid4().hex, write.run, place)


@contextmanager
def registered(spark: Any, mutant: type[Mutant]) -> Iterator[None]:
    """The mutant in the place of the source."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        spark.dataSource.register(cast(Any, mutant))
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
        register(spark)
