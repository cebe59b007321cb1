"""Who is subscribed at one listener: the plug-in's part that lives as long as the broker.

registry    what is kept, in a queue of its own; read when the broker starts
sessions    one inner session for each user, as whom its groups consume: what it may do is asked at each use
groups      one consumer for each user, group and topic, which pushes to the URLs of the group
heartbeats  in the order of their last one, so that looking for the silent costs nothing
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from vibemq.errors import InvalidMessage, LimitError, RequestFailed, ShuttingDown, VibeMQError
from vibemq.model.commands import Unsubscribe
from vibemq.protocols.eventmesh.http.push.exchanges import Exchanges, HubExchange
from vibemq.protocols.eventmesh.http.push.groups import PUSHES_MAX, PushGroup, PushTools
from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.push.lost_groups import LostGroups
from vibemq.protocols.eventmesh.http.push.openings import GroupOpening
from vibemq.protocols.eventmesh.http.push.registry import (
    UNKNOWN_SINCE,
    GroupKey,
    KeptSubscription,
    SubscriptionKey,
    SubscriptionRegistry,
    UserKey,
)
from vibemq.protocols.eventmesh.http.push.slots import PushSlots
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.eventmesh.http.state import Done
from vibemq.protocols.eventmesh.messages.json_scan import STEP_WORK, Steps
from vibemq.protocols.eventmesh.topics import SubscriptionItem
from vibemq.protocols.session import Peer, Principal, Services, SessionContext

log = logging.getLogger("vibemq.plugin")

HOST = "eventmesh-http"
"""Where the plug-in's own peers come from, for logs."""
TRY_AGAIN_MS = 30_000
"""A group that has lost its subscription asks again so often, for a queue may have come back; and when its user has
changed, at once, for so may a permission."""
HEARD_AT_ONCE = 20
"""Heartbeats of one request; the first of a subscription is kept."""
ADDED_AT_ONCE = 25
"""URLs of a group."""
ENDED_AT_ONCE = 20
"""Subscriptions without a heartbeat, in one turn of the loop."""
LOOKED_AT_ONCE = 1_000
"""Subscriptions, when a client asks for its own."""
TOPICS_REMEMBERED_MAX = 20_000


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
        slots = PushSlots(PUSHES_MAX, settings.push_failing_concurrency, lambda what: self._own.call_soon(what))
        self._tools = PushTools(services, calls, settings, slots)
        self._known: dict[SubscriptionKey, KeptSubscription] = {}
        self._by_group: dict[GroupKey, dict[SubscriptionKey, KeptSubscription]] = {}
        self._sessions: dict[UserKey, tuple[InnerSession, Peer]] = {}
        self._groups: dict[GroupKey, PushGroup] = {}
        self._beats: OrderedDict[SubscriptionKey, int] = OrderedDict()
        """Instant of the last heartbeat, of those that have had one; the longest silent first."""
        self._watching = False
        self._exchanges = Exchanges(lambda: self._own)
        self._openings: dict[GroupKey, GroupOpening] = {}
        """Of groups whose consumers are on their way."""
        self._lost = LostGroups(lambda: self._own, self._ask_again)
        services.watch_users(self._lost.users_changed)
        self.takes_turns: dict[str, bool] = {}
        """Whether the consumers of a topic's queue share one pass, of topics that were looked at."""

    def note_turns(self, topic: str, *, turns: bool) -> None:
        if len(self.takes_turns) >= TOPICS_REMEMBERED_MAX:
            self.takes_turns.clear()
        self.takes_turns[topic] = turns

    def start(self) -> None:
        self._own = self._connect(None, self._own_parted, own=True)[0]
        self._registry = SubscriptionRegistry(self._own, self._found, self._registry_lost, self._since_of)
        self._registry.start()

    def _own_parted(self, reason: str) -> None:
        """The broker stops; else something is wrong here, and what all users share begins anew."""
        if self._services.stopping:
            return
        log.error("the session that keeps the subscriptions has ended (%s); a new one takes its place", reason)
        gone = self._own
        self._own = self._connect(None, self._own_parted, own=True)[0]
        self._own.go_on_after(gone)
        failed = RequestFailed("the broker had to begin anew with its subscriptions; ask again")
        self._exchanges.fail_all(failed)
        for opening in list(self._openings.values()):
            opening.fail(failed)
        self._registry.move_to(self._own, failed)

    def _registry_lost(self) -> None:
        """Somebody has deleted its queue: what is subscribed is kept anew."""
        self._own.call_for_each(list(self._known.values()), self._keep_anew)

    def _keep_anew(self, kept: KeptSubscription) -> None:
        if self._known.get(kept.key) is kept and not self._registry.holds(kept.key):
            self._registry.keep(kept, _nothing)

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
        """`done` when all of the topics are subscribed and kept, or why not. Of a topic that comes twice, the last item
        counts. Their names have been checked."""
        wanted = {item.topic: item for item in items}
        most = self._settings.subscriptions_max
        if (
            len(self._known) + len(wanted) > most
            and len(self._known) + sum(_key_of(principal, group, topic, url) not in self._known for topic in wanted)
            > most
        ):
            raise LimitError(f"{most:,} subscriptions are the limit (subscriptions_max); unsubscribe some")
        if principal.rules is not None and not principal.token_id:
            raise InvalidMessage("a login that is limited cannot be kept; subscribe with a password or an access token")
        made = partial(_key_of, principal, group)
        self._services.begin(self._subscribe, list(wanted.values()), made, url, now, done)

    async def _subscribe(
        self,
        wanted: list[SubscriptionItem],
        made: Callable[[str, str], SubscriptionKey],
        url: str,
        now: int,
        done: Done,
    ) -> None:
        try:
            await self._calls.check(url)
        except VibeMQError as error:
            done(error)
            return

        def begin(item: SubscriptionItem, told: Done) -> None:
            self._subscribe_one(KeptSubscription(made(item.topic, url), item.sync), now, told)

        self._exchanges.begin(HubExchange(wanted, begin, done))

    def _subscribe_one(self, kept: KeptSubscription, now: int, told: Done) -> None:
        before = self._known.get(kept.key)
        if before is not None:
            kept.beating = before.beating
            if kept.key in self._beats:
                self._beat(kept.key, now)

        def subscribed(error: VibeMQError | None) -> None:
            if error is not None:
                told(error)
            elif before is not None and before.same_as(kept) and self._registry.holds(kept.key):
                self._take_up(kept)
                told(None)
            else:
                self._registry.keep(kept, told_kept)

        def told_kept(error: VibeMQError | None) -> None:
            if error is not None:
                self._drop_unused(kept.key)
            else:
                self._take_up(kept)
            told(error)

        self._with_group(kept.key, subscribed)

    def unsubscribe(self, principal: Principal, group: str, topics: Sequence[str], url: str, done: Done) -> None:
        """What nobody has subscribed is unsubscribed already."""

        def begin(topic: str, told: Done) -> None:
            self._end(_key_of(principal, group, topic, url), told)

        self._exchanges.begin(HubExchange(dict.fromkeys(topics), begin, done))

    def heard(self, principal: Principal, group: str, entities: Sequence[tuple[str, str]], now: int) -> None:
        self._heard(principal, group, entities[:HEARD_AT_ONCE], now)
        for begin in range(HEARD_AT_ONCE, len(entities), HEARD_AT_ONCE):
            some = entities[begin : begin + HEARD_AT_ONCE]
            self._own.call_soon(partial(self._heard, principal, group, some, now))

    def _heard(self, principal: Principal, group: str, entities: Sequence[tuple[str, str]], now: int) -> None:
        for topic, url in entities:
            key = _key_of(principal, group, topic, url)
            kept = self._known.get(key)
            if kept is None:
                continue
            if not kept.beating:
                kept.beating = True
                self._registry.keep(kept, _nothing)
            self._beat(key, now)

    def topics_of(self, principal: Principal) -> Steps[list[str]]:
        """In steps, in the order in which they were first subscribed."""
        mine: dict[str, None] = {}
        for number, key in enumerate(list(self._known), 1):
            if (key.user, key.since) == (principal.name, principal.since):
                mine[key.topic] = None
            if number % LOOKED_AT_ONCE == 0:
                yield STEP_WORK
        return list(mine)

    # -- what is kept -----------------------------------------------------------------------------------------------

    def _found(self, kept: KeptSubscription) -> None:
        """In the queue, when the broker starts."""
        if kept.beating:
            self._beat(kept.key, self._own.now)
        self._take_up(kept)

    def _since_of(self, user: str, token_id: str, instant: int) -> int:
        """Of a user that has subscribed at that instant."""
        principal = self._services.acting(user, token_id)
        fits = principal is not None and principal.name == user and principal.since <= instant
        return principal.since if principal is not None and fits else UNKNOWN_SINCE

    def _found_group(self, key: SubscriptionKey, error: VibeMQError | None) -> None:
        if error is not None:
            self._lost.add(key.of_group, TRY_AGAIN_MS)

    def _ask_again(self, group_key: GroupKey) -> None:
        key = next(iter(self._by_group.get(group_key, {})), None)
        if key is not None:
            self._with_group(key, partial(self._found_group, key))

    def _take_up(self, kept: KeptSubscription) -> None:
        group_key = kept.key.of_group
        self._known[kept.key] = kept
        self._by_group.setdefault(group_key, {})[kept.key] = kept
        group = self._groups.get(group_key)
        if group is None:
            self._with_group(kept.key, partial(self._found_group, kept.key))
        elif not group.awaited:
            group.add(kept.key.url, sync=kept.sync)

    def _end(self, key: SubscriptionKey, told: Done) -> None:
        if self._known.pop(key, None) is None:
            told(None)
            return
        others = self._by_group[key.of_group]
        del others[key]
        if not others:
            del self._by_group[key.of_group]
        self._beats.pop(key, None)
        self._registry.drop(key, told)
        group = self._groups.get(key.of_group)
        if group is not None:
            group.remove(key.url)
        self._drop_unused(key)

    def _drop_unused(self, key: SubscriptionKey) -> None:
        """The consumer of a group whose last URL is gone. The group itself stays in the queue, with what waits in it:
        whoever subscribes it again goes on there."""
        group_key = key.of_group
        group = self._groups.get(group_key)
        if group is None or group.lanes or group.awaited:
            return
        del self._groups[group_key]
        group.end()
        session, found = group.session, self._sessions.get(key.of_user)
        # With the session that it had, its consumer has ended, too; another session's numbers are its own.
        if found is not None and found[0] is session:
            session.ask(Unsubscribe(session.number, None, group.consumer))

    # -- groups -----------------------------------------------------------------------------------------------------

    def _with_group(self, key: SubscriptionKey, then: Done) -> None:
        """Have the group of the key consume, as its user; `then` hears whether it does."""
        group = self._groups.get(key.of_group)
        if group is not None and not group.awaited:
            then(None)
            return
        if group is not None:
            group.awaited.append(then)
            return
        if self._services.stopping:
            then(ShuttingDown("the broker is stopping"))
            return
        session = self._session_of(key)
        if session is None:
            then(InvalidMessage(f"the login of user {key.user!r} does not count any more; log in again"))
            return
        group = PushGroup(key.topic, session, self._tools)
        group.awaited.append(then)
        self._groups[key.of_group] = group
        opening = self._openings[key.of_group] = GroupOpening(self, key, group, session)
        opening.begin()

    def _session_of(self, key: SubscriptionKey) -> InnerSession | None:
        """None: the login does not count any more. If its user is gone, and another one has the name, what the user has
        subscribed ends."""
        found = self._sessions.get(key.of_user)
        if found is not None:
            return found[0]
        principal = self._services.acting(key.user, key.token_id)
        if principal is None:
            return None
        # A broker without authentication acts for everybody alike.
        if principal.name == key.user and principal.since != key.since:
            self._own.call_for_each(self._kept_of(key.of_group), lambda kept: self._end(kept.key, _nothing))
            return None
        self._sessions[key.of_user] = self._connect(principal, partial(self._parted, key.of_user))
        return self._sessions[key.of_user][0]

    def _parted(self, user: UserKey, reason: str) -> None:
        """The broker stops; or the login that the user had does not count any more, and with another password it may at
        once; or something is wrong here, which may be so again."""
        session, _ = self._sessions.pop(user)
        if self._services.stopping:
            return
        again_ms = TRY_AGAIN_MS if session.closing else 0
        without = partial(self._group_without_session, user, session, again_ms)
        self._own.call_for_each(list(self._groups.items()), without)

    def _group_without_session(
        self, user: UserKey, session: InnerSession, again_ms: int, known: tuple[GroupKey, PushGroup]
    ) -> None:
        group_key, group = known
        if group_key[:3] == user and self._groups.get(group_key) is group and group.session is session:
            self.group_lost(group_key, again_ms)

    def group_opened(self, key: SubscriptionKey, group: PushGroup, error: VibeMQError | None) -> None:
        self._openings.pop(key.of_group, None)
        awaited, group.awaited = group.awaited, []
        if error is not None:
            self._groups.pop(key.of_group, None)
            group.end()
        else:
            all_kept = self._kept_of(key.of_group)
            for kept in all_kept[:ADDED_AT_ONCE]:
                self._add_to(group, kept)
            if len(all_kept) > ADDED_AT_ONCE:
                self._own.call_for_each(all_kept[ADDED_AT_ONCE:], partial(self._add_to, group))
        for then in awaited:
            then(error)

    def _add_to(self, group: PushGroup, kept: KeptSubscription) -> None:
        if self._known.get(kept.key) is kept and self._groups.get(kept.key.of_group) is group:
            group.add(kept.key.url, sync=kept.sync)

    def group_lost(self, group_key: GroupKey, again_ms: int = TRY_AGAIN_MS) -> None:
        """Through no wish of its subscribers."""
        opening = self._openings.get(group_key)
        if opening is not None:
            opening.fail(RequestFailed("the subscription was ended while it was made; ask again"))
        group = self._groups.pop(group_key, None)
        if group is None:
            return
        group.end()
        self.takes_turns.pop(group.topic, None)
        if group_key in self._by_group:
            self._lost.add(group_key, again_ms)

    def _kept_of(self, group_key: GroupKey) -> list[KeptSubscription]:
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
        for _ in range(ENDED_AT_ONCE):
            key = next(iter(self._beats), None)
            if key is None or self._beats[key] > until:
                break
            self._end(key, _nothing)
        self._watch()


def _key_of(principal: Principal, group: str, topic: str, url: str) -> SubscriptionKey:
    return SubscriptionKey(principal.name, principal.token_id, principal.since, group, topic, url)


def _nothing(*_: Any) -> None:
    """Nobody has to be told."""
