"""What a system under measurement has to offer: a server that can be started, and both ends of a load."""

from abc import ABC, abstractmethod
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from bench.common.load import Go, Job, Span
from bench.common.servers import Plan


class Guarantee(StrEnum):
    """When a publish is confirmed."""

    STRONG = "S"
    """Flushed to the disk."""
    WEAK = "W"
    """Written; flushed by timer."""
    ASYNC = "A"
    """Accepted; written soon. Only VibeMQ has it."""
    TRANSIENT = "T"
    """In memory."""


class Peer(ABC):
    """One system at one guarantee, on one port. Both the measuring process and the load processes make one.

    `produce`, `consume` and `consume_fan_out` run in processes of their own; each connects, calls `go` and then does
    the job, as a user of that client would who cares about speed.
    """

    server_name: ClassVar[str]
    guarantees: ClassVar[frozenset[Guarantee]]

    def __init__(self, guarantee: Guarantee, port: int = 0) -> None:
        self.guarantee = guarantee
        self.port = port
        self.name = ""
        """What `PLACES` calls it; like the port, the laboratory says so."""

    # -- server ---------------------------------------------------------------------------------------------------

    @classmethod
    def missing(cls) -> str:
        """What keeps this peer from being measured here, as a clause with its remedy; empty when nothing does."""
        return ""

    def unfit(self) -> str:
        """What keeps an installed server from giving this guarantee; empty when nothing does."""
        return ""

    def instance(self) -> str:
        """Guarantees with the same instance share a server."""
        return f"{self.server_name}-{self.guarantee}"

    @abstractmethod
    def plan(self, folder: Path) -> Plan:
        """Prepare the (empty) folder, and say how to start the server."""

    # -- queue ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def set_up(self, job: Job) -> None:
        """An empty queue, or `job.subscribers` passes over one."""

    @abstractmethod
    def tear_down(self) -> None:
        """Remove it."""

    # -- load -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def produce(self, job: Job, go: Go) -> Span: ...

    @abstractmethod
    def consume(self, job: Job, go: Go) -> Span: ...

    def consume_fan_out(self, job: Job, go: Go) -> Span:
        """As `consume`, for `job.subscribers` passes at once; `Span.messages` counts deliveries."""
        raise NotImplementedError(f"{type(self).__name__} has no fan-out here")


PLACES = {
    "vibemq": "bench.peers.vibemq_native:VibeMQ",
    "vibemq-queues": "bench.alone.shapes:ManyQueues",
    "vibemq-connections": "bench.alone.shapes:ManyConnections",
    "redis": "bench.peers.redis_streams:RedisStreams",
    "rabbitmq-quorum": "bench.peers.rabbitmq:Quorum",
    "rabbitmq-classic": "bench.peers.rabbitmq:Classic",
    "nats": "bench.peers.nats_jetstream:JetStream",
    "postgresql": "bench.peers.postgresql:SkipLocked",
    "beanstalkd": "bench.peers.beanstalkd:Beanstalkd",
}
"""Where the class of each peer stands; imported only when it is asked for, as each needs its client installed."""


def peer_class(name: str) -> type[Peer]:
    """
    Raises:
        ImportError: its Python client is not installed.
    """
    module, _, attribute = PLACES[name].partition(":")
    found: type[Peer] = getattr(import_module(module), attribute)
    return found
