"""Connections that tasks leave for the next one: a Python worker of Spark serves many tasks."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.options import SourceOptions

_HOME = "_vibemq_spark_connections"
"""A module of its own in `sys.modules`: code that was shipped with the plan is unpickled anew for each task, and its
globals with it; and what is pickled must not meet a socket."""
IDLE_MOST = 4


@contextmanager
def leased(settings: SourceOptions) -> Iterator[BrokerClient]:
    """A client for this thread alone, connected already if an earlier task left one."""
    idle = _idle(settings)
    try:
        client = idle.pop()
    except IndexError:
        client = BrokerClient(settings)
    client.freshen()
    try:
        yield client
    except BaseException:
        # Also when Spark stops reading in the middle: an answer may be on its way.
        client.close()
        raise
    if client.is_idle and len(idle) < IDLE_MOST:
        idle.append(client)
    else:
        client.close()


def _idle(settings: SourceOptions) -> list[BrokerClient]:
    home = sys.modules.setdefault(_HOME, ModuleType(_HOME))
    by_peer: dict[object, list[BrokerClient]] = home.__dict__.setdefault("idle", {})
    return by_peer.setdefault((os.getpid(), *_peer(settings)), [])


def _peer(settings: SourceOptions) -> tuple[object, ...]:
    """Everything that makes one connection differ from another."""
    return (
        settings.endpoint,
        (settings.username, settings.password_file, settings.password_env, settings.token_file, settings.token_env),
        (settings.tls, settings.tls_ca, settings.tls_verify, settings.tls_server_name, settings.tls_certificate),
        settings.retry_timeout_ms,
    )
