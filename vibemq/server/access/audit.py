"""What auditors ask for: who failed to log in, and who changed what others may do or have. Never a secret.

Each event is one record of the logger `vibemq.audit`, which `vibemq serve` writes as a line of JSON whatever the log's
format and level, and one record of the audit file (`audit_file`) where there is one. What changed nothing is no event.
Of events that strangers, or programs, can cause in any number a few are written at once and the others are counted; a
summary now and then says how many there were.
"""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from vibemq.auth.tokens import masked
from vibemq.errors import Blocked
from vibemq.model.access import Principal
from vibemq.server.access.limits import TokenBucket

AUDIT = "vibemq.audit"
HTTP = "http"
"""Whose connections are single requests, to this log."""
log = logging.getLogger(AUDIT)

AT_ONCE_MAX = 50
AT_ONCE_PER_S = 5
LOGINS_MAX = 1_000
LOGINS_PER_S = 0.2
"""On average: programs that log in for every request must not push out what others have changed."""
LOGINS_SUMMARY_S = 60.0
DOWNLOADS_MAX = 1_000
"""Requests over HTTP that are told apart when they read on."""
SUMMED_MAX = 1_000
"""Addresses and names that a summary tells apart."""
SHOWN_MAX = 10
LISTED_MAX = 20
"""Members of an argument that is a list."""
TEXT_MAX = 128
"""Characters of what a peer has chosen."""
ARGUMENT_MAX = 512
"""Characters of a text in an argument."""
ARGUMENTS_BYTES_MAX = 2048
"""Of all arguments of a record, as the file has them."""
REASON_BYTES_MAX = 1024
NESTED_MAX = 4
"""Lists and objects of arguments inside each other."""
RESOURCES = ("queue", "user", "app", "connection_id", "job", "dead_id", "target")
"""Arguments that name what an operation concerns; the first that is there."""
FREES_SPACE = frozenset(
    {"queue.delete", "queue.purge", "queue.remove", "message.remove", "dlq.purge", "group.delete", "transaction.forget"}
)
"""Changes that no disk that is full may keep an operator from."""


class AuditedPeer(Protocol):
    @property
    def connection_id(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def protocol(self) -> str: ...


class KeepsRecords(Protocol):
    """As `vibemq.server.access.audit_writer.AuditWriter`."""

    trouble: str

    def put(self, record: Mapping[str, Any], /) -> None: ...


class AuditLog:
    """Args:
    monotonic: seconds.
    file: keeps records beside the logger.
    strict: changes are refused while the file cannot be written.
    reads: who has read bodies of messages is written down, too.
    off: nothing is written down.
    wall: seconds since 1970.
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        *,
        file: KeepsRecords | None = None,
        strict: bool = False,
        reads: bool = False,
        off: bool = False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._file = file
        self._strict = strict
        self._tells_reads = reads
        self._off = off
        self._wall = wall
        self._at_once = TokenBucket(AT_ONCE_PER_S, AT_ONCE_MAX, monotonic())
        self._logins = TokenBucket(LOGINS_PER_S, LOGINS_MAX, monotonic())
        self._logged_in: Counter[str] = Counter()
        """Logins and logouts that have no line of their own, by user."""
        self._reads = TokenBucket(LOGINS_PER_S, LOGINS_MAX, monotonic())
        self._downloads: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Requests over HTTP and what they read, those that have read last at the end."""
        self._unwritten_reads: Counter[str] = Counter()
        """By user."""
        self._summed_up_at = dict.fromkeys(("auth.logins", "access.reads"), monotonic())
        self._count = 0
        self._addresses: Counter[str] = Counter()
        self._users: Counter[str] = Counter()

    @property
    def trouble(self) -> str:
        """A sentence while the file cannot be written."""
        return "" if self._file is None else self._file.trouble

    def refusal(self, operation: str) -> Blocked | None:
        """Why the change may not be made now: nobody could be told of it later."""
        if not self._strict or not self.trouble or operation in FREES_SPACE:
            return None
        return Blocked(f"{operation} is refused because audit_strict is set: {self.trouble}")

    def logged_in(self, peer: AuditedPeer, principal: Principal) -> None:
        self._login(peer, principal, "login", "auth.login")

    def logged_out(self, peer: AuditedPeer, principal: Principal) -> None:
        """It has ended its connection, or was sent away."""
        self._login(peer, principal, "logout", "auth.logout")

    def _login(self, peer: AuditedPeer, principal: Principal, operation: str, event: str) -> None:
        if not self._logins.take(1, self._monotonic()):
            _count(self._logged_in, principal.name)
            return
        fields = {"event": event, **_who(principal), "outcome": "done"}
        self._note(logging.INFO, operation, {"operation": operation, **fields}, peer)

    def login_failed(self, peer: AuditedPeer, user: str, reason: str) -> None:
        fields = {
            "event": "auth.failed",
            "user": shown(user),
            "operation": "login",
            "outcome": "refused",
            "reason": reason,
        }
        self._refused("authentication failed", peer, fields)

    def changed(
        self,
        peer: AuditedPeer,
        principal: Principal | None,
        operation: str,
        arguments: Mapping[str, Any],
        reason: str,
        *,
        unchanged: bool = False,
        count: int | None = None,
    ) -> None:
        """
        Args:
            reason: why it was not done; "" when it was.
            unchanged: there was nothing to do, and there is nothing to write down.
            count: how many messages or other things it concerned.
        """
        if not reason and (unchanged or arguments.get("dry_run")):
            return
        fields = {
            "event": "access.changed",
            **_who(principal),
            "operation": operation,
            "arguments": _bounded(arguments),
            "outcome": "failed" if reason else "done",
            **({"reason": reason} if reason else {}),
            **({"count": count} if count is not None else {}),
        }
        self._note(logging.INFO, operation, fields, peer)

    def read(
        self, peer: AuditedPeer, principal: Principal | None, operation: str, arguments: Mapping[str, Any]
    ) -> None:
        """Bodies of messages were read. Programs that read very many must not push out what others have changed."""
        if not self._tells_reads or (peer.protocol == HTTP and self._note_page(peer.connection_id, operation)):
            return
        who = _who(principal)
        if not self._reads.take(1, self._monotonic()):
            _count(self._unwritten_reads, who["user"])
            return
        fields = {"event": "access.read", **who, "outcome": "done"}
        told = {"operation": operation, "arguments": _bounded(arguments)}
        self._note(logging.INFO, operation, {**fields, **told}, peer)

    def _note_page(self, request_id: str, operation: str) -> bool:
        """Whether the same request has read before: a download over HTTP is one request and many pages, with those of
        other downloads in between."""
        known, downloads = (request_id, operation) in self._downloads, self._downloads
        downloads[request_id, operation] = None
        downloads.move_to_end((request_id, operation))
        if len(downloads) > DOWNLOADS_MAX:
            downloads.popitem(last=False)
        return known

    def denied(
        self,
        peer: AuditedPeer,
        principal: Principal | None,
        operation: str,
        reason: str,
        asked: Callable[[str], Any] = lambda name: None,
        *,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """A request to change something by somebody who may not.

        Args:
            asked: arguments by name, which nobody has checked; those that name what it concerns are told.
            arguments: in place of these all of a request that was checked before it was refused.
        """
        if arguments is None:
            told = {name: value for name in RESOURCES if isinstance(value := asked(name), str) and value}
            tried = {"dry_run": True} if asked("dry_run") is True else {}
            arguments = {name: shown(value) for name, value in told.items()} | tried
        fields = {
            "event": "access.denied",
            **_who(principal),
            "operation": operation,
            "arguments": _bounded(arguments),
            "outcome": "refused",
            "reason": reason,
        }
        self._refused("access denied", peer, fields)

    def session(self, place: AuditedPeer, principal: Principal, event: str) -> None:
        """A session of a browser has begun, or was ended by its user."""
        self._login(place, principal, "login" if event == "session.begun" else "logout", event)

    def reloaded(self, fields: Mapping[str, Any], *, failed: bool) -> None:
        told = {"event": "settings.reloaded", "outcome": "failed" if failed else "done", **fields}
        self._note(logging.INFO, "settings read again", told, None)

    def _refused(self, message: str, peer: AuditedPeer, fields: Mapping[str, Any]) -> None:
        if self._at_once.take(1, self._monotonic()):
            self._note(logging.WARNING, message, fields, peer)
            return
        self._count += 1
        for counter, key in ((self._addresses, peer.host), (self._users, str(fields["user"]))):
            _count(counter, key)

    async def summarize(self, *, last: bool = False) -> None:
        """Called about once a second. `last`: the broker ends."""
        self._sum_up("auth.logins", "further logins", self._logged_in, last=last)
        self._sum_up("access.reads", "further reads of bodies", self._unwritten_reads, last=last)
        if not self._count:
            return
        fields = {
            "event": "auth.failures",
            "outcome": "refused",
            "count": self._count,
            "addresses": dict(self._addresses.most_common(SHOWN_MAX)),
            "users": dict(self._users.most_common(SHOWN_MAX)),
        }
        self._count = 0
        self._addresses.clear()
        self._users.clear()
        self._note(logging.WARNING, "further refusals", fields, None)

    def _sum_up(self, event: str, message: str, by_user: Counter[str], *, last: bool) -> None:
        """About once a minute."""
        if not by_user or not (last or self._monotonic() - self._summed_up_at[event] >= LOGINS_SUMMARY_S):
            return
        self._summed_up_at[event] = self._monotonic()
        fields = {"event": event, "outcome": "done", "users": dict(by_user.most_common(SHOWN_MAX))}
        self._note(logging.INFO, message, {**fields, "count": by_user.total()}, None)
        by_user.clear()

    def _note(self, level: int, message: str, fields: Mapping[str, Any], peer: AuditedPeer | None) -> None:
        if self._off:
            return
        fields = {name: _masked(value) for name, value in fields.items()}
        if "reason" in fields:
            fields["reason"], _ = _cut_text(fields["reason"], REASON_BYTES_MAX)
        log.log(level, "%s", message, extra={**fields, **(_place(peer) if peer is not None else {})})
        if self._file is not None:
            self._file.put(self._record(fields, peer))

    def _record(self, fields: Mapping[str, Any], peer: AuditedPeer | None) -> dict[str, Any]:
        """One line of the file."""
        arguments = fields.get("arguments")
        if arguments is None:
            arguments = {name: value for name, value in fields.items() if name not in _OF_RECORDS}
        resource = next((arguments[name] for name in RESOURCES if arguments.get(name) not in (None, "")), None)
        return {
            "at": int(1000 * self._wall()),
            "event": fields["event"],
            "request_id": peer.connection_id if peer is not None else None,
            "user": fields.get("user", ""),
            "token": fields.get("token", ""),
            "address": peer.host if peer is not None else None,
            "protocol": peer.protocol if peer is not None else None,
            "operation": fields.get("operation") or _OPERATIONS.get(fields["event"], fields["event"]),
            "resource": resource,
            "arguments": arguments,
            "outcome": fields["outcome"],
            "reason": fields.get("reason", ""),
            "count": fields.get("count"),
        }


_OPERATIONS = {"settings.reloaded": "broker.reload", "auth.failures": "login", "auth.logins": "login"}
"""What events without the name of one are."""
_OF_RECORDS = frozenset({"event", "user", "token", "operation", "outcome", "reason", "count"})


def _place(peer: AuditedPeer) -> dict[str, str]:
    return {"remote": peer.host, "conn_id": peer.connection_id, "protocol": peer.protocol}


def _who(principal: Principal | None) -> dict[str, str]:
    return {"user": principal.name, "token": principal.token_id} if principal is not None else {"user": "", "token": ""}


def _masked(value: Any) -> Any:
    """Whatever a peer has chosen, without the secrets of access tokens: people give whole ones as names and ids."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {_masked(name): _masked(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(member) for member in value]
    return value


def _bounded(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments in about as many bytes of the file as a record may have, whatever they hold: whoever may cause a record
    must not push out what others have changed. Small ones are whole; large ones share what these leave."""
    told = {name: _cut(value, ARGUMENTS_BYTES_MAX) for name, value in arguments.items()}
    left = ARGUMENTS_BYTES_MAX
    for position, name in enumerate(sorted(told, key=lambda name: told[name][1])):
        share = left // (len(told) - position)
        if told[name][1] > share:
            told[name] = _cut(arguments[name], share)
        left = max(0, left - told[name][1] - len(name))
    return {name: value for name, (value, _) in told.items()}


def _cut(value: Any, room: int, depth: int = 0) -> tuple[Any, int]:
    """What fits into so many bytes of ASCII JSON, and how many it takes. What was cut says how much there was in all:
    thousands of sequences are one argument."""
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 1 << 64):
        return value, 20
    if depth < NESTED_MAX and isinstance(value, Mapping):
        return _cut_mapping(value, room, depth)
    if depth < NESTED_MAX and isinstance(value, list | tuple):
        return _cut_list(value, room, depth)
    if isinstance(value, str):
        return _cut_text(value, min(room, 12 * ARGUMENT_MAX))
    return _cut_text("…" if isinstance(value, Mapping | list | tuple | int) else str(value), room)


def _cut_mapping(values: Mapping[Any, Any], room: int, depth: int) -> tuple[dict[str, Any], int]:
    told: dict[str, Any] = {}
    used = 2
    for name, member in values.items():
        if used >= room:
            told["…"] = f"{len(values)} in all"
            used += 30
            break
        key, key_size = _cut_text(str(name), min(room - used, TEXT_MAX))
        told[key], size = _cut(member, room - used - key_size, depth + 1)
        used += key_size + size + 4
    return told, used


def _cut_list(values: Sequence[Any], room: int, depth: int) -> tuple[list[Any], int]:
    told: list[Any] = []
    used = 2
    for member in values:
        if used >= room or len(told) == LISTED_MAX:
            told.append(f"… {len(values)} in all")
            used += 30
            break
        shortened, size = _cut(member, room - used, depth + 1)
        told.append(shortened)
        used += size + 2
    return told, used


def _cut_text(text: str, room: int) -> tuple[str, int]:
    size = 2
    for position, character in enumerate(text):
        size += _escaped_size(character)
        if size > room or position == ARGUMENT_MAX:
            return f"{text[:position]}… {len(text)} characters in all", size + 40
    return text, size


def _escaped_size(character: str) -> int:
    """Bytes of a character in JSON that is ASCII alone."""
    if " " <= character <= "~":
        return 2 if character in '"\\' else 1
    return 6 if character < "\U00010000" else 12


def shown(text: str) -> str:
    """Text of a peer's choice: no line breaks, no escapes, no secrets of tokens, not for ever."""
    text = masked(text[:TEXT_MAX])
    return text if text.isprintable() else ascii(text)


def _count(counter: Counter[str], key: str) -> None:
    if key in counter or len(counter) < SUMMED_MAX:
        counter[key] += 1
