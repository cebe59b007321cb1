"""A blocking peer of cursor/1 for tests: requests and answers as they stand on the wire."""

import socket
import struct
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import orjson

from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.frames import NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body

FRAME_MAX = 2_097_152 + 65_536
TIMEOUT_S = 60


class Refusal(Exception):
    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(f"{code}: {sentence}")
        self.code = code


@dataclass(frozen=True)
class Columns:
    """A decoded Columns frame."""

    meta: dict[str, Any]
    values: dict[str, list[Any]]

    @property
    def sequences(self) -> list[int]:
        return self.values["sequence"]


class Peer:
    def __init__(self, port: int, *, headers: dict[str, str] | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._reader = NativeFrameReader(body_bytes_max=FRAME_MAX)
        self._inbox: list[bytes] = []
        self._ids = count(1)
        offered = {"supported-extensions": "batch/1,cursor/1,admin/1,request/1", **(headers or {})}
        self.send(encode_body(CommandType.CONNECT, "c", headers=offered))
        answer = decode_body(self.receive())
        if answer.type == CommandType.ERROR:
            self.close()
            raise Refusal(answer.error_code or "", answer.error_message or "")
        self.granted = answer.headers.get("negotiated-extensions", "").split(",")

    def close(self) -> None:
        self._socket.close()

    def send(self, *bodies: bytes) -> None:
        self._socket.sendall(b"".join(encode_frame(body, body_bytes_max=FRAME_MAX) for body in bodies))

    def receive(self) -> bytes:
        while not self._inbox:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._reader.receive_data(data)
            self._inbox += self._reader.bodies()
        return self._inbox.pop(0)

    def ask(self, verb: str, queue: str = "", **arguments: Any) -> Any:
        """JSON, or `Columns`; a refusal is raised. `from` is written `from_`."""
        named = {name.rstrip("_"): value for name, value in arguments.items()}
        payload = orjson.dumps({"verb": verb, "arguments": named})
        self.send(encode_body(CommandType.CURSOR_REQUEST, f"r{next(self._ids)}", queue, payload))
        return self.answer()

    def answer(self) -> Any:
        body = self.receive()
        if body[1] == CommandType.COLUMNS:
            return columns(body)
        message = decode_body(body)
        if message.type == CommandType.ERROR:
            raise Refusal(message.error_code or "", message.error_message or "")
        return orjson.loads(message.payload) if message.payload else None

    def admin(self, verb: str, **arguments: Any) -> Any:
        payload = orjson.dumps({"verb": verb, "arguments": arguments})
        self.send(encode_body(CommandType.ADMIN, f"a{next(self._ids)}", payload=payload))
        return self.answer()

    def publish(self, queue: str, rows: Rows, extras: dict[int, dict[str, Any]] | None = None) -> int:
        """The first sequence."""
        self.send(extensions.publish_many(f"p{next(self._ids)}", queue, rows, extras))
        body = self.receive()
        if body[1] == CommandType.ERROR:
            message = decode_body(body)
            raise Refusal(message.error_code or "", message.error_message or "")
        acked = extensions.parse_publish_many_ack(body)
        assert not acked.refused
        return acked.first_sequence

    def stage(self, queue: str, rows: Rows, *, app: str, version: int, stage: str, chunk: int = 0, **more: Any) -> Any:
        about = {"app": app, "version": version, "stage": stage, "chunk": chunk}
        self.send(extensions.stage(f"s{next(self._ids)}", queue, about, rows, more.get("extras")))
        return self.answer()

    def read_all(self, queue: str, start: int, end: int, **arguments: Any) -> list[Any]:
        """Every body of the range, fetch by fetch."""
        bodies: list[Any] = []
        while start < end:
            part = self.ask("group.fetch", queue, from_=start, to=end, columns=["body", "sequence"], **arguments)
            bodies += part.values["body"]
            assert part.meta["next"] > start
            start = part.meta["next"]
        return bodies


def rows_of(number: int, *, size: int = 20, first: int = 0, headers: tuple[tuple[str, str], ...] = ()) -> Rows:
    """Distinguishable messages `m<N>` with bodies `b<N>` padded to `size`."""
    return Rows.of(
        [pack_row(f"m{n}", f"b{n}".encode().ljust(size, b"."), headers) for n in range(first, first + number)]
    )


def columns(body: bytes) -> Columns:
    """Decode a Columns frame by the letter of docs/spec/cursor.md."""
    at = 2
    for _ in range(2):
        at += 2 + int.from_bytes(body[at : at + 2], "big")
    size = int.from_bytes(body[at : at + 4], "big")
    meta = orjson.loads(body[at + 4 : at + 4 + size])
    base = at + 4 + size
    base += -base % 8
    count_ = meta["count"]

    def buffer(place: list[int]) -> bytes:
        assert place[0] % 8 == 0
        return body[base + place[0] : base + place[0] + place[1]]

    def texts(places: list[list[int]], number: int) -> list[bytes]:
        offsets, data = struct.unpack(f"<{number + 1}i", buffer(places[0])), buffer(places[1])
        assert offsets[-1] == len(data)
        return [data[a:b] for a, b in pairwise(offsets)]

    def compact(place: dict[str, Any]) -> list[Any]:
        if "same" in place:
            same = place["same"]
            return [same if isinstance(same, int) else {k.encode(): v.encode() for k, v in same}] * count_
        rows, width = buffer(place["rows"]), place["width"]
        assert len(rows) == width * count_
        starts = range(0, width * count_, width)
        if "pairs" in place:
            pairs = place["pairs"]
            return [{key.encode(): rows[row + at : row + at + size] for key, at, size in pairs} for row in starts]
        return [rows[row + place["at"] : row + place["at"] + place["size"]] for row in starts]

    values: dict[str, list[Any]] = {}
    for name, places in meta["buffers"].items():
        if isinstance(places, dict):
            values[name] = compact(places)
        elif name in ("sequence", "published_at"):
            values[name] = list(struct.unpack(f"<{count_}q", buffer(places)))
        elif name == "priority":
            values[name] = list(buffer(places))
        elif name == "headers":
            ends = struct.unpack(f"<{count_ + 1}i", buffer(places[0]))
            keys, found = texts(places[1:3], ends[-1]), texts(places[3:5], ends[-1])
            values[name] = [dict(zip(keys[a:b], found[a:b], strict=True)) for a, b in pairwise(ends)]
        else:
            values[name] = texts(places, count_)
    return Columns(meta, values)
