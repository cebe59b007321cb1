"""Messages and dead letters as tables and as raw payloads."""

import base64
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vibemq.cli.exits import plain
from vibemq.cli.output import count_text, facts, instant_text, table
from vibemq.errors import MessageTooLarge

if TYPE_CHECKING:
    from rich.console import RenderableType

PREVIEW_CHARACTERS = 60


def payload_bytes(shown: dict[str, Any]) -> bytes:
    """The payload of a message or letter as the admin verbs tell it: text, or base64 when it is no UTF-8."""
    if "payload_size" in shown:
        raise MessageTooLarge(
            f"the payload has {shown['payload_size']:,} bytes and fits into no answer; consume the message, or export"
            " its queue (a dead letter: replay it to a queue first)"
        )
    if "payload_base64" in shown:
        return base64.b64decode(shown["payload_base64"])
    return str(shown.get("payload") or "").encode()


def preview(shown: dict[str, Any]) -> str:
    """One short line of the payload, of which the message may have a part only."""
    if "payload" not in shown:
        size = shown["payload_size"] if "payload_size" in shown else len(payload_bytes(shown))
        return _size_text(size)
    text = " ".join(str(shown["payload"] or "").split())
    is_cut = len(text) > PREVIEW_CHARACTERS or shown.get("truncated")
    return text[: PREVIEW_CHARACTERS - 1] + "…" if is_cut else text


def _size_text(size: int, remark: str = "") -> str:
    return f"<{count_text(size, 'byte')}{remark}>"


def message_table(messages: Iterable[dict[str, Any]]) -> "RenderableType":
    return table(
        ("sequence", "id", "published", "priority", "headers", "payload"),
        [
            (
                f"{m['sequence']}",
                m["id"],
                instant_text(m["published_at"]),
                m.get("priority"),
                " ".join(f"{key}={value}" for key, value in (m.get("headers") or {}).items()),
                preview(m),
            )
            for m in messages
        ],
    )


def letter_table(letters: Iterable[dict[str, Any]]) -> "RenderableType":
    """One line for each; the error, which may be long, is last."""
    return table(
        ("dead id", "queue", "message id", "reason", "attempts", "dead since", "replays", "error"),
        [
            (
                f"{letter['dead_id']}",
                letter["queue"],
                letter["id"],
                letter["reason"],
                letter["attempts"],
                instant_text(letter["dead_at"]),
                letter.get("replay_count", 0),
                letter["error"] or "–",
            )
            for letter in letters
        ],
        whole=True,
    )


def group_table(groups: Iterable[dict[str, Any]]) -> "RenderableType":
    """One line for each group of dead letters; the sample of their errors is last."""
    return table(
        ("queue", "reason", "fingerprint", "count", "first", "last", "last dead since", "error, as in one of them"),
        [
            (
                group["queue"],
                group["reason"],
                group["fingerprint"],
                group["count"],
                f"{group['first_id']}",
                f"{group['last_id']}",
                instant_text(group["last_at"]),
                group["sample"] or "–",
            )
            for group in groups
        ],
        whole=True,
    )


def preview_sheet(preview: dict[str, Any]) -> "RenderableType":
    """What a preview tells: its sentences, where letters go that nothing hinders, and its groups."""
    from rich.console import Group
    from rich.text import Text

    free = [target for target in preview["targets"] if target["state"] in ("ok", None)]
    goals = [f"A replay puts {count_text(one['count'], 'dead letter')} into queue {one['queue']!r}." for one in free]
    return Group(*(Text(plain(told)) for told in (*preview["sentences"], *goals)), group_table(preview["groups"]))


def letter_sheet(letter: dict[str, Any]) -> "RenderableType":
    """One dead letter in full."""
    instants = ("published_at", "first_failed_at", "dead_at")
    pairs: list[tuple[str, object]] = []
    for name, value in letter.items():
        if name in ("payload", "payload_base64", "payload_size", "offset", "size", "truncated"):
            continue
        if name in instants:
            value = instant_text(value)
        elif name == "headers":
            value = _header_lines(value)
        elif isinstance(value, int):
            value = str(value)
        pairs.append((name.replace("_", " "), value))
    told = "payload, the beginning" if letter.get("truncated") else "payload"
    return facts([*pairs, (told, _whole_payload(letter))], title=f"dead letter {letter['dead_id']}")


def message_sheet(message: dict[str, Any]) -> "RenderableType":
    """One stored message, who holds it, and the part of its payload that was asked for."""
    pairs: list[tuple[str, object]] = []
    for name, value in message.items():
        if name in ("queue", "incarnation", "sequence", "size", "offset", "truncated", "payload", "payload_base64"):
            continue
        if name.endswith("_at"):
            value = instant_text(value or 0)
        elif name == "headers":
            value = _header_lines(value or {})
        elif name == "holders":
            value = "\n".join(plain(_holder_text(holder)) for holder in value) or None
        pairs.append((name.replace("_", " "), value))
    part = payload_part(message)
    text = _size_text(len(part), ", see --raw") if "payload_base64" in message else part.decode()
    told = "payload"
    if message["offset"] or message["truncated"]:
        told = f"payload, bytes {message['offset']:,} to {message['offset'] + message['size']:,}"
    return facts([*pairs, (told, text)], title=f"message {message['sequence']} of queue {message['queue']}")


def payload_part(message: dict[str, Any]) -> bytes:
    """The bytes of the payload that `message.show` has answered with."""
    if message.get("payload_base64") is not None:
        return base64.b64decode(message["payload_base64"])
    return str(message.get("payload") or "").encode()


def _header_lines(headers: dict[str, Any]) -> str:
    """One line for each, whatever its publisher has written into it."""
    return "\n".join(plain(f"{key}: {text}") for key, text in headers.items())


def _holder_text(holder: dict[str, Any]) -> str:
    client = holder.get("client") or holder.get("connection") or "a client"
    group = f" in group {holder['group']}" if holder.get("group") else ""
    until = f", until {instant_text(holder['deadline_at'])}" if holder.get("deadline_at") else ""
    return f"{client}{group}{until}"


def _whole_payload(letter: dict[str, Any]) -> str:
    if "payload_size" in letter:
        return _size_text(letter["payload_size"], ", too many to show")
    raw = payload_bytes(letter)
    return _size_text(len(raw), ", see --raw") if "payload_base64" in letter else raw.decode()
