"""The client's path of one message at a time: published and waited for, received and acknowledged. As `hot_path`, but
for the tasks, which need a loop; the broker's side is bytes that are there beforehand."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

from bench.guard.hot_path import BODY, MESSAGES, QUEUE, Maker, Scenario, packed_rows
from vibemq.client.address import ClientSettings
from vibemq.client.connecting.direct_connection import DirectConnection
from vibemq.client.connecting.plain_socket import PlainSocket
from vibemq.client.link import ClientLink
from vibemq.client.protocol import ClientProtocol
from vibemq.client.publisher import Publishing
from vibemq.client.publishing.outgoing import Outgoing
from vibemq.client.receiving.options import SubscribeOptions
from vibemq.client.subscription import Subscription
from vibemq.model.rows import Rows
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.sync.publish_connection import PublishConnection
from vibemq.testing.session_conformance import NOW


def single_scenarios() -> dict[str, Maker]:
    return {
        "client publishes one by one": _client_publishes,
        "blocking client publishes one by one": _blocking_client_publishes,
        "client receives one by one": _client_receives,
    }


class _Wire(asyncio.Transport):
    """Answers everything that is written with the next of the frames, in the next turn of the loop."""

    def __init__(self, answers: Iterator[bytes]) -> None:
        super().__init__()
        self.connection: DirectConnection
        self._answers = answers
        self.written = 0

    def write(self, data: Any) -> None:
        self.written += 1
        answer = next(self._answers, None)
        if answer is not None:
            asyncio.get_running_loop().call_soon(self.connection.data_received, answer)


def _confirms() -> Iterator[bytes]:
    """Of publishes whose ids are the first numbers."""
    frames = [encode_frame(extensions.publish_many_ack(f"{n:x}", QUEUE, n, 1)) for n in range(1, MESSAGES + 1)]
    return iter(frames)


async def _connected(answers: Iterator[bytes]) -> tuple[ClientLink, _Wire, Callable[[], object]]:
    ours, theirs = socket.socketpair()
    link, wire = ClientLink(ClientSettings(), 0.0, None, asyncio.get_running_loop), _Wire(answers)
    protocol = ClientProtocol(link.settings)
    wire.connection = DirectConnection(PlainSocket(ours), protocol, link)
    link.online(protocol, 0.0)
    wire.connection.connection_made(wire)
    await asyncio.sleep(0)
    return link, wire, lambda: (ours.close(), theirs.close())


def _in_a_loop(prepare: "Callable[[], Awaitable[Callable[[], Awaitable[None]]]]", counted: list[int]) -> Scenario:
    """`prepare` connects, and returns the work."""
    loop = asyncio.new_event_loop()

    def check() -> None:
        assert counted == [MESSAGES]

    work = loop.run_until_complete(prepare())
    return Scenario(lambda: loop.run_until_complete(work()), check, loop.close)


def _client_publishes(_: Path) -> Scenario:
    counted: list[int] = []

    async def prepare() -> Callable[[], Awaitable[None]]:
        link, _wire, close = await _connected(_confirms())
        publishing = Publishing(link)

        async def work() -> None:
            for _ in range(MESSAGES):
                receipt = await publishing.one(QUEUE, Outgoing(BODY))
            counted.append(receipt.sequence)
            close()

        return work

    return _in_a_loop(prepare, counted)


def _blocking_client_publishes(_: Path) -> Scenario:
    link = ClientLink(ClientSettings(), 0.0)
    publishing = Publishing(link)
    connection = PublishConnection(
        cast(socket.socket, _Socket(_confirms())), ClientProtocol(link.settings), link.settings, 0
    )
    sequences: list[int] = []

    def work() -> None:
        for _ in range(MESSAGES):
            receipt = connection.publish(publishing.pack(QUEUE, Outgoing(BODY)))
            assert receipt is not None
            sequences.append(receipt.sequence)

    def check() -> None:
        assert sequences == list(range(1, MESSAGES + 1))

    return Scenario(work, check)


class _Socket:
    """What a blocking connection calls of a socket."""

    def __init__(self, answers: Iterator[bytes]) -> None:
        self._answers = answers

    def setblocking(self, flag: bool) -> None: ...

    def settimeout(self, seconds: float) -> None: ...

    def setsockopt(self, *option: object) -> None: ...

    def sendall(self, data: bytes) -> None: ...

    def recv(self, size: int) -> bytes:
        return next(self._answers)


def _client_receives(_: Path) -> Scenario:
    """With a prefetch of one: each acknowledgement is sent at once, and brings the next delivery."""
    counted: list[int] = []

    async def prepare() -> Callable[[], Awaitable[None]]:
        rows = packed_rows()
        # The first number of the link names the subscription.
        answers = [encode_frame(encode_body(CommandType.SUBSCRIBE_ACK, "s1", QUEUE))]
        answers[0] += encode_frame(extensions.deliver_many("s1", QUEUE, 1, NOW, Rows.of(rows[:1])))
        for n, row in enumerate(rows[1:], 2):
            answers.append(encode_frame(extensions.deliver_many("s1", QUEUE, n, NOW, Rows.of([row]))))
        link, wire, close = await _connected(iter(answers))
        subscription: Subscription[Any] = Subscription(link, SubscribeOptions(queue=QUEUE, prefetch=1), None)
        await subscription.start()

        async def work() -> None:
            async for message in subscription:
                assert message.payload == BODY
                message.ack()
                if message.sequence == MESSAGES:
                    break
            await asyncio.sleep(0)
            counted.append(wire.written - 1)
            close()

        return work

    return _in_a_loop(prepare, counted)
