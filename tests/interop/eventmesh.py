"""A broker with an EventMesh listener, a raw client of its TCP protocol, and the Java SDK driven over pipes.

The raw client knows the wire by itself, so that it judges what it reads.
"""

import json
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from tests.interop.configured import ConfiguredBroker

SOURCES = Path(__file__).parent / "eventmesh_java"
WAIT_S = 60.0
SIZES = struct.Struct("!II")
DIALECTS = {"wemq": (b"WEMQ0000", 8), "em8": (b"EventMesh0000", 8), "em13": (b"EventMesh0000", 13)}

Event = dict[str, Any]


class EventMeshBroker(ConfiguredBroker):
    """`vibemq serve` with native and EventMesh listeners."""

    def __init__(self, folder: Path, *, toml: str = "", listener: str = "") -> None:
        """`toml`: further settings; `listener`: the listener's own, as TOML lines."""
        super().__init__(folder, ["eventmesh"], toml=toml, last=f"[listeners.settings]\n{listener}")

    @property
    def mesh_port(self) -> int:
        return self.ports["eventmesh"]


@dataclass
class MeshFrame:
    cmd: str
    code: int
    seq: Any
    text: str
    properties: dict[str, Any]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class MeshWire:
    """One connection; everything that comes is kept until it is asked for."""

    def __init__(self, port: int, dialect: str = "em13") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.start, self.counted = DIALECTS[dialect]
        self._kept: list[MeshFrame] = []
        self._frames = self._read()
        self._seq = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def frame(self, cmd: str, body: Any = None, *, seq: Any = None, protocol: str = "", old: bool = False) -> bytes:
        header: dict[str, Any] = {"command": cmd, "code": 0, "seq": seq}
        if not old:
            header |= {"cmd": cmd, "properties": {"protocoltype": protocol} if protocol else {}}
        raw = json.dumps(header).encode()
        text = b"" if body is None else json.dumps(body).encode()
        return b"".join((self.start, SIZES.pack(self.counted + len(raw) + len(text), len(raw)), raw, text))

    def say(self, cmd: str, body: Any = None, *, seq: Any = None, protocol: str = "", old: bool = False) -> Any:
        """Send it; return its seq."""
        if seq is None:
            self._seq += 1
            seq = f"{self._seq:010}"
        self.socket.sendall(self.frame(cmd, body, seq=seq, protocol=protocol, old=old))
        return seq

    def ask(self, cmd: str, body: Any = None, *, answer: str = "", **how: Any) -> MeshFrame:
        """Send it and wait for its answer: `answer`, else the command's usual one."""
        name = answer or f"{cmd.removesuffix('_REQUEST')}_RESPONSE"
        seq = self.say(cmd, body, **how)
        return self.next(name, seq)

    def hello(self, group: str, purpose: str = "sub", *, old: bool = False, **agent: Any) -> MeshFrame:
        fields = {"version": "2.1", "group": group, "purpose": purpose, "username": "raw", "password": "secret"}
        return self.ask("HELLO_REQUEST", fields | agent, old=old)

    def subscribe(self, topic: str, mode: str = "CLUSTERING", kind: str = "ASYNC") -> MeshFrame:
        return self.ask("SUBSCRIBE_REQUEST", {"topicList": [{"topic": topic, "mode": mode, "type": kind}]})

    def listen(self) -> MeshFrame:
        return self.ask("LISTEN_REQUEST")

    def publish(self, topic: str, body: str, cmd: str = "ASYNC_MESSAGE_TO_SERVER", **properties: Any) -> MeshFrame:
        message = {"topic": topic, "properties": properties, "body": body}
        return self.ask(cmd, message, answer=f"{cmd}_ACK", protocol="eventmeshmessage")

    def ack(self, frame: MeshFrame) -> None:
        self.say(f"{frame.cmd}_ACK", frame.body.decode(), seq=frame.seq)

    def next(self, cmd: str, seq: Any = None) -> MeshFrame:
        """The next frame of that command (and seq); others are kept for later."""
        for at, kept in enumerate(self._kept):
            if kept.cmd == cmd and seq in (None, kept.seq):
                return self._kept.pop(at)
        for frame in self._frames:
            if frame.cmd == cmd and seq in (None, frame.seq):
                return frame
            self._kept.append(frame)
        raise AssertionError(f"the connection ended without {cmd}; it said {self._kept}")

    def until_closed(self) -> list[MeshFrame]:
        return [*self._kept, *self._frames]

    def _read(self) -> Iterator[MeshFrame]:
        data, head = b"", len(self.start) + 8
        while True:
            while len(data) >= head:
                assert data.startswith(self.start), data[:32]
                total, header_size = SIZES.unpack_from(data, len(self.start))
                end = head + total - self.counted
                if len(data) < end:
                    break
                header = json.loads(data[head : head + header_size])
                assert header["cmd"] == header["command"], header
                assert header.get("desc") == header.get("msg"), header
                yield MeshFrame(
                    header["cmd"],
                    header["code"],
                    header.get("seq"),
                    header.get("desc", ""),
                    header["properties"],
                    data[head + header_size : end],
                )
                data = data[end:]
            try:
                chunk = self.socket.recv(262_144)
            except ConnectionResetError:
                return
            if not chunk:
                return
            data += chunk


def java_classpath(cache: Path) -> str:
    """Compile the driver, once for `cache`; skip the test where Java, Maven or the SDK cannot be had."""
    missing = [command for command in ("java", "javac", "mvn") if shutil.which(command) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (apt-get install maven default-jdk-headless)")
    libraries = cache / "lib"
    if not (cache / "complete").exists():
        command = ["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), "dependency:copy-dependencies"]
        fetched = subprocess.run(
            [*command, f"-DoutputDirectory={libraries}"], capture_output=True, text=True, timeout=300, check=False
        )
        if fetched.returncode:
            pytest.skip(f"the EventMesh SDK cannot be fetched from Maven Central: {fetched.stdout[-300:]}")
        (cache / "complete").touch()
    classes = cache / "classes"
    source = SOURCES / "EventMeshDriver.java"
    made = classes / "EventMeshDriver.class"
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        compile_java(source, f"{libraries}/*", classes)
    return f"{classes}{os.pathsep}{libraries}/*"


def compile_java(source: Path, classpath: str, classes: Path) -> None:
    subprocess.run(
        ["javac", "-nowarn", "-cp", classpath, "-d", str(classes), str(source)], check=True, capture_output=True
    )


@dataclass
class JavaDriver:
    """A JVM with clients of the SDK; commands are tab-separated words."""

    process: subprocess.Popen[str]
    kept: list[Event] = field(default_factory=list)

    @classmethod
    def started(cls, classpath: str) -> "JavaDriver":
        # One thread compiles, little memory: many of these run beside each other in CI.
        flags = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        command = ["java", *flags, "-cp", classpath, "EventMeshDriver"]
        return cls(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()

    def say(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def do(self, *words: object) -> Event:
        """Carry out a command that succeeds."""
        self.say(*words)
        event = self.event("done", "answered", "failed", client=str(words[1]))
        assert event["event"] != "failed", event
        return event

    def event(self, *kinds: str, client: str = "") -> Event:
        for at, kept in enumerate(self.kept):
            if kept["event"] in kinds and client in ("", kept["client"]):
                return self.kept.pop(at)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith('{"event"'):
                continue
            event: Event = json.loads(line)
            if event["event"] in kinds and client in ("", event["client"]):
                return event
            self.kept.append(event)
        raise AssertionError(f"the JVM ended without {kinds}: {self.kept}")

    def bodies(self, client: str, count: int) -> list[str]:
        """Of the next messages that a client gets."""
        return [self.event("message", client=client)["body"] for _ in range(count)]
