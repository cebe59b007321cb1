"""Messages on their way to their topics, which are made when they are first used."""

from collections.abc import Callable, Iterator
from typing import Any

from vibemq.errors import QueueNotFound, VibeMQError
from vibemq.model.commands import CreateQueue, Publish, Requester
from vibemq.model.effects import Published
from vibemq.model.extras.message_extra import Extras
from vibemq.model.rows import Rows
from vibemq.protocols.eventmesh.http.publishing import Messages, check_size
from vibemq.protocols.eventmesh.http.state import HttpState
from vibemq.protocols.eventmesh.messages import names
from vibemq.protocols.eventmesh.messages.received import ReceivedMessage
from vibemq.protocols.eventmesh.topics import topic_options

Told = Callable[[VibeMQError | None], None]


class TopicPublish:
    """Rows for one topic, as one publish. `told` gets the reason why they, or the first of them, were not taken."""

    def __init__(
        self, state: HttpState, topic: str, rows: Rows, extras: Extras | None, told: Told, requester: Requester | None
    ) -> None:
        self._state = state
        self._topic = topic
        self._rows = rows
        self._extras = extras
        self._told = told
        self._requester = requester

    def begin(self) -> None:
        self._publish(self._published, create=False)

    def _publish(self, then: Callable[[Any], None], *, create: bool) -> None:
        state = self._state
        state.ask(
            Publish(
                state.session, then, self._topic, self._rows, self._extras, create=create, requester=self._requester
            )
        )

    def _published(self, result: Any) -> None:
        state = self._state
        if isinstance(result, QueueNotFound) and state.settings.create_topics:
            options = topic_options(state.context, state.settings.durability)
            state.ask(CreateQueue(state.session, self._created, self._topic, options, implied=True))
        else:
            self._told(refusal_in(result))

    def _created(self, result: Any) -> None:
        """Who may not create it is told so by the publish."""
        if isinstance(result, VibeMQError):
            self._told(result)
            return
        self._publish(lambda again: self._told(refusal_in(again)), create=True)


def refusal_in(result: Any) -> VibeMQError | None:
    if isinstance(result, VibeMQError):
        return result
    if isinstance(result, Published) and result.refused:
        return next(iter(result.refused.values()))
    return None


def publish_message(state: HttpState, message: ReceivedMessage, message_id: str, told: Told) -> None:
    """Raises InvalidMessage, InvalidQueueName, MessageTooLarge."""
    check_size(message, state.context.limits)
    extra = message.extra(state.now)  # noqa: S610  # no Django here
    rows = Rows.of([message.row(message_id)])
    TopicPublish(state, message.topic, rows, {0: extra} if extra else None, told, None).begin()


def publish_request(state: HttpState, message: ReceivedMessage, token: Any, told: Told) -> None:
    """With a reply to wait for, which comes to `token`. Raises as `publish_message`."""
    check_size(message, state.context.limits)
    settings = state.settings
    timeout_ms = min(message.ttl_ms or settings.reply_timeout_ms, settings.reply_timeout_max_ms)
    address, message_id = state.context.new_id(), state.context.new_id()
    row = message.row(message_id, (names.REPLY_TO, address), (names.CORRELATION_ID, message_id))
    requester = Requester(address, token, timeout_ms)
    TopicPublish(state, message.topic, Rows.of([row]), None, told, requester).begin()


TOPICS_TOGETHER = 32
"""Of a batch, that are published, or made, at a time: others have their turn between them."""


class TopicBatch:
    """Rows of several topics, one publish for each; `told` gets the refusals of topics when all are decided."""

    def __init__(self, state: HttpState, told: Callable[[list[VibeMQError]], None]) -> None:
        self._state = state
        self._told = told
        self._topics: dict[str, tuple[list[bytes], dict[int, Any]]] = {}
        self._under_way = 0
        self._refusals: list[VibeMQError] = []

    def add(self, message: ReceivedMessage) -> None:
        state = self._state
        check_size(message, state.context.limits)
        rows, extras = self._topics.setdefault(message.topic, ([], {}))
        extra = message.extra(state.now)  # noqa: S610  # no Django here
        if extra is not None:
            extras[len(rows)] = extra
        rows.append(message.row(state.context.new_id()))

    def publish(self) -> None:
        while self._topics and self._under_way < TOPICS_TOGETHER:
            topic = next(iter(self._topics))
            rows, extras = self._topics.pop(topic)
            self._under_way += 1
            TopicPublish(self._state, topic, Rows.of(rows), extras or None, self._one_told, None).begin()

    def _one_told(self, error: VibeMQError | None) -> None:
        self._under_way -= 1
        if error is not None:
            self._refusals.append(error)
        self.publish()
        if not self._under_way:
            self._told(self._refusals)


def publish_all(state: HttpState, messages: Messages, told: Callable[[int, list[VibeMQError]], None]) -> Iterator[int]:
    """A message at each step; when all can be published, they are. `told`: how many, and what was refused.

    Raises:
        VibeMQError: one of them is no message; nothing was published.
    """
    count = 0
    batch = TopicBatch(state, lambda refusals: told(count, refusals))
    for message in messages:
        if isinstance(message, int):
            yield message
        else:
            count += 1
            batch.add(message)
            yield 1
    batch.publish()
