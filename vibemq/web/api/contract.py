"""The contract: every endpoint of the API as one row of data, from which requests are routed, checked and documented.

To add an endpoint, add a row to `ENDPOINTS` of `vibemq/web/api/endpoints/<noun>.py` (a new noun: also to
`endpoints/__init__.py`). A row names an operation of `vibemq.operations`, which has its permissions in
`vibemq.auth.matrix`; without one, `Contract` refuses the row. Where the arguments come from, in this order:

    path      names in braces: `/queues/{queue}` gives the argument `queue`
    fixed     what is the same in every request
    headers   those of `from_headers`
    query     GET, HEAD and DELETE: every other argument of the operation, by its name
    body      POST, PUT and PATCH: the same as fields of one JSON object; or what `arguments` makes of `body`

A list (`items`) has `limit` and `cursor` in its query, and is answered as {"items": […], "next": cursor or null}.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from vibemq.auth.matrix import COMMANDS, Row
from vibemq.errors import ErrorCode
from vibemq.operations import OPERATIONS, Operation
from vibemq.operations.arguments import LIMIT_MAX
from vibemq.web.api.errors import HttpCode
from vibemq.web.api.guardrails.json_shapes import MARKS_MAX
from vibemq.web.api.kinds import Kind
from vibemq.web.api.services import ApiServices, Asker
from vibemq.web.api.state import ApiState

BASE = "/api/v1"
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
NDJSON = "application/x-ndjson"
BYTES = "application/octet-stream"
EVENTS = "text/event-stream"
_MARKED = re.compile(r"~+\.+")


@dataclass(slots=True)
class Exchange:
    """One request on its way through an endpoint."""

    endpoint: "Endpoint"
    request: Request
    asker: Asker | None
    """None only where the endpoint is for anybody."""
    state: ApiState
    path: Mapping[str, str]
    """Values of the names in braces."""
    request_id: str = ""
    host: str = ""
    """The client's address."""
    secure: bool = False
    """Whether the client speaks TLS, if only to a proxy that is trusted."""
    query: dict[str, Any] = field(default_factory=dict)
    """Read as their types say."""
    body: Any = None
    """Of JSON: the object. Of an endpoint with `raw`: the bytes."""
    headers: dict[str, str] = field(default_factory=dict)
    """Of the answer."""
    status: int = 0
    """Of the answer; 0: the endpoint's."""
    unchanged: bool = False
    """The operation had nothing to do."""
    passing: bool = False
    """What was refused may be accepted another time: the answer is not what an idempotency key stands for."""
    to_its_end: bool = False
    """Whoever brings its idempotency key again hears what became of it, so it is not ended by its deadline."""

    @property
    def timeout_s(self) -> float | None:
        """For what it waits for."""
        return None if self.to_its_end else self.endpoint.timeout_s

    @property
    def services(self) -> ApiServices:
        return self.state.services

    @property
    def user(self) -> Asker:
        assert self.asker is not None, "the endpoint is not for anybody"
        return self.asker


Handler = Callable[[Exchange], Awaitable[Response]]
ToArguments = Callable[[Exchange], dict[str, Any]]
ToAnswer = Callable[[Any, Exchange], Any]
"""(what the operation has answered, exchange) -> the answer's JSON."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One of the query, where the operation's arguments do not say it."""

    name: str
    schema: Mapping[str, Any]
    description: str
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One row."""

    method: str
    path: str
    """Below BASE."""
    summary: str
    operation: str = ""
    """Name of the operation that carries it out, or whose permissions it needs."""
    command: type[Any] | None = None
    """In place of an operation: the command of the engine, whose permissions it needs."""
    anybody: str = ""
    """In place of both: why it needs no login."""
    kind: Kind = Kind.READ
    fixed: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Name in the request -> name of the argument."""
    hidden: frozenset[str] = frozenset()
    """Arguments that no request may bring."""
    query: tuple[Parameter, ...] | None = None
    """None: as the operation's arguments say."""
    body: type[BaseModel] | Mapping[str, Any] | None = None
    """Model or JSON schema of the body, where it is not the operation's arguments; {} = there is none."""
    consumes: tuple[str, ...] = (JSON,)
    raw: bool = False
    """The handler is given the body's bytes."""
    body_bytes_max: int = 0
    """0: as all."""
    marks_max: int = MARKS_MAX
    """Of a JSON body: how much there may be in it (`guardrails.json_shapes`)."""
    arguments: ToArguments | None = None
    """Makes the operation's arguments in place of the rule above."""
    handler: Handler | None = None
    """Carries it out in place of the operation: it checks permissions by itself, through an operation or a peer."""
    shape: ToAnswer | None = None
    items: str = ""
    """Of a list: the name that its items have in the operation's answer."""
    after: str = "after"
    """Of a list: the argument that its cursor stands for."""
    limit_max: int = LIMIT_MAX
    """Of a list: most items of a page."""
    from_headers: Mapping[str, str] = field(default_factory=dict)
    """Header of the request -> the argument that it brings. Those that change something refuse an If-Match that they do
    not take."""
    headers: tuple[Parameter, ...] = ()
    """Of the request, which mean something to this endpoint."""
    response: Mapping[str, Any] = field(default_factory=dict)
    """JSON schema of the answer; of a list: of one item."""
    produces: str = JSON
    status: int = 200
    more_statuses: tuple[int, ...] = ()
    errors: tuple[ErrorCode | HttpCode, ...] = ()
    """Beside those that every endpoint has."""
    timeout_s: float = 30.0
    """From the request to the operation's answer."""
    idempotent: bool = False
    """Takes an Idempotency-Key, and keeps the first answer in memory."""
    keyless: str = ""
    """Of another POST that changes something: why it refuses an Idempotency-Key."""
    conditional: bool = True
    """Of a GET: its answer has an ETag of its content, and 304 where that is known."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(re.findall(r"\{(\w+)\}", self.path))

    @property
    def reads(self) -> bool:
        return self.method in ("GET", "HEAD")


class Contract:
    """All rows, checked.

    Raises:
        LookupError: a row has no operation, no permissions, or the path and method of another one.
    """

    def __init__(self, endpoints: Iterable[Endpoint], operations: Iterable[Operation[Any]] = OPERATIONS) -> None:
        self.operations = {operation.name: operation for operation in operations}
        self.endpoints = tuple(endpoints)
        self._paths: dict[str, dict[str, Endpoint]] = {}
        for endpoint in self.endpoints:
            self._check(endpoint)
            methods = self._paths.setdefault(endpoint.path, {})
            if endpoint.method in methods:
                raise LookupError(f"{endpoint.method} {endpoint.path} has two rows")
            methods[endpoint.method] = endpoint
        self._patterns = [(path.split("/")[1:], methods) for path, methods in self._paths.items()]
        # Of two that fit, the one whose words are fixed earlier is meant.
        self._patterns.sort(key=lambda entry: [segment.startswith("{") for segment in entry[0]])

    def _check(self, endpoint: Endpoint) -> None:
        place = f"{endpoint.method} {endpoint.path}"
        owners = [bool(endpoint.operation), endpoint.command is not None, bool(endpoint.anybody)]
        if sum(owners) != 1:
            raise LookupError(
                f"{place} needs an operation or a command, whose permissions are in vibemq/auth/matrix.py"
            )
        if endpoint.operation and endpoint.operation not in self.operations:
            raise LookupError(f"{place}: there is no operation {endpoint.operation}")
        if endpoint.command is not None and endpoint.command not in COMMANDS:
            raise LookupError(f"{place}: {endpoint.command.__name__} has no row in vibemq/auth/matrix.py")
        if not endpoint.operation and endpoint.handler is None:
            raise LookupError(f"{place} has nothing that carries it out")
        keys = [endpoint.idempotent, "Idempotency-Key" in endpoint.from_headers, bool(endpoint.keyless)]
        if sum(keys) != (endpoint.method == "POST" and endpoint.kind is not Kind.SCAN):
            raise LookupError(
                f"{place}: a POST that changes something takes an Idempotency-Key, or says why it does not"
            )
        if endpoint.reads and endpoint.kind is Kind.CHANGE:
            raise LookupError(f"{place}: a {endpoint.method} changes nothing")

    def permissions(self, endpoint: Endpoint) -> Row:
        """What the endpoint needs; () of one for anybody."""
        if endpoint.operation:
            return self.operations[endpoint.operation].permissions
        return COMMANDS[endpoint.command] if endpoint.command is not None else ()

    def find(self, segments: Sequence[str]) -> tuple[Mapping[str, Endpoint], dict[str, str]] | None:
        """The methods of a path below BASE, cut at its slashes and decoded; and the values of its names."""
        for pattern, methods in self._patterns:
            values = _match(pattern, segments)
            if values is not None:
                return methods, values
        return None


def _match(pattern: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    values: dict[str, str] = {}
    for wanted, segment in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            if not segment:
                return None
            values[wanted[1:-1]] = dotted(segment)
        elif wanted != segment:
            return None
    return values


def dotted(segment: str) -> str:
    """Names of dots only are written behind a `~` in paths, because programs remove `.` and `..` from URLs; and so are
    those of `~` before dots, which would be taken for that."""
    return segment[1:] if _MARKED.fullmatch(segment) else segment


def was_tried(result: Any) -> bool:
    """Whether that is the answer of a dry run."""
    return isinstance(result, dict) and result.get("dry_run") is True
