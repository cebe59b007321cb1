"""Figures for live readers: each topic is asked for once a second, encoded once for all who may see the same, and
shared. A reader that is behind gets the latest; nothing is kept for it.

Without readers nothing runs.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from vibemq.errors import ErrorCode, QueueNotFound, VibeMQError
from vibemq.model.access import Principal
from vibemq.operations.reading.instants import with_instants
from vibemq.web.api.messages.hiding import without_bodies
from vibemq.web.api.services import ApiServices, Asker
from vibemq.web.api.streams.frames import frame

log = logging.getLogger("vibemq.http")

PERIOD_S = 1.0
ANSWER_TIMEOUT_S = 10.0
"""A topic that takes longer is left out this time."""
FAULT = "the broker could not make these figures; its log has the reason"
TOPICS_MAX = 32
"""Of one stream: twelve pages of the console want up to 24."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """Who may see the same: superusers together, everybody else alone, and only with the same rights. What was told
    with others stays with the streams that were opened with them, and these end."""

    user: str = ""
    token_id: str = ""
    since: int = 0
    rights: object = field(default=None, hash=False)
    """Many rules are long to hash, and compared at once when they are the same object."""


SUPERUSERS = TopicView()


class EventTopic(NamedTuple):
    """What is asked for."""

    text: str
    """As the reader has written it."""
    kind: str
    operation: str
    arguments: tuple[tuple[str, Any], ...] = ()


OPERATIONS: Mapping[str, str] = {
    "overview": "broker.overview",
    "alarms": "broker.overview",
    "queue": "queue.info",
    "queues": "queue.rows",
    "jobs": "job.list",
    "connections": "connections.list",
}
ALARM_FIELDS = ("state", "sentences")


@dataclass(slots=True, eq=False)
class SharedTopic:
    """One topic as one view sees it."""

    topic: EventTopic
    readers: dict["TopicReader", None] = field(default_factory=dict)
    frame: bytes = b""


@dataclass(slots=True, eq=False)
class WatchedView:
    """What those of one view read."""

    subjects: dict[EventTopic, SharedTopic] = field(default_factory=dict)
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Something has changed."""


class TopicReader:
    """One stream's part of the hub: of each topic the latest frame that was not taken."""

    def __init__(self, hub: "EventHub", asker: Asker, subjects: list[SharedTopic]) -> None:
        self._hub = hub
        self.asker = asker
        self._subjects = subjects
        self._waiting: dict[EventTopic, bytes] = {}
        self._something = asyncio.Event()
        for subject in subjects:
            subject.readers[self] = None
            if subject.frame:
                self.put(subject.topic, subject.frame)

    def put(self, topic: EventTopic, data: bytes) -> None:
        """In place of what was there."""
        self._waiting[topic] = data
        self._something.set()

    async def take(self, seconds: float) -> bytes:
        """See `vibemq.web.api.streams.stream.StreamSource`."""
        try:
            await asyncio.wait_for(self._something.wait(), seconds)
        except TimeoutError:
            return b""
        self._something.clear()
        waiting, self._waiting = self._waiting, {}
        return b"".join(waiting.values())

    def close(self) -> None:
        self._hub.forget(self, self._subjects)


class EventHub:
    def __init__(self, services: ApiServices) -> None:
        self._services = services
        self._watched: dict[TopicView, WatchedView] = {}
        """Each is asked for by itself, so that nobody waits for the many figures that somebody else wants."""
        self.hides: Callable[[Principal], bool] = lambda principal: False
        """Whether a principal is shown nothing of what is in messages."""

    @property
    def subjects(self) -> int:
        """Topics that are asked for."""
        return sum(len(watched.subjects) for watched in self._watched.values())

    def open(self, asker: Asker, topics: list[EventTopic]) -> TopicReader:
        view = self.view(asker)
        watched = self._watched.get(view)
        if watched is None:
            watched = WatchedView()
            self._services.peers.begin(self._run, view, watched)
            self._watched[view] = watched
        subjects: list[SharedTopic] = []
        for topic in topics:
            subject = watched.subjects.get(topic)
            if subject is None:
                subject = watched.subjects[topic] = SharedTopic(topic)
            subjects.append(subject)
        reader = TopicReader(self, asker, subjects)
        watched.wanted.set()
        return reader

    def forget(self, reader: TopicReader, subjects: list[SharedTopic]) -> None:
        for subject in subjects:
            subject.readers.pop(reader, None)
        for watched in self._watched.values():
            watched.subjects = {topic: subject for topic, subject in watched.subjects.items() if subject.readers}
            watched.wanted.set()

    def view(self, asker: Asker) -> TopicView:
        policy, principal = self._services.accounts.policy, asker.principal
        if policy.is_superuser(principal):
            return SUPERUSERS
        return TopicView(principal.name, principal.token_id, principal.since, policy.rights_of(principal))

    async def _run(self, view: TopicView, watched: WatchedView) -> None:
        try:
            while watched.subjects:
                for subject in list(watched.subjects.values()):
                    await self._refresh(view, subject)
                watched.wanted.clear()
                await self._rest(view, watched)
        finally:
            del self._watched[view]

    async def _rest(self, view: TopicView, watched: WatchedView) -> None:
        """Until the next second; a topic that is new is asked for at once."""
        loop = asyncio.get_running_loop()
        end = loop.time() + PERIOD_S
        while watched.subjects and (left := end - loop.time()) > 0:
            try:
                await asyncio.wait_for(watched.wanted.wait(), left)
            except TimeoutError:
                return
            watched.wanted.clear()
            for subject in [subject for subject in watched.subjects.values() if not subject.frame]:
                await self._refresh(view, subject)

    async def _refresh(self, view: TopicView, subject: SharedTopic) -> None:
        """Ask as one of those who see it so; whoever does not any more has a stream that is about to end."""
        topic = subject.topic
        asker = next((reader.asker for reader in subject.readers if self.view(reader.asker) == view), None)
        if asker is None:
            return
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                answered = await self._services.operations.ask(asker, topic.operation, dict(topic.arguments))
            shown = _shown(topic, answered.result)
            told = {"topic": topic.text, "data": without_bodies(shown) if self.hides(asker.principal) else shown}
        except TimeoutError:
            return
        except VibeMQError as error:
            told = {"topic": topic.text, "error": {"code": error.code, "detail": str(error)}}
        except Exception:
            # A bug of ours ends neither the other topics nor the stream; it is written down once, not each second.
            if FAULT.encode() not in subject.frame:
                log.exception("the figures of %s could not be made", topic.kind)
            told = {"topic": topic.text, "error": {"code": ErrorCode.SERVER_ERROR, "detail": FAULT}}
        if self.view(asker) != view:
            return
        made = frame(topic.kind, orjson.dumps(with_instants(told, ("headers", "arguments", "values"))))
        if made != subject.frame:
            subject.frame = made
            for reader in subject.readers:
                reader.put(topic, made)


def _shown(topic: EventTopic, result: Any) -> Any:
    value = orjson.loads(orjson.dumps(result))
    if topic.kind == "queue" and value is None:
        raise QueueNotFound(str(dict(topic.arguments)["queue"])[:64])
    if topic.kind == "alarms":
        return {name: value.get(name) for name in ALARM_FIELDS}
    return value
