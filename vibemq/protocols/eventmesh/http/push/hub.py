"""Who is subscribed at one listener: the plug-in's part that lives as long as the broker.

registry    what is kept, in a queue of its own; read when the broker starts
known       the same in memory
consumers   who pushes it: a consumer for each user, group and topic
heartbeats  what ends because nothing is heard of it
exchanges   what clients have asked and is under way
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from vibemq.errors import InvalidMessage, LimitError, RequestFailed, VibeMQError
from vibemq.protocols.eventmesh.http.push.consumers import GroupConsumers
from vibemq.protocols.eventmesh.http.push.exchanges import Exchanges, HubExchange
from vibemq.protocols.eventmesh.http.push.groups import PUSHES_MAX, PushTools
from vibemq.protocols.eventmesh.http.push.heartbeats import Heartbeats
from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.push.known import KnownSubscriptions
from vibemq.protocols.eventmesh.http.push.registry import (
    UNKNOWN_SINCE,
    GroupKey,
    KeptSubscription,
    SubscriptionKey,
    SubscriptionRegistry,
)
from vibemq.protocols.eventmesh.http.push.slots import PushSlots
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.eventmesh.http.state import Done
from vibemq.protocols.eventmesh.messages.json_scan import Steps
from vibemq.protocols.eventmesh.topics import SubscriptionItem
from vibemq.protocols.session import Principal, Services, SessionContext

log = logging.getLogger("vibemq.plugin")

HOST = "eventmesh-http"
"""Where the plug-in's own peers come from, for logs."""
HEARD_AT_ONCE = 20
"""Heartbeats of one request; the first of a subscription is kept."""


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
        tools = PushTools(services, calls, settings, slots)
        self._known = KnownSubscriptions()
        self.consumers = GroupConsumers(tools, self._known, self._own_now, self._connect, self._end_group)
        self._heartbeats = Heartbeats(self._own_now, settings.heartbeat_expiry_ms, lambda key: self._end(key, _nothing))
        self._exchanges = Exchanges(self._own_now)
        self._being_made = Counter[str]()
        """New subscriptions that are not kept yet, by user."""

    def start(self) -> None:
        self._own = self._connect(None, self._own_parted, own=True)
        self._registry = SubscriptionRegistry(self._own, self._found, self._registry_lost, self._since_of)
        self._registry.start()

    def _own_now(self) -> InnerSession:
        return self._own

    def _own_parted(self, reason: str) -> None:
        """The broker stops; else something is wrong here, and what all users share begins anew."""
        if self._services.stopping:
            return
        log.error("the session that keeps the subscriptions has ended (%s); a new one takes its place", reason)
        gone = self._own
        self._own = self._connect(None, self._own_parted, own=True)
        self._own.go_on_after(gone)
        failed = RequestFailed("the broker had to begin anew with its subscriptions; ask again")
        self._exchanges.fail_all(failed)
        self.consumers.fail_openings(failed)
        self._registry.move_to(self._own, failed)

    def _registry_lost(self) -> None:
        """Somebody has deleted its queue: what is subscribed is kept anew."""
        self._own.call_for_each(self._known, self._keep_anew)

    def _keep_anew(self, kept: KeptSubscription) -> None:
        if self._known.holds(kept) and not self._registry.holds(kept.key):
            self._registry.keep(kept, _nothing)

    def _connect(
        self, principal: Principal | None, parted: Callable[[str], None], *, own: bool = False
    ) -> InnerSession:
        made: list[InnerSession] = []

        def create(context: SessionContext) -> InnerSession:
            made.append(InnerSession(context, principal, parted=parted))
            return made[0]

        self._services.connect(create, host=HOST, write=_nothing, own=own, limited=False)
        return made[0]

    # -- what sessions say ------------------------------------------------------------------------------------------

    def subscribe(
        self, principal: Principal, group: str, items: Sequence[SubscriptionItem], url: str, now: int, done: Done
    ) -> None:
        """`done` when all of the topics are subscribed and kept, or why not. Of a topic that comes twice, the last item
        counts. Their names have been checked."""
        wanted = {item.topic: item for item in items}
        if self._refusal(principal.name, len(wanted)) is not None:
            new = sum(_key_of(principal, group, topic, url) not in self._known for topic in wanted)
            if new and (refusal := self._refusal(principal.name, new)) is not None:
                raise refusal
        if principal.rules is not None and not principal.token_id:
            raise InvalidMessage("a login that is limited cannot be kept; subscribe with a password or an access token")
        made = partial(_key_of, principal, group)
        self._services.begin(self._subscribe, principal.name, list(wanted.values()), made, url, now, done)

    async def _subscribe(
        self,
        user: str,
        wanted: list[SubscriptionItem],
        made: Callable[[str, str], SubscriptionKey],
        url: str,
        now: int,
        done: Done,
    ) -> None:
        try:
            await self._calls.check(url, owner=user)
        except VibeMQError as error:
            done(error)
            return

        def begin(item: SubscriptionItem, told: Done) -> None:
            self._subscribe_one(KeptSubscription(made(item.topic, url), item.sync), now, told)

        self._exchanges.begin(HubExchange(wanted, begin, done))

    def _subscribe_one(self, kept: KeptSubscription, now: int, told: Done) -> None:
        before = self._known.get(kept.key)
        if before is None:
            user = kept.key.user
            if (refusal := self._refusal(user, 1)) is not None:
                told(refusal)
                return
            self._being_made[user] += 1
            told = partial(self._made, user, told)
        else:
            kept.beating = before.beating
            if kept.key in self._heartbeats:
                self._heartbeats.note(kept.key, now)

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
                self.consumers.drop_unused(kept.key)
            else:
                self._take_up(kept)
            told(error)

        self.consumers.open(kept.key, subscribed)

    def _made(self, user: str, told: Done, error: VibeMQError | None) -> None:
        """Or not."""
        self._being_made[user] -= 1
        if not self._being_made[user]:
            del self._being_made[user]
        told(error)

    def _refusal(self, user: str, more: int) -> LimitError | None:
        """Of so many new ones of a user."""
        settings, known, being_made = self._settings, self._known, self._being_made
        most = settings.subscriptions_per_user_max
        if known.count_of(user) + being_made[user] + more > most:
            why = f"{most:,} subscriptions are the limit for one user (subscriptions_per_user_max)"
            return LimitError(f"{why}; unsubscribe some of user {user!r}")
        most = settings.subscriptions_max
        if len(known) + being_made.total() + more > most:
            return LimitError(f"{most:,} subscriptions are the limit (subscriptions_max); unsubscribe some")
        return None

    def unsubscribe(self, principal: Principal, group: str, topics: Sequence[str], url: str, done: Done) -> None:
        """What nobody has subscribed is unsubscribed already."""

        def begin(topic: str, told: Done) -> None:
            ending = self._known.ended_with(_key_of(principal, group, topic, url), principal)
            if len(ending) > 1:
                self._exchanges.begin(HubExchange(ending, self._end, told))
            else:
                self._end(ending[0], told)

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
            self._heartbeats.note(key, now)

    def topics_of(self, principal: Principal) -> Steps[list[str]]:
        return self._known.topics_of(principal)

    # -- what is kept -----------------------------------------------------------------------------------------------

    def _found(self, kept: KeptSubscription) -> None:
        """In the queue, when the broker starts."""
        if kept.beating:
            self._heartbeats.note(kept.key, self._own.now)
        self._take_up(kept)

    def _since_of(self, user: str, token_id: str, instant: int) -> int:
        """Of a user that has subscribed at that instant."""
        principal = self._services.acting(user, token_id)
        fits = principal is not None and principal.name == user and principal.since <= instant
        return principal.since if principal is not None and fits else UNKNOWN_SINCE

    def _take_up(self, kept: KeptSubscription) -> None:
        self._known.add(kept)
        self.consumers.add(kept)

    def _end(self, key: SubscriptionKey, told: Done) -> None:
        if not self._known.remove(key):
            told(None)
            return
        self._heartbeats.forget(key)
        self._registry.drop(key, told)
        self.consumers.remove(key)

    def _end_group(self, group_key: GroupKey) -> None:
        self._own.call_for_each(self._known.of_group(group_key), lambda kept: self._end(kept.key, _nothing))


def _key_of(principal: Principal, group: str, topic: str, url: str) -> SubscriptionKey:
    return SubscriptionKey(principal.name, principal.token_id, principal.since, group, topic, url)


def _nothing(*_: Any) -> None:
    """Nobody has to be told."""
