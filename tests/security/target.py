"""The broker that is attacked, and raw connections to it."""

import socket
from itertools import count
from pathlib import Path

from tests.interop.omq import VERSION, OmqBroker
from vibemq.protocols.native.codec.frames import NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.wire import CommandType, WireMessage, decode_body, encode_body

TIMEOUT_S = 60


class Target(OmqBroker):
    """With a native, an omq and an HTTP port; its users are those of `tests.integration.access`."""

    def __init__(self, folder: Path, *, toml: str) -> None:
        self.folder = folder
        self._addresses = count(1)
        super().__init__(folder, toml=toml)

    def dial(self, port: int | None = None, *, source: str = "") -> socket.socket:
        return socket.create_connection(
            ("127.0.0.1", port or self.port), timeout=TIMEOUT_S, source_address=(source, 0) if source else None
        )

    def elsewhere(self) -> str:
        """An address that nobody has come from: who fails to log in there keeps no other test waiting."""
        return f"127.0.7.{next(self._addresses)}"

    def refused_login(self, headers: dict[str, str]) -> str:
        """The code of the refusal, from an address of its own; "" when it was let in."""
        [answer] = self.say(encode_body(CommandType.CONNECT, "c", headers=headers), source=self.elsewhere())
        return answer.error_code or ""

    def say(self, *bodies: bytes, source: str = "") -> list[WireMessage]:
        """What a native connection hears that says these frames and waits for an answer."""
        with self.dial(source=source) as peer:
            peer.sendall(b"".join(encode_frame(body, body_bytes_max=1 << 20) for body in bodies))
            peer.shutdown(socket.SHUT_WR)
            return heard(peer)

    def say_omq(self, text: bytes) -> bytes:
        """What an omq connection hears behind the version."""
        with self.dial(self.omq_port) as peer:
            peer.sendall(VERSION + text)
            peer.shutdown(socket.SHUT_WR)
            return everything(peer)[len(VERSION) :]

    def say_http(self, line: bytes, *fields: bytes, body: bytes = b"") -> bytes:
        """The answer to one request, which asks for the end of the connection."""
        with self.dial(self.http_port) as peer:
            peer.sendall(b"\r\n".join((line, *fields, b"Connection: close", b"", body)))
            return everything(peer)


def everything(peer: socket.socket) -> bytes:
    """Until the broker hangs up."""
    data = b""
    while True:
        try:
            more = peer.recv(65_536)
        except ConnectionResetError:
            return data
        if not more:
            return data
        data += more


def heard(peer: socket.socket) -> list[WireMessage]:
    reader = NativeFrameReader()
    reader.receive_data(everything(peer))
    return [decode_body(body) for body in reader.bodies()]
