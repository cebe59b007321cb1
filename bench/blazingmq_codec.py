"""Messages per second of one core through BlazingMQ's codec: python -m bench.blazingmq_codec.

Each figure is the best of several rounds of processor time, over messages of 1 KiB with and without properties. The
Python SDK sends an event for each post; the C++ and Java SDKs, and retransmissions, have many posts in an event.
"""

import time
from collections.abc import Callable

from vibemq.model.rows import Rows
from vibemq.protocols.blazingmq.codec.acks import ConfirmMessage, build_acks, build_confirms, parse_confirms
from vibemq.protocols.blazingmq.codec.events import EventReader
from vibemq.protocols.blazingmq.codec.options import sub_queue_ids_option
from vibemq.protocols.blazingmq.codec.properties import MessageProperty, PropertyType, build_area
from vibemq.protocols.blazingmq.codec.push import build_pushes
from vibemq.protocols.blazingmq.codec.put import MESSAGE_PROPERTIES, PutMessage, PutReader, build_puts, put_message
from vibemq.protocols.blazingmq.codec.rows import pushes_of_rows, row_of_put

MESSAGES = 4_000
ROUNDS = 7
PAYLOAD = b"x" * 1_024
OPTION = sub_queue_ids_option([1])


def guid(index: int) -> bytes:
    return (1 << 126 | index << 48 | 77).to_bytes(16, "big")


def properties(index: int) -> bytes:
    return build_area(
        [
            MessageProperty("region", PropertyType.STRING, "eu"),
            MessageProperty("total", PropertyType.INT64, index),
            MessageProperty("paid", PropertyType.BOOL, index % 2 == 0),
        ]
    )


def posts(with_properties: bool) -> list[PutMessage]:
    if not with_properties:
        return [put_message(0, guid(index), PAYLOAD) for index in range(MESSAGES)]
    flags = 1 | MESSAGE_PROPERTIES
    return [
        put_message(0, guid(index), properties(index) + PAYLOAD, flags=flags, schema_id=2) for index in range(MESSAGES)
    ]


def take(stream: bytes) -> list[PutMessage]:
    reader = EventReader(event_bytes_max=1 << 26, control_bytes_max=1 << 18)
    messages = PutReader()
    found: list[PutMessage] = []
    for at in range(0, len(stream), 1 << 18):
        reader.receive_data(stream[at : at + (1 << 18)])
        messages.add(reader.read())
        found += messages.take(MESSAGES)
    return found


def confirm(stream: bytes) -> int:
    reader = EventReader(event_bytes_max=1 << 26, control_bytes_max=1 << 18)
    reader.receive_data(stream)
    return sum(1 for _ in parse_confirms(reader.read()))


def best(what: str, work: Callable[[], object]) -> None:
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    print(f"{what:<58}{MESSAGES / min(times):>12,.0f} /s")


def main() -> None:
    for label, with_properties in (("", False), (", 3 properties", True)):
        messages = posts(with_properties)
        singles = b"".join(build_puts([message]) for message in messages)
        many = b"".join(build_puts(messages[at : at + 500]) for at in range(0, MESSAGES, 500))
        rows = Rows.of([row_of_put(message, message.guid) for message in messages])
        best(f"parse PUT, one to an event{label}", lambda singles=singles: take(singles))
        best(f"parse PUT, 500 to an event{label}", lambda many=many: take(many))
        best(f"PUT to row{label}", lambda messages=messages: [row_of_put(each, each.guid) for each in messages])
        best(f"rows to PUSH events{label}", lambda rows=rows: build_pushes(pushes_of_rows(rows, 0, OPTION)))
    acks = [(0, 0, guid(index), 0) for index in range(MESSAGES)]
    best("build ACK, all in an event", lambda: build_acks(acks))
    singles = b"".join(build_confirms([ConfirmMessage(0, guid(index), 0)]) for index in range(MESSAGES))
    best("parse CONFIRM, one to an event", lambda: confirm(singles))
    many = build_confirms([ConfirmMessage(0, guid(index), 0) for index in range(MESSAGES)])
    best("parse CONFIRM, all in an event", lambda: confirm(many))


if __name__ == "__main__":
    main()
