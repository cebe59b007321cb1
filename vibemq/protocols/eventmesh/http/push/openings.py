"""The way of a group to its consumer."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from vibemq.errors import QueueNotFound, VibeMQError
from vibemq.model.commands import CreateQueue, DescribeQueue, Subscribe
from vibemq.protocols.eventmesh.http.push.groups import WINDOW_BYTES, WINDOW_MESSAGES, PushGroup
from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.push.registry import GroupKey, SubscriptionKey
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.eventmesh.topics import takes_turns, topic_options


class OpeningFor(Protocol):
    """What an opening needs of those who consume."""

    @property
    def own(self) -> InnerSession: ...

    @property
    def settings(self) -> EventMeshHttpSettings: ...

    @property
    def takes_turns(self) -> dict[str, bool]: ...

    def note_turns(self, topic: str, *, turns: bool) -> None: ...

    def group_opened(self, key: SubscriptionKey, group: PushGroup, error: VibeMQError | None) -> None: ...

    def group_lost(self, group_key: GroupKey) -> None: ...


class GroupOpening:
    """The way of a group to its consumer: is there the queue, does it have to be made, may the user subscribe."""

    def __init__(self, consumers: OpeningFor, key: SubscriptionKey, group: PushGroup, session: InnerSession) -> None:
        self._consumers = consumers
        self._key = key
        self._group = group
        self._session = session
        self._name: str | None = key.group
        self._over = False

    def begin(self) -> None:
        own = self._consumers.own
        turns = self._consumers.takes_turns.get(self._key.topic)
        if turns is not None:
            self._name = None if turns else self._key.group
            self._subscribe(self._ready_or_again)
            return
        own.ask(DescribeQueue(own.number, self._described, self._key.topic, figures=False))

    def _described(self, result: Any) -> None:
        if self._over:
            return
        session, settings = self._session, self._consumers.settings
        if isinstance(result, VibeMQError) and not isinstance(result, QueueNotFound):
            self._ready(result)
        elif result is None or isinstance(result, QueueNotFound):
            if not settings.create_topics:
                # Who may not subscribe is told so, and not which queues there are.
                self._subscribe(self._ready)
                return
            options = topic_options(session.context, settings.durability)
            session.ask(CreateQueue(session.number, self._created, self._key.topic, options, implied=True))
        else:
            turns = takes_turns(result)
            self._name = None if turns else self._key.group
            self._consumers.note_turns(self._key.topic, turns=turns)
            self._subscribe(self._ready)

    def _created(self, result: Any) -> None:
        if self._over:
            return
        if isinstance(result, VibeMQError):
            self._subscribe(partial(self._ready_without, result))
        else:
            self._subscribe(self._ready)

    def _ready_without(self, refused: VibeMQError, result: Any) -> None:
        """The queue was not created; that is the reason, unless the user may not subscribe to it at all."""
        self._ready(refused if isinstance(result, QueueNotFound) else result)

    def _ready_or_again(self, result: Any) -> None:
        """The queue that was known is gone: look anew."""
        if isinstance(result, QueueNotFound) and not self._over:
            self._consumers.takes_turns.pop(self._key.topic, None)
            self._session.forget(self._group.consumer)
            self.begin()
        else:
            self._ready(result)

    def _subscribe(self, then: Callable[[Any], None]) -> None:
        session, group = self._session, self._group
        group.consumer = session.consumer(group.deliver, self._lost)
        session.ask(
            Subscribe(
                session.number,
                then,
                group.consumer,
                self._key.topic,
                group=self._name,
                capacity_messages=WINDOW_MESSAGES,
                capacity_bytes=WINDOW_BYTES,
                ack_timeout_ms=0,
                create=False,
            )
        )

    def _ready(self, result: Any) -> None:
        if not self._over:
            self._over = True
            self._consumers.group_opened(self._key, self._group, result if isinstance(result, VibeMQError) else None)

    def fail(self, error: VibeMQError) -> None:
        """Whatever is still answered to it."""
        self._ready(error)

    def _lost(self, error: VibeMQError) -> None:
        self._consumers.group_lost(self._key.of_group)
