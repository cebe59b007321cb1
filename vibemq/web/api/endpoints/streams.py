"""Live streams: figures once a second, and new messages of a queue."""

from typing import Any
from urllib.parse import parse_qsl

from starlette.responses import Response

from vibemq import operations
from vibemq.auth.matrix import permissions_of
from vibemq.errors import AuthError, ErrorCode, InvalidPayload, InvalidQueueName, VibeMQError
from vibemq.model.options import check_queue_name
from vibemq.operations.queues import GROUPS_SHOWN
from vibemq.web.api.contract import EVENTS, Endpoint, Exchange, Parameter
from vibemq.web.api.kinds import Kind
from vibemq.web.api.streams.hub import OPERATIONS, TOPICS_MAX, EventTopic
from vibemq.web.api.streams.stream import EventStream, StreamSource
from vibemq.web.api.streams.tail import PER_SECOND_MAX, PREVIEW_BYTES, PREVIEW_BYTES_MAX, TailReader

KNOWN = {operation.name for operation in operations.OPERATIONS}
ITEMS_MAX = 100
"""Of a list that is told every second."""
_NUMBERS = ("limit",)


async def events(exchange: Exchange) -> Response:
    texts = exchange.query.get("topic", [])
    if not 1 <= len(texts) <= TOPICS_MAX:
        raise InvalidPayload(f"give 1 to {TOPICS_MAX} topics: topic=overview&topic=queue:orders", "topic")
    topics = [read_topic(text) for text in dict.fromkeys(texts)]
    refusals = [refusal for topic in topics if (refusal := _refusal(exchange, topic)) is not None]
    if len(refusals) == len(topics):
        raise refusals[0]
    return _stream(exchange, exchange.state.hub.open(exchange.user, topics))


def _refusal(exchange: Exchange, topic: EventTopic) -> VibeMQError | None:
    """Of a topic that will have `error` in place of figures."""
    policy, needed, wanted = exchange.services.accounts.policy, permissions_of(topic.operation), dict(topic.arguments)
    try:
        check_queue_name(wanted.get("queue", "q"))
        policy.admit(exchange.user.principal, needed, wanted.get, operation=topic.operation)
    except (AuthError, InvalidQueueName) as error:
        return error
    return None


def read_topic(text: str) -> EventTopic:
    """Raises InvalidPayload."""
    # A queue's name is all that follows, whatever stands in it: one that is none refuses its own topic, not the stream.
    head, question, query = (text, "", "") if text.startswith("queue:") else text.partition("?")
    kind, colon, name = head.partition(":")
    known = OPERATIONS.get(kind) in KNOWN
    if not known or bool(colon) != (kind == "queue") or (question and kind != "queues"):
        raise InvalidPayload(
            f"{text[:80]!r} is no topic; there are overview, alarms, queue:NAME, queues, queues?QUERY, jobs and "
            "connections",
            "topic",
        )
    arguments: dict[str, Any] = {}
    if kind == "queue":
        arguments |= {"queue": name, "groups_max": GROUPS_SHOWN}
    elif kind == "queues":
        try:
            arguments = {"limit": 50, **dict(parse_qsl(query, max_num_fields=10))}
        except ValueError:
            raise InvalidPayload(f"the query of the topic {text[:80]!r} has too many parts", "topic") from None
    elif kind in ("connections", "jobs"):
        arguments["limit"] = ITEMS_MAX
    for number in _NUMBERS:
        value = arguments.get(number, 1)
        if isinstance(value, str):
            if not (value.isascii() and value.isdecimal() and len(value) < 10 and 1 <= int(value) <= ITEMS_MAX):
                raise InvalidPayload(f"{number} of a topic must be a number from 1 to {ITEMS_MAX}", "topic")
            arguments[number] = int(value)
    return EventTopic(text, kind, OPERATIONS[kind], tuple(sorted(arguments.items())))


async def tail(exchange: Exchange) -> Response:
    queue = check_queue_name(exchange.path["queue"])
    user, messages = exchange.user, exchange.services.messages
    policy, needed = exchange.services.accounts.policy, permissions_of("queue.peek")

    policy.admit(user.principal, needed, {"queue": queue}.get, operation="queue.peek")
    reader = TailReader(
        queue,
        messages.tail,
        exchange.state.tailed,
        per_second=exchange.query.get("sample", PER_SECOND_MAX),
        preview_bytes=exchange.query.get("preview_bytes", PREVIEW_BYTES),
        hidden=lambda: exchange.state.hides_bodies(user.principal),
    )
    return _stream(exchange, reader)


def _stream(exchange: Exchange, source: StreamSource) -> Response:
    """It ends with the session of the browser, when the login does not count any more, or with the rights that it was
    begun with."""
    state, user = exchange.state, exchange.user
    policy = exchange.services.accounts.policy
    rights = policy.rights_of(user.principal)
    session = state.sessions.of_digest(user.session) if user.session else None

    def why_over() -> str:
        if not exchange.services.is_ready():
            return "the broker is stopping"
        if user.session and (session is None or session.ended):
            return session.ended if session is not None else "the session has ended"
        if ended := state.credentials.why_ended(user.principal):
            return ended
        if policy.rights_of(user.principal) != rights:
            return "your permissions have changed; connect again"
        if user.session:
            # It is asked again when the frame before was taken: somebody reads.
            state.sessions.touch(user.session, exchange.services.now_s)
        return ""

    return EventStream(source, why_over, state.streams)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/events",
        summary="Figures once a second as server-sent events; of each topic the latest.",
        operation="queue.list",
        kind=Kind.STREAM,
        query=(
            Parameter(
                "topic",
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": TOPICS_MAX},
                "overview, alarms, queue:NAME, queues, queues?QUERY, jobs, connections; repeated.",
                required=True,
            ),
        ),
        handler=events,
        produces=EVENTS,
        conditional=False,
        errors=(ErrorCode.INVALID_QUEUE,),
    ),
    Endpoint(
        method="GET",
        path="/queues/{queue}/tail",
        summary="New messages of a queue as server-sent events: a few a second, and how many were left out.",
        operation="queue.peek",
        kind=Kind.STREAM,
        query=(
            Parameter(
                "sample",
                {"type": "integer", "minimum": 1, "maximum": PER_SECOND_MAX},
                "Most messages a second; left out: 50.",
            ),
            Parameter(
                "preview_bytes",
                {"type": "integer", "minimum": 0, "maximum": PREVIEW_BYTES_MAX},
                "Most bytes of each body; left out: 1,024.",
            ),
        ),
        handler=tail,
        produces=EVENTS,
        conditional=False,
        errors=(ErrorCode.QUEUE_NOT_FOUND,),
    ),
)
