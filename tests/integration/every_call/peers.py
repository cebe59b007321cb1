"""Peers of the native protocol and of the OCaml message queue. They block, in a thread of their own.

Beside them the queues of the crowded broker.
"""

import socket
import struct
from collections import deque

from tests.integration.access import PASSWORD
from tests.integration.cursor_peer import FRAME_MAX
from tests.integration.cursor_peer import Peer as CursorPeer
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body
from vibemq.protocols.omq.frames import Frame as OmqFrame
from vibemq.protocols.omq.frames import OmqFrameReader, SubscribedFrame

DEAD, LOG, JOBS, HOLES, NEWS = "dead", "log", "jobs", "holes", "news"
"""Queues: of the dead letters; read by very many groups; for messages; one message of two is gone; a fan-out to very
many groups."""
MANY_ROWS = 2_000
BODY = b'"twenty bytes of it"'
ROOT = "root"
EXTENSIONS = "batch/1,cursor/1,admin/1,settle/1"
PLAIN_EXTENSIONS = "settle/1"
"""Of a peer that is handed each message in a frame of its own, and names it by its id."""


class Peer(CursorPeer):
    def __init__(self, port: int, extensions: str = EXTENSIONS) -> None:
        credentials = {"authUsername": ROOT, "authPassword": PASSWORD}
        super().__init__(port, headers={"supported-extensions": extensions, **credentials})

    def frame(self, kind: CommandType, queue: str = "", payload: bytes = b"", **headers: str) -> None:
        self.send(encode_body(kind, "f", queue, payload, {name.replace("_", "-"): v for name, v in headers.items()}))

    def until(self, kind: CommandType) -> bytes:
        while (body := self.receive())[1] not in (kind, CommandType.ERROR):
            pass
        return body

    def settled(self) -> None:
        """Everything that was sent before has been decided."""
        self.frame(CommandType.QUEUE_INFO, "q1")
        self.until(CommandType.QUEUE_INFO)

    def take(self, queue: str, count: int) -> None:
        """Subscribe, and receive so many."""
        self.send(encode_body(CommandType.SUBSCRIBE, "s", queue, b"", {"prefetch": str(count)}))
        while count > 0:
            count -= extensions.parse_deliver_many(self.until(CommandType.DELIVER_MANY)).rows.count

    def take_plain(self, queue: str, count: int) -> list[str]:
        """The same of a peer without batches."""
        self.frame(CommandType.SUBSCRIBE, queue)
        return [decode_body(self.until(CommandType.DELIVER)).id for _ in range(count)]

    def send_all(self, bodies: list[bytes]) -> None:
        """In one piece: the broker reads as many of them together as it ever does."""
        self._socket.sendall(b"".join(encode_frame(body, body_bytes_max=FRAME_MAX) for body in bodies))


class OmqPeer:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._reader = OmqFrameReader()
        self._inbox: deque[OmqFrame] = deque()
        self.say(struct.pack("!q", 1) + f"(Connect 1 {ROOT}:{PASSWORD})\n".encode())
        assert self.socket.recv(8, socket.MSG_WAITALL) == struct.pack("!q", 1)

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def close(self) -> None:
        self.socket.close()

    def until(self, kind: type[OmqFrame], count: int = 1) -> OmqFrame:
        """The last of so many frames of the kind; the others are passed over."""
        while count:
            while not self._inbox:
                self._reader.receive_data(self.socket.recv(1 << 20))
                self._inbox += self._reader.frames()
            frame = self._inbox.popleft()
            count -= isinstance(frame, kind)
        return frame

    def settled(self) -> None:
        """Everything that was said before has been decided."""
        self.say(b"(Subscribe q2 From_current)\n")
        self.until(SubscribedFrame)
