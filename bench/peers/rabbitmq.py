"""RabbitMQ over AMQP 0-9-1 through pika's SelectConnection, the fastest that pika offers: publisher confirms within a
window, one acknowledgement for many deliveries.

S and W: a quorum queue, or a durable classic queue with persistent messages; RabbitMQ has no switch between flushing
and writing, so the same serves for both. T: a classic queue with transient messages.
Fan-out: a fanout exchange with one durable classic queue per pass.
"""

import shutil
from pathlib import Path
from typing import Any, ClassVar

import pika

from bench.common.load import Bodies, Go, Job, Pacer, Span, now, sent_at
from bench.common.peer import Guarantee, Peer
from bench.common.servers import Plan, free_port

QUEUE, EXCHANGE = "bench", "bench.fanout"
WINDOW = 1000
ACK_EVERY = 100
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The server itself; the command in PATH is a wrapper that changes users."""
_MISSING = "rabbitmq-server is not installed (apt-get install rabbitmq-server)"


class _RabbitMQ(Peer):
    server_name = "rabbitmq"
    arguments: ClassVar[dict[str, str]] = {}

    @classmethod
    def missing(cls) -> str:
        return "" if SERVER.exists() and shutil.which("epmd") else _MISSING

    def instance(self) -> str:
        return self.server_name

    def plan(self, folder: Path) -> Plan:
        epmd, distribution = free_port(), free_port()
        memory = "vm_memory_high_watermark.relative = 0.6\ndisk_free_limit.absolute = 1GB\n"
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self.port}\n{memory}")
        (folder / "enabled_plugins").write_text("[].\n")
        # The Erlang port mapper would start by itself, detach, and outlive the server.
        mapper = [shutil.which("epmd") or "epmd", "-address", "127.0.0.1", "-port", str(epmd)]
        return Plan([str(SERVER)], _environment(folder, epmd, distribution), companions=[mapper])

    def set_up(self, job: Job) -> None:
        connection = pika.BlockingConnection(self._parameters())
        channel = connection.channel()
        durable = self.guarantee is not Guarantee.TRANSIENT
        if job.subscribers > 1:
            channel.exchange_declare(EXCHANGE, "fanout", durable=True)
        for queue in _queues(job):
            channel.queue_declare(queue, durable=durable, arguments=self.arguments)
            if job.subscribers > 1:
                channel.queue_bind(queue, EXCHANGE)
        connection.close()
        self._made = _queues(job)

    def tear_down(self) -> None:
        connection = pika.BlockingConnection(self._parameters())
        channel = connection.channel()
        for queue in self._made:
            channel.queue_delete(queue)
        channel.exchange_delete(EXCHANGE)
        connection.close()

    def _parameters(self) -> Any:
        return pika.ConnectionParameters("127.0.0.1", self.port, heartbeat=0, blocked_connection_timeout=600)

    def produce(self, job: Job, go: Go) -> Span:
        mode = 1 if self.guarantee is Guarantee.TRANSIENT else 2
        return _Producer(self._parameters(), pika.BasicProperties(delivery_mode=mode), job, go).run()

    def consume(self, job: Job, go: Go) -> Span:
        return _Consumer(self._parameters(), job, go).run()

    def consume_fan_out(self, job: Job, go: Go) -> Span:
        return self.consume(job, go)


class Quorum(_RabbitMQ):
    guarantees = frozenset({Guarantee.STRONG, Guarantee.WEAK})
    arguments: ClassVar[dict[str, str]] = {"x-queue-type": "quorum"}


class Classic(_RabbitMQ):
    guarantees = frozenset({Guarantee.STRONG, Guarantee.WEAK, Guarantee.TRANSIENT})


class _Producer:
    """One connection with one channel in confirm mode."""

    def __init__(self, parameters: Any, properties: Any, job: Job, go: Go) -> None:
        self._job = job
        self._go = go
        self._window = job.window or WINDOW
        self._properties = properties
        self._bodies = Bodies(job.size)
        self._exchange, self._key = (EXCHANGE, "") if job.subscribers > 1 else ("", QUEUE)
        self._sent = self._confirmed = 0
        self._upto = 0
        """All tags up to this one are confirmed."""
        self._beyond: set[int] = set()
        """Confirmed tags above it."""
        self._dues: dict[int, float] = {}
        self._latencies: list[float] = []
        self._refused = 0
        self._ended = 0.0
        self._connection = pika.SelectConnection(
            parameters, on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened)
        )

    def run(self) -> Span:
        self._connection.ioloop.start()
        if self._refused:
            raise RuntimeError(f"RabbitMQ refused {self._refused} messages")
        return Span(self._began, self._ended, self._confirmed, self._latencies)

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._begin())

    def _begin(self) -> None:
        self._go()
        self._began = now()
        if self._job.rate:
            self._pacer = Pacer(self._job.rate, self._job.messages)
            self._pace()
        else:
            self._fill()

    def _fill(self) -> None:
        end = min(self._job.messages, self._confirmed + self._window)
        publish, make = self._channel.basic_publish, self._bodies.make
        for number in range(self._sent, end):
            publish(self._exchange, self._key, make(number), self._properties)
        self._sent = end

    def _pace(self) -> None:
        while self._sent < self._job.messages:
            delay = self._pacer.delay(self._sent)
            if delay > 0:
                self._connection.ioloop.call_later(delay, self._pace)
                return
            due_at = self._pacer.due_at(self._sent)
            self._channel.basic_publish(
                self._exchange, self._key, self._bodies.make(self._sent, due_at), self._properties
            )
            self._sent += 1
            self._dues[self._sent] = due_at

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        tags = range(self._upto + 1, method.delivery_tag + 1) if method.multiple else (method.delivery_tag,)
        fresh = [tag for tag in tags if tag not in self._beyond]
        if method.multiple:
            self._upto = method.delivery_tag
            self._beyond.difference_update(tags)
        else:
            self._beyond.update(fresh)
        if self._job.rate:
            at = now()
            self._latencies += [at - self._dues[tag] for tag in fresh]
        self._refused += len(fresh) if isinstance(method, pika.spec.Basic.Nack) else 0
        self._confirmed += len(fresh)
        if self._confirmed >= self._job.messages:
            self._ended = now()
            self._connection.close()
            self._connection.ioloop.stop()
        elif not self._job.rate and self._sent - self._confirmed <= self._window - self._window // 10:
            self._fill()


class _Consumer:
    """One connection with one channel per queue."""

    def __init__(self, parameters: Any, job: Job, go: Go) -> None:
        self._job = job
        self._go = go
        self._ack_every = 1 if job.rate else max(1, min(ACK_EVERY, job.prefetch // 4))
        self._latencies: list[float] = []
        self._open = self._closing = job.subscribers
        self._ended = 0.0
        self._channels: list[tuple[Any, str]] = []
        self._queues = iter(_queues(job))
        self._connection = pika.SelectConnection(parameters, on_open_callback=self._connected)

    def run(self) -> Span:
        self._connection.ioloop.start()
        return Span(self._began, self._ended, len(self._latencies), self._latencies)

    def _connected(self, connection: Any) -> None:
        for _ in range(self._job.subscribers):
            connection.channel(on_open_callback=self._opened)

    def _opened(self, channel: Any) -> None:
        queue = next(self._queues)
        self._channels.append((channel, queue))
        channel.basic_qos(prefetch_count=self._job.prefetch, callback=lambda _: self._ready())

    def _ready(self) -> None:
        self._open -= 1
        if self._open:
            return
        self._go()
        self._began = now()
        for channel, queue in self._channels:
            channel.basic_consume(queue, self._taker(queue))

    def _taker(self, queue: str) -> Any:
        taken = 0
        latencies, ack_every, messages = self._latencies, self._ack_every, self._job.messages

        def take(channel: Any, method: Any, _properties: Any, body: bytes) -> None:
            nonlocal taken
            taken += 1
            latencies.append(now() - sent_at(body))
            if taken % ack_every == 0 or taken == messages:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if taken == messages:
                # A round trip behind the last acknowledgement: the server has read it.
                channel.queue_declare(queue, passive=True, callback=self._finished)

        return take

    def _finished(self, _frame: Any) -> None:
        self._closing -= 1
        if not self._closing:
            self._ended = now()
            self._connection.close()
            self._connection.ioloop.stop()


def _queues(job: Job) -> list[str]:
    return [QUEUE] if job.subscribers == 1 else [f"{QUEUE}-{number}" for number in range(job.subscribers)]


def _environment(folder: Path, epmd: int, distribution: int) -> dict[str, str]:
    return {
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"bench{epmd}@localhost",
        "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
        "RABBITMQ_LOG_BASE": f"{folder}/log",
        "RABBITMQ_PID_FILE": f"{folder}/pid",
        "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_SERVER_START_ARGS": "",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_GENERATED_CONFIG_DIR": f"{folder}/generated",
        "RABBITMQ_FEATURE_FLAGS_FILE": f"{folder}/feature_flags",
        "RABBITMQ_PLUGINS_EXPAND_DIR": f"{folder}/plugins-expand",
        "RABBITMQ_QUORUM_DIR": f"{folder}/quorum",
        "ERL_EPMD_PORT": str(epmd),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
