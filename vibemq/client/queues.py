"""Queue verbs: options in words and seconds, descriptions as the model's dataclasses, declarations that compare."""

import contextlib
import logging
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal, get_args

import anyio
import orjson

from vibemq.client.link import ClientLink
from vibemq.client.pages import every_item
from vibemq.client.publishing.outgoing import SECONDS_MAX
from vibemq.errors import InvalidOptions, LocalProtocolError, NotAuthorized, QueueExists, RemoteProtocolError
from vibemq.model.arguments import check_flag, check_text
from vibemq.model.options import (
    Overflow,
    QueueOptions,
    check_queue_name,
    option_text,
    options_from_dict,
    options_to_dict,
    spelled_out,
)
from vibemq.model.quantities import whole_ms
from vibemq.model.shared.queue_info import GroupInfo, QueueInfo
from vibemq.protocols.native.codec.wire import CommandType

logger = logging.getLogger(__name__)

OnConflict = Literal["ignore", "fail", "override"]
Severity = Literal["info", "soft", "hard"]

_OPTION_NAMES = frozenset(field.name for field in fields(QueueOptions))
_READ_ONLY = frozenset({"ping", "queue.info", "queue.list", "queue.peek", "dlq.list", "dlq.show", "broker.info"})
_IDEMPOTENT = _READ_ONLY | {"queue.create", "queue.change", "broker.metrics", "connections.list"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One option of a declared queue that an existing queue has otherwise."""

    option: str
    existing: Any
    declared: Any
    severity: Severity
    """`hard`: messages would be treated in another way; `soft`: some could be lost; `info`: harmless."""

    def __str__(self) -> str:
        existing, declared = (option_text(self.option, value) for value in (self.existing, self.declared))
        return f"{self.option} is {existing}, declared {declared} ({self.severity})"


class ClientQueues:
    """Queue and operator requests of one client."""

    def __init__(self, link: ClientLink) -> None:
        self._link = link

    async def admin(self, verb: str, arguments: dict[str, Any]) -> Any:
        """Any verb of the reference, docs/reference/admin.md; its JSON result."""
        check_text("verb", verb)
        try:
            payload = orjson.dumps({"verb": verb, "arguments": arguments})
        except TypeError as error:
            raise LocalProtocolError(f"the arguments of {verb} cannot be sent as JSON: {error}") from error
        answer = await self._link.requests.request(
            CommandType.ADMIN, payload=payload, what=verb, idempotent=verb in _IDEMPOTENT
        )
        if not arguments.get("dry_run"):
            self._note_done(verb, arguments)
        return orjson.loads(answer.payload) if answer.payload else None

    def _note_done(self, verb: str, arguments: dict[str, Any]) -> None:
        if verb == "queue.create":
            self._remember(arguments)
        elif verb == "queue.change":
            self._remember_change(arguments)
        elif verb == "queue.delete":
            self._link.restored.deleted(arguments.get("queue", ""), anyio.current_time())

    async def create(self, queue: str, options: dict[str, Any], *, must_match: bool) -> None:
        check_flag("must_match", must_match)
        arguments = {"queue": _checked_name(queue), "options": options, "must_match": must_match}
        await self.admin("queue.create", arguments)

    def _remember(self, created: dict[str, Any]) -> None:
        """A queue that goes away by itself may be gone when the client has connected again."""
        options = created.get("options")
        wanted = options_from_dict(options) if isinstance(options, dict) else QueueOptions()
        if wanted.goes_away:
            queue = created["queue"]
            request = {"verb": "queue.create", "arguments": {"queue": queue, "options": options}}
            self._link.restored.passing.created(queue, wanted, orjson.dumps(request), anyio.current_time())

    def _remember_change(self, changed: dict[str, Any]) -> None:
        """It is created anew as it is by now."""
        queue, passing = changed.get("queue", ""), self._link.restored.passing
        request = passing.request_of(queue)
        if request is None:
            return
        options = {**(orjson.loads(request)["arguments"]["options"] or {}), **changed["changes"]}
        if options_from_dict(options).goes_away:
            self._remember({"queue": queue, "options": options})
        else:
            passing.deleted(queue)

    async def change(self, queue: str, changes: dict[str, Any]) -> None:
        await self.admin("queue.change", {"queue": _checked_name(queue), "changes": changes})

    async def info(self, queue: str) -> QueueInfo | None:
        found = await self.admin("queue.info", {"queue": _checked_name(queue)})
        return queue_info(found) if found is not None else None

    async def every(self) -> list[QueueInfo]:
        async def admin(verb: str, **arguments: Any) -> Any:
            return await self.admin(verb, arguments)

        return [queue_info(entry) for entry in await every_item(admin, "queue.list", "queues")]

    async def declare(self, queue: str, options: dict[str, Any], on_conflict: OnConflict) -> list[Difference]:
        if on_conflict not in get_args(OnConflict):
            words = ", ".join(get_args(OnConflict))
            raise LocalProtocolError(f"on_conflict is {on_conflict!r}; it must be one of {words}")
        try:
            existing = await self.info(queue)
        except NotAuthorized:
            return await self._declare_unseen(queue, options, on_conflict)
        if existing is None:
            await self.create(queue, options, must_match=False)
            # Somebody else may have been quicker.
            existing = await self.info(queue)
        elif existing.options.goes_away:
            # To look at it is no use of it. It is refused for an exclusive queue of another connection.
            with contextlib.suppress(NotAuthorized):
                await self.create(queue, options, must_match=False)
        if existing is None:
            return []
        found = differences(existing.options, options)
        if not found or on_conflict == "ignore":
            for difference in found:
                level = logging.INFO if difference.severity == "info" else logging.WARNING
                logger.log(level, "queue %r differs from its declaration: %s", queue, difference)
        elif on_conflict == "override":
            await self.change(queue, options)
        elif any(difference.severity != "info" for difference in found):
            raise QueueExists(queue, "; ".join(map(str, found)))
        return found

    async def _declare_unseen(self, queue: str, options: dict[str, Any], on_conflict: OnConflict) -> list[Difference]:
        """Without the permission `inspect` the broker compares: every option, those that are not declared included."""
        await self.create(queue, options, must_match=on_conflict == "fail")
        if on_conflict == "override":
            await self.change(queue, options)
        return []


def _checked_name(queue: str) -> str:
    check_text("queue", queue)
    return check_queue_name(queue)


def option_values(options: dict[str, Any]) -> dict[str, Any]:
    """Options as JSON values under their own names.

    Every option in milliseconds also goes by its name without `_ms`, in seconds or as a timedelta: `ack_timeout=30`
    is `ack_timeout_ms=30_000`. Names of modes and policies are read in any case.

    Raises:
        InvalidOptions: an unknown name or an impossible value.
    """
    values: dict[str, Any] = {}
    for name, value in options.items():
        in_ms = f"{name}_ms"
        if in_ms in _OPTION_NAMES:
            name, value = in_ms, _milliseconds(name, value)
        if name in values:
            raise InvalidOptions(f"queue option {name} is given twice")
        values[name] = value
    values = spelled_out(values)
    full = options_to_dict(options_from_dict(values))
    return {name: full[name] for name in values}


def differences(existing: QueueOptions, declared: dict[str, Any]) -> list[Difference]:
    """What of the declared options (as `option_values` gives them) an existing queue has otherwise."""
    wanted = options_from_dict(declared)
    found = []
    for name in declared:
        have, want = getattr(existing, name), getattr(wanted, name)
        if have != want:
            found.append(Difference(name, have, want, _severity(name, have, want, existing, wanted)))
    return found


def _severity(name: str, have: Any, want: Any, existing: QueueOptions, wanted: QueueOptions) -> Severity:
    """As the .NET client judges; besides, by whether messages can be lost sooner than the program expects, with the
    queue as it is or as it was declared."""
    if name in ("mode", "retention", "exclusive"):
        return "hard"
    if name in ("durability", "message_ttl_ms", "dead_letter"):
        return "soft"
    if name == "auto_delete":
        return "info" if want else "soft"
    if name == "expires_ms":
        return "soft" if have and (not want or want > have) else "info"
    if name == "dead_letter_name":
        return "hard" if existing.dead_letter and wanted.dead_letter else "info"
    if name == "overflow" and want is Overflow.REDIRECT_TO_DLQ:
        return "info" if existing.dead_letter else "hard"
    return "info"


def queue_info(found: Any) -> QueueInfo:
    """A description out of its JSON; what a newer broker adds is left out."""
    if not isinstance(found, dict):
        raise RemoteProtocolError("the broker's description of a queue is not an object")
    known = {field.name for field in fields(QueueInfo)}
    group_known = {field.name for field in fields(GroupInfo)}
    values = {name: value for name, value in found.items() if name in known}
    options = {name: value for name, value in found.get("options", {}).items() if name in _OPTION_NAMES}
    groups = [
        GroupInfo(**{name: value for name, value in group.items() if name in group_known})
        for group in found.get("groups", [])
    ]
    return QueueInfo(**{**values, "options": options_from_dict(options), "groups": groups})


def _milliseconds(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOptions(f"queue option {name} must be seconds or a timedelta, not {value!r}")
    if not 0 <= value <= SECONDS_MAX:
        raise InvalidOptions(f"queue option {name} is {value} s; it must be 0 to {SECONDS_MAX:,} s")
    return whole_ms(value * 1000)
