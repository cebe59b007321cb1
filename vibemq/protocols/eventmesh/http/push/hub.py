"""Who is subscribed at one listener: the plug-in's part that lives as long as the broker.

registry    what is kept, in a queue of its own; read when the broker starts
sessions    one inner session for each user, as whom its groups consume: what it may do is asked at each use
groups      one consumer for each user, group and topic, which pushes to the URLs of the group
heartbeats  in the order of their last one, so that looking for the silent costs nothing
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from vibemq.errors import InvalidMessage, LimitError, QueueNotFound, VibeMQError
from vibemq.model.commands import DescribeQueue, Subscribe, Unsubscribe
from vibemq.model.options import check_queue_name
from vibemq.protocols.eventmesh.http.push.groups import (
    WINDOW_BYTES,
    WINDOW_MESSAGES,
    PushGroup,
    PushTools,
    SlotGate,
)
from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.push.registry import KeptSubscription, SubscriptionKey, SubscriptionRegistry
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.eventmesh.http.state import Done
from vibemq.protocols.eventmesh.http.topic_publish import ask_for_queue
from vibemq.protocols.eventmesh.topics import SubscriptionItem, takes_turns, topic_options
from vibemq.protocols.session import Peer, Principal, Services, SessionContext

HOST = "eventmesh-http"
"""Where the plug-in's own peers come from, for logs."""
TRY_AGAIN_MS = 30_000
"""A group that has lost its subscription asks again so often: a permission may have come back, or a queue."""
TOPICS_REMEMBERED_MAX = 20_000
_User = tuple[str, str]
_GroupKey = tuple[str, str, str, str]


class SubscriptionHub:
    def __init__(self, services: Services, settings: EventMeshHttpSettings) -> None:
        self._services = services
        self._settings = settings
        calls = services.http_calls(
            allowed=settings.push_allowed_networks,
            timeout_ms=settings.push_timeout_ms,
            ca_file=settings.push_ca_file,
        )
        self._calls = calls
        self._tools = PushTools(services, calls, settings, SlotGate(settings.push_failing_concurrency))
        self._known: dict[SubscriptionKey, KeptSubscription] = {}
        self._by_group: dict[_GroupKey, dict[SubscriptionKey, KeptSubscription]] = {}
        self._sessions: dict[_User, tuple[InnerSession, Peer]] = {}
        self._groups: dict[_GroupKey, PushGroup] = {}
        self._beats: OrderedDict[SubscriptionKey, int] = OrderedDict()
        """Instant of the last heartbeat, of those that have had one; the longest silent first."""
        self._watching = False
        self.takes_turns: dict[str, bool] = {}
        """Whether the consumers of a topic's queue share one pass, of topics that were looked at."""

    def note_turns(self, topic: str, *, turns: bool) -> None:
        if len(self.takes_turns) >= TOPICS_REMEMBERED_MAX:
            self.takes_turns.clear()
        self.takes_turns[topic] = turns

    def start(self) -> None:
        self._own = self._connect(None, _nothing, own=True)[0]
        self._registry = SubscriptionRegistry(self._own, self._found)
        self._registry.start()

    def _connect(
        self, principal: Principal | None, parted: Callable[[str], None], *, own: bool = False
    ) -> tuple[InnerSession, Peer]:
        made: list[InnerSession] = []

        def create(context: SessionContext) -> InnerSession:
            made.append(InnerSession(context, principal, parted=parted))
            return made[0]

        peer = self._services.connect(create, host=HOST, write=_nothing, own=own)
        return made[0], peer

    # -- what sessions say ------------------------------------------------------------------------------------------

    def subscribe(
        self, principal: Principal, group: str, items: Sequence[SubscriptionItem], url: str, now: int, done: Done
    ) -> None:
        """`done` when all of the topics are subscribed and kept, or why not."""
        for item in items:
            check_queue_name(item.topic)
        wanted = [
            KeptSubscription(SubscriptionKey(principal.name, principal.token_id, group, item.topic, url), item.sync)
            for item in items
        ]
        new = sum(kept.key not in self._known for kept in wanted)
        most = self._settings.subscriptions_max
        if len(self._known) + new > most:
            raise LimitError(f"{most:,} subscriptions are the limit (subscriptions_max); unsubscribe some")
        if principal.rules is not None and not principal.token_id:
            raise InvalidMessage("a login that is limited cannot be kept; subscribe with a password or an access token")
        self._services.begin(self._subscribe, wanted, url, now, done)

    async def _subscribe(self, wanted: list[KeptSubscription], url: str, now: int, done: Done) -> None:
        try:
            await self._calls.check(url)
        except VibeMQError as error:
            done(error)
            return
        self._subscribe_next(wanted, now, done)

    def _subscribe_next(self, wanted: list[KeptSubscription], now: int, done: Done) -> None:
        """One after the other."""
        if not wanted:
            done(None)
            return
        kept, *rest = wanted
        before = self._known.get(kept.key)
        if before is not None:
            kept.beating = before.beating
            if kept.key in self._beats:
                self._beat(kept.key, now)

        def subscribed(error: VibeMQError | None) -> None:
            if error is not None:
                done(error)
            elif before is not None and before.same_as(kept):
                self._take_up(kept)
                self._subscribe_next(rest, now, done)
            else:
                self._registry.keep(kept, told_kept)

        def told_kept(error: VibeMQError | None) -> None:
            if error is not None:
                self._drop_unused(kept.key)
                done(error)
                return
            self._take_up(kept)
            self._subscribe_next(rest, now, done)

        self._with_group(kept.key, subscribed)

    def unsubscribe(self, principal: Principal, group: str, topics: Sequence[str], url: str, done: Done) -> None:
        """What nobody has subscribed is unsubscribed already."""
        left = [1 + len(topics)]

        def told() -> None:
            left[0] -= 1
            if not left[0]:
                done(None)

        for topic in topics:
            self._end(SubscriptionKey(principal.name, principal.token_id, group, topic, url), told)
        told()

    def heard(self, principal: Principal, group: str, entities: Sequence[tuple[str, str]], now: int) -> None:
        for topic, url in entities:
            key = SubscriptionKey(principal.name, principal.token_id, group, topic, url)
            kept = self._known.get(key)
            if kept is None:
                continue
            if not kept.beating:
                kept.beating = True
                self._registry.keep(kept, _nothing)
            self._beat(key, now)

    def topics_of(self, principal: Principal) -> list[str]:
        mine = {key.topic for key in self._known if key.user == principal.name}
        return sorted(mine)

    # -- what is kept -----------------------------------------------------------------------------------------------

    def _found(self, kept: KeptSubscription) -> None:
        """In the queue, when the broker starts."""
        if kept.beating:
            self._beat(kept.key, self._own.now)
        self._take_up(kept)

    def _found_group(self, key: SubscriptionKey, error: VibeMQError | None) -> None:
        if error is not None:
            self._own.call_at(self._own.now + TRY_AGAIN_MS, partial(self._again, key))

    def _again(self, key: SubscriptionKey) -> None:
        if key in self._known:
            self._with_group(key, partial(self._found_group, key))

    def _take_up(self, kept: KeptSubscription) -> None:
        group_key = _group_key(kept.key)
        self._known[kept.key] = kept
        self._by_group.setdefault(group_key, {})[kept.key] = kept
        group = self._groups.get(group_key)
        if group is None:
            self._with_group(kept.key, partial(self._found_group, kept.key))
        elif not group.awaited:
            group.add(kept.key.url, sync=kept.sync)

    def _end(self, key: SubscriptionKey, told: Callable[[], None]) -> None:
        if self._known.pop(key, None) is None:
            told()
            return
        others = self._by_group[_group_key(key)]
        del others[key]
        if not others:
            del self._by_group[_group_key(key)]
        self._beats.pop(key, None)
        self._registry.drop(key, told)
        group = self._groups.get(_group_key(key))
        if group is not None:
            group.remove(key.url)
        self._drop_unused(key)

    def _drop_unused(self, key: SubscriptionKey) -> None:
        """The consumer of a group whose last URL is gone. The group itself stays in the queue, with what waits in it:
        whoever subscribes it again goes on there."""
        group_key = _group_key(key)
        group = self._groups.get(group_key)
        if group is None or group.lanes or group.awaited:
            return
        del self._groups[group_key]
        found = self._sessions.get((key.user, key.token_id))
        group.end()
        if found is not None:
            session = found[0]
            session.ask(Unsubscribe(session.number, None, group.consumer))

    # -- groups -----------------------------------------------------------------------------------------------------

    def _with_group(self, key: SubscriptionKey, then: Done) -> None:
        """Have the group of the key consume, as its user; `then` hears whether it does."""
        group = self._groups.get(_group_key(key))
        if group is not None and not group.awaited:
            then(None)
            return
        if group is not None:
            group.awaited.append(then)
            return
        session = self._session_of((key.user, key.token_id))
        if session is None:
            then(InvalidMessage(f"the login of user {key.user!r} does not count any more; log in again"))
            return
        group = PushGroup(key.topic, session, self._tools)
        group.awaited.append(then)
        self._groups[_group_key(key)] = group
        GroupOpening(self, key, group, session).begin()

    def _session_of(self, user: _User) -> InnerSession | None:
        found = self._sessions.get(user)
        if found is not None:
            return found[0]
        principal = self._services.acting(*user)
        if principal is None:
            return None
        self._sessions[user] = self._connect(principal, partial(self._parted, user))
        return self._sessions[user][0]

    def _parted(self, user: _User, reason: str) -> None:
        """The broker stops, or the user's login does not count any more: it may again, later."""
        del self._sessions[user]
        for group_key in [key for key in self._groups if key[:2] == user]:
            self.group_lost(group_key)

    def group_opened(self, key: SubscriptionKey, group: PushGroup, error: VibeMQError | None) -> None:
        awaited, group.awaited = group.awaited, []
        if error is not None:
            self._groups.pop(_group_key(key), None)
            group.end()
        else:
            for kept in self._kept_of(_group_key(key)):
                group.add(kept.key.url, sync=kept.sync)
        for then in awaited:
            then(error)

    def group_lost(self, group_key: _GroupKey) -> None:
        """Through no wish of its subscribers."""
        group = self._groups.pop(group_key, None)
        if group is None:
            return
        group.end()
        self.takes_turns.pop(group.topic, None)
        for kept in self._kept_of(group_key)[:1]:
            self._own.call_at(self._own.now + TRY_AGAIN_MS, partial(self._again, kept.key))

    def _kept_of(self, group_key: _GroupKey) -> list[KeptSubscription]:
        return list(self._by_group.get(group_key, {}).values())

    @property
    def own(self) -> InnerSession:
        return self._own

    @property
    def settings(self) -> EventMeshHttpSettings:
        return self._settings

    # -- heartbeats -------------------------------------------------------------------------------------------------

    def _beat(self, key: SubscriptionKey, now: int) -> None:
        self._beats[key] = now
        self._beats.move_to_end(key)
        self._watch()

    def _watch(self) -> None:
        if self._watching or not self._beats:
            return
        self._watching = True
        oldest = next(iter(self._beats.values()))
        self._own.call_at(oldest + self._settings.heartbeat_expiry_ms, self._look)

    def _look(self) -> None:
        """End those that are silent; of the others, come back for the one that is silent for longest."""
        self._watching = False
        until = self._own.now - self._settings.heartbeat_expiry_ms
        while self._beats and (key := next(iter(self._beats))) and self._beats[key] <= until:
            self._end(key, _nothing)
        self._watch()


class GroupOpening:
    """The way of a group to its consumer: is there the queue, does it have to be made, may the user subscribe."""

    def __init__(self, hub: SubscriptionHub, key: SubscriptionKey, group: PushGroup, session: InnerSession) -> None:
        self._hub = hub
        self._key = key
        self._group = group
        self._session = session
        self._name: str | None = key.group

    def begin(self) -> None:
        own = self._hub.own
        turns = self._hub.takes_turns.get(self._key.topic)
        if turns is not None:
            # Describing a queue takes as long as it has groups.
            self._name = None if turns else self._key.group
            self._subscribe(self._ready_or_again)
            return
        own.ask(DescribeQueue(own.number, self._described, self._key.topic))

    def _described(self, result: Any) -> None:
        session, settings = self._session, self._hub.settings
        if isinstance(result, VibeMQError) and not isinstance(result, QueueNotFound):
            self._ready(result)
        elif result is None or isinstance(result, QueueNotFound):
            if not settings.create_topics:
                self._ready(QueueNotFound(self._key.topic))
                return
            options = topic_options(session.context.queue_defaults, settings.durability)
            ask_for_queue(session, session.number, self._key.topic, options, self._created)
        else:
            turns = takes_turns(result)
            self._name = None if turns else self._key.group
            self._hub.note_turns(self._key.topic, turns=turns)
            self._subscribe(self._ready)

    def _created(self, result: Any) -> None:
        if isinstance(result, VibeMQError):
            self._ready(result)
        else:
            self._subscribe(self._ready)

    def _ready_or_again(self, result: Any) -> None:
        """The queue that was known is gone: look anew."""
        if isinstance(result, QueueNotFound):
            self._hub.takes_turns.pop(self._key.topic, None)
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
        self._hub.group_opened(self._key, self._group, result if isinstance(result, VibeMQError) else None)

    def _lost(self, error: VibeMQError) -> None:
        self._hub.group_lost(_group_key(self._key))


def _group_key(key: SubscriptionKey) -> _GroupKey:
    return key.user, key.token_id, key.topic, key.group


def _nothing(*_: Any) -> None:
    """Nobody has to be told."""
