"""A loop that is never changed: what a fixed piece of Python costs on this machine, in this process, at this moment.

It does by the message what a broker must not do: reads a header, cuts out a body, looks up a queue, keeps an index.
Ratios to it say how fast the hot path is without saying how fast the machine is. Changing anything here makes every
ratio in `budgets` meaningless.
"""

import struct

_HEADER = struct.Struct("!HI")
_ID = b"0123456789abcdef0123456789abcdef"
_BODY = b"x" * 128
_FRAME = _HEADER.pack(len(_ID), len(_BODY)) + _ID + _BODY


def reference(messages: int) -> int:
    data = _FRAME * messages
    queues: dict[bytes, list[tuple[bytes, bytes]]] = {}
    at = 0
    while at < len(data):
        id_size, body_size = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        message_id = data[at : at + id_size]
        at += id_size
        body = data[at : at + body_size]
        at += body_size
        queues.setdefault(message_id[:4], []).append((message_id, body))
    kept = 0
    for messages_kept in queues.values():
        for message_id, body in messages_kept:
            kept += len(message_id) + len(body)
    return kept
