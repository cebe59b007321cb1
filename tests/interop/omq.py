"""A broker with a message-queue listener, and a client of that protocol on a raw socket that judges what it reads."""

import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from tests.interop.configured import ConfiguredBroker

VERSION = struct.pack("!q", 1)
LENGTH = struct.Struct("!I")
MESSAGE_HEAD = struct.Struct("!QI")
OCAML_PACKAGES = "ocaml libsexplib-ocaml-dev libppx-sexp-conv-ocaml-dev libppx-deriving-ocaml-dev"
OCAML_LIBRARIES = ("sexplib", "ppx_sexp_conv", "ppx_deriving")
READ_BYTES = 262_144
WAIT_S = 60.0

ERROR, PING, MESSAGE, SUBSCRIBED, UNSUBSCRIBED = range(5)


def need_ocaml() -> None:
    """Skip the test where the OCaml clients cannot be built."""
    tools = all(map(shutil.which, ("ocamlfind", "make")))
    if not tools or subprocess.run(["ocamlfind", "query", *OCAML_LIBRARIES], capture_output=True).returncode:
        pytest.skip(f"OCaml is not installed (apt-get install make {OCAML_PACKAGES})")


class OmqBroker(ConfiguredBroker):
    """`vibemq serve` with native and message-queue listeners."""

    def __init__(self, folder: Path, *, toml: str = "", listener: str = "") -> None:
        """`toml`: further settings; `listener`: the listener's own, as TOML lines."""
        super().__init__(folder, ["omq"], toml=toml, last=f"[listeners.settings]\n{listener}")

    @property
    def omq_port(self) -> int:
        return self.ports["omq"]


class Message(NamedTuple):
    number: int
    """Its id."""
    topic: int
    body: bytes


class OmqWire:
    """One connection. Pings are answered when they are read."""

    def __init__(self, port: int, *, name: str = "raw", receive_buffer_bytes: int = 0) -> None:
        """`receive_buffer_bytes`: what may be on its way unread, roughly; 0: what the system thinks best."""
        self._socket = socket.socket()
        self._socket.settimeout(WAIT_S)
        if receive_buffer_bytes:
            # Before it connects: the window that it offers is bound by it, and with it the broker's send buffer.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.connect(("127.0.0.1", port))
        self.frames = self._read()
        """(type, payload) of every frame but pings, until the server closes."""
        self.tell(VERSION)
        assert self._socket.recv(len(VERSION), socket.MSG_WAITALL) == VERSION
        self.tell(f"(Connect 1 {name})\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def tell(self, text: str | bytes) -> None:
        self._socket.sendall(text if isinstance(text, bytes) else text.encode())

    def subscribe(self, topic: str, replay: str) -> int:
        """The topic's id in this connection. Nothing else may be subscribed yet."""
        self.tell(f"(Subscribe {topic} {replay})\n")
        kind, payload = next(self.frames)
        found = re.fullmatch(rf"\(\(id (\d+)\)\(topic {re.escape(topic)}\)\)", payload.decode())
        assert kind == SUBSCRIBED, payload
        assert found, payload
        return int(found[1])

    def messages(self) -> Iterator[Message]:
        """Messages as they come, until the server closes."""
        for kind, payload in self.frames:
            assert kind == MESSAGE, (kind, payload)
            number, topic = MESSAGE_HEAD.unpack_from(payload)
            yield Message(number, topic, payload[MESSAGE_HEAD.size :])

    def _read(self) -> Iterator[tuple[int, bytes]]:
        data, at = b"", 0
        while True:
            while len(data) - at >= LENGTH.size:
                start = at + LENGTH.size
                end = start + LENGTH.unpack_from(data, at)[0]
                if end > len(data):
                    break
                kind, payload, at = data[start], data[start + 1 : end], end
                if kind == PING:
                    self.tell(f"(Ack {LENGTH.unpack(payload)[0]})\n")
                else:
                    yield kind, payload
            try:
                chunk = self._socket.recv(READ_BYTES)
            except ConnectionResetError:
                return
            if not chunk:
                return
            data, at = data[at:] + chunk, 0
