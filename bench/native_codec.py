"""What the native protocol costs per message, in microseconds of CPU, without sockets and without an engine.

    python bench/native_codec.py

Each figure is the best of many runs over one socket read of 256 KiB.
"""

import time
from collections.abc import Callable

from vibemq.model.commands import Publish, Subscribe
from vibemq.model.effects import Deliver, Published, Reply, Subscribed
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import Slice
from vibemq.protocols.native import NativeSession, NativeSettings
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.protocols.session import Authenticate, Principal
from vibemq.testing.session_conformance import NOW, SESSION, context

READ_BYTES = 262_144
RUNS = 40


def session(names: str = "") -> NativeSession:
    made = NativeSession(context(), NativeSettings())
    made.receive_data(encode_frame(encode_body(0, "c", headers={"supported-extensions": names} if names else {})))
    [request] = made.commands()
    assert isinstance(request, Authenticate)
    made.authenticated(request.token, Principal("anonymous"))
    made.data_to_send()
    return made


def micros(work: Callable[[], object], count: int) -> float:
    best = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best / count * 1e6


def show(what: str, **figures: float) -> None:
    print(f"{what:44}", *(f"{name} {value:6.3f}" for name, value in figures.items()))


def ids(count: int) -> list[str]:
    return [f"{number:032x}" for number in range(count)]


def publishes(what: str, names: str, payload: bytes, headers: Callable[[str], dict[str, str]] = lambda _: {}) -> None:
    made = session(names)
    count = READ_BYTES // (len(payload) + 60)
    data = b"".join(
        encode_frame(encode_body(CommandType.PUBLISH, each, "orders", payload, headers(each))) for each in ids(count)
    )
    commands: list[Publish] = []

    def read() -> None:
        made.receive_data(data)
        commands[:] = [command for command in made.commands() if isinstance(command, Publish)]

    def answer() -> None:
        made.apply([Reply(SESSION, commands[0].token, Published("orders", 1, count))])
        made.data_to_send()

    show(f"Publish {what}, {names or 'plain'}", parse=micros(read, count), ack=micros(answer, count))


def bulk(what: str, rows: Rows) -> None:
    made = session("batch/1")
    data = encode_frame(extensions.publish_many("r", "orders", rows))

    def read() -> None:
        made.receive_data(data)
        assert len(made.commands()) == 1

    deliver, piece = subscribed(made, rows)

    def write() -> None:
        made.deliver(deliver, [piece])
        made.data_to_send()

    show(f"PublishMany / DeliverMany {what}", parse=micros(read, rows.count), encode=micros(write, rows.count))


def deliveries(what: str, payload: bytes) -> None:
    made = session()
    rows = Rows.of([pack_row(each, payload) for each in ids(500)])
    deliver, piece = subscribed(made, rows)
    acks = b"".join(encode_frame(encode_body(CommandType.ACK, each)) for each in ids(500))
    encode = ack = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        made.deliver(deliver, [piece])
        made.data_to_send()
        between = time.process_time()
        made.receive_data(acks)
        made.commands()
        encode, ack = min(encode, between - start), min(ack, time.process_time() - between)
    show(f"Deliver {what}", encode=encode / 500 * 1e6, ack=ack / 500 * 1e6)


def subscribed(made: NativeSession, rows: Rows) -> tuple[Deliver, Slice]:
    made.receive_data(encode_frame(encode_body(CommandType.SUBSCRIBE, "s", "orders")))
    [request] = made.commands()
    assert isinstance(request, Subscribe)
    made.apply([Reply(SESSION, request.token, Subscribed("orders", "", request.consumer, 1))])
    made.data_to_send()
    return Deliver(SESSION, request.consumer, "orders", 1, 0, [(1, rows.count)]), Slice(1, NOW, rows)


def main() -> None:
    text = b'"' + b"x" * 126 + b'"'
    large = b'"' + b"x" * 1022 + b'"'
    record = (
        b'{"id":123456,"name":"abcdef","amount":12.5,"tags":["a","b"],"when":"2026-01-01T00:00:00Z","note":"xxxxxxxx"}'
    )
    for names in ("", "batch/1"):
        publishes("128 B text", names, text)
        publishes("1 KiB text", names, large)
        publishes("110 B object", names, record)
    publishes("128 B, one header alike", "", text, lambda _: {"priority": "high"})
    publishes("128 B, one header unlike", "", text, lambda each: {"correlation-id": each})
    bulk("128 B alike", Rows.of([pack_row(each, text) for each in ids(1500)]))
    bulk("1 KiB alike", Rows.of([pack_row(each, large) for each in ids(240)]))
    bulk("100 to 150 B", Rows.of([pack_row(each, text[: 76 + index % 50]) for index, each in enumerate(ids(1500))]))
    bulk("128 B, one header unlike", Rows.of([pack_row(each, text, [("id", each)]) for each in ids(1300)]))
    deliveries("128 B text", text)
    deliveries("1 KiB text", large)
    deliveries("128 B that is no JSON", b"\xff" * 128)


if __name__ == "__main__":
    main()
