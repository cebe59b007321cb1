"""A raw asyncio client of EventMesh over TCP, as simple as it can be, and the ledger of what it was promised."""

import asyncio
import itertools
import json
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

TOPIC = "mesh"
POISON = "poison"
_SIZES = struct.Struct("!II")
_START = b"EventMesh0000"
_COUNTED = 13


class Heard(NamedTuple):
    cmd: str
    code: int
    seq: Any
    body: bytes


class ChaosPeer:
    """One connection. Raises OSError or EOFError (asyncio.IncompleteReadError) when it is lost."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._seqs = itertools.count(1)
        self.said_goodbye = False

    @classmethod
    async def connected(cls, port: int, group: str, purpose: str) -> "ChaosPeer":
        peer = cls(*await asyncio.open_connection("127.0.0.1", port))
        agent = {"group": group, "purpose": purpose, "version": "2", "unack": 200}
        try:
            await peer.asked("HELLO_REQUEST", agent)
        except BaseException:
            peer.cut()
            raise
        return peer

    def say(self, cmd: str, body: Any = None, *, seq: Any = None, form: str = "") -> str:
        seq = seq or str(next(self._seqs))
        header = json.dumps({"cmd": cmd, "code": 0, "seq": seq, "properties": {"protocoltype": form}}).encode()
        text = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        sizes = _SIZES.pack(_COUNTED + len(header) + len(text), len(header))
        if self._writer.transport.is_closing():
            raise ConnectionResetError("cut")
        self._writer.write(b"".join((_START, sizes, header, text)))
        return str(seq)

    async def heard(self) -> Heard:
        head = await self._reader.readexactly(len(_START) + _SIZES.size)
        total, header_size = _SIZES.unpack_from(head, len(_START))
        rest = await self._reader.readexactly(total - _COUNTED)
        header = json.loads(rest[:header_size])
        return Heard(header["cmd"], header["code"], header.get("seq"), rest[header_size:])

    async def asked(self, cmd: str, body: Any = None) -> list[Heard]:
        """Wait for its answer; what came before it is returned."""
        seq, before = self.say(cmd, body), list[Heard]()
        while (heard := await self.heard()).seq != seq or not heard.cmd.endswith("_RESPONSE"):
            before.append(heard)
        if heard.code and self.said_goodbye:
            raise ConnectionResetError("what is asked behind a goodbye is refused")
        assert heard.code == 0, heard
        return before

    def cut(self) -> None:
        """As a process that is killed."""
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


def published_as(name: str, *, event: bool) -> tuple[str, dict[str, Any]]:
    """Form and body of a message whose name both forms carry."""
    if event:
        attributes = {"specversion": "1.0", "id": name, "source": "/", "type": "t", "subject": TOPIC}
        return "cloudevents", attributes | {"datacontenttype": "application/json", "data": {"name": name}}
    return "eventmeshmessage", {"topic": TOPIC, "properties": {"name": name}, "body": json.dumps({"name": name})}


def name_in(body: bytes) -> str:
    """Of a pushed message, whichever form it has."""
    fields = json.loads(body)
    inner = json.loads(fields["body"]) if "body" in fields else fields["data"]
    name: str = inner["name"]
    return name


@dataclass
class MeshLedger:
    """What was acknowledged to publishers, what came to each group, and what was settled for good."""

    confirmed: set[str] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)
    received: dict[str, Counter[str]] = field(default_factory=dict)
    settled: dict[tuple[str, str], int] = field(default_factory=dict)
    """(group, name) -> when its acknowledgement was certainly carried out."""
    now: int = 0
    """Counts what is settled, and lives of the broker: one step for each."""
    life_began: int = 0
    risen: set[tuple[str, str]] = field(default_factory=set)
    """Pushed although settled before in the same life of the broker."""
    late: int = 0
    """Those that may have been pushed to one member before another one settled them, and were only read later."""

    def begin_life(self) -> None:
        self.now += 1
        self.life_began = self.now

    def settle(self, group: str, names: list[str]) -> None:
        self.now += 1
        self.settled.update(((group, name), self.now) for name in names)

    def arrived(self, group: str, name: str, written_after: int) -> None:
        """`written_after`: an instant, of `now`, at which the broker had certainly not written it yet."""
        self.received.setdefault(group, Counter())[name] += 1
        settled = self.settled.get((group, name), 0)
        if settled > self.life_began:
            if settled <= written_after:
                self.risen.add((group, name))
            else:
                self.late += 1

    def lost(self, group: str) -> set[str]:
        came = self.received.get(group, Counter())
        return {name for name in self.confirmed if name not in came}

    @property
    def phantoms(self) -> set[str]:
        return {name for came in self.received.values() for name in came} - self.tried

    @property
    def doubled(self) -> int:
        return sum(times - 1 for came in self.received.values() for name, times in came.items() if POISON not in name)
