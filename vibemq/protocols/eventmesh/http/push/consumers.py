"""The groups of all users, and the sessions in which they consume.

sessions    one for each user and login: what it may do is asked at each use
groups      one consumer for each user, topic and group; if it is lost through no wish of its subscribers, it asks again
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from vibemq.errors import InvalidMessage, QueueNotFound, RequestFailed, ShuttingDown, VibeMQError
from vibemq.model.commands import Unsubscribe
from vibemq.protocols.eventmesh.http.push.groups import PushGroup, PushTools
from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.push.known import KnownSubscriptions
from vibemq.protocols.eventmesh.http.push.lost_groups import AGAIN_MS, LostGroups
from vibemq.protocols.eventmesh.http.push.openings import GroupOpening
from vibemq.protocols.eventmesh.http.push.registry import GroupKey, KeptSubscription, SubscriptionKey, UserKey
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.eventmesh.http.state import Done
from vibemq.protocols.session import Principal

ADDED_AT_ONCE = 25
"""URLs of a group."""
TOPICS_REMEMBERED_MAX = 20_000
UNUSED_MS = 10_000
"""A user's session in which nothing is consumed ends after so long."""

Connect = Callable[[Principal, Callable[[str], None]], InnerSession]


@dataclass(slots=True)
class _UserSession:
    session: InnerSession
    groups: dict[GroupKey, PushGroup] = field(default_factory=dict)
    """Those that consume in it."""
    watched: bool = False
    """It ends soon, if it stays unused."""


class GroupConsumers:
    """
    Args:
        own: the session that all users share, as it is now.
        connect: (principal, parted) -> a session of this user; `parted` is told why it has ended.
        replaced: called with a group whose user is gone while somebody else has the name.
    """

    def __init__(
        self,
        tools: PushTools,
        known: KnownSubscriptions,
        own: Callable[[], InnerSession],
        connect: Connect,
        replaced: Callable[[GroupKey], None],
    ) -> None:
        self._tools = tools
        self._known = known
        self._own = own
        self._connect = connect
        self._replaced = replaced
        self._users: dict[UserKey, _UserSession] = {}
        self._groups: dict[GroupKey, PushGroup] = {}
        self._openings: dict[GroupKey, GroupOpening] = {}
        """Of groups whose consumers are on their way."""
        self._lost = LostGroups(own, self._ask_again)
        tools.services.watch_users(self._lost.users_changed)
        self.takes_turns: dict[str, bool] = {}
        """Whether the consumers of a topic's queue share one pass, of topics that were looked at and are consumed."""

    @property
    def own(self) -> InnerSession:
        return self._own()

    @property
    def settings(self) -> EventMeshHttpSettings:
        return self._tools.settings

    def note_turns(self, topic: str, *, turns: bool) -> None:
        if len(self.takes_turns) >= TOPICS_REMEMBERED_MAX:
            self.takes_turns.clear()
        self.takes_turns[topic] = turns

    # -- what is subscribed -----------------------------------------------------------------------------------------

    def open(self, key: SubscriptionKey, then: Done) -> None:
        """Have the group of the key consume, as its user; `then` hears whether it does."""
        group = self._groups.get(key.of_group)
        if group is not None and not group.awaited:
            then(None)
            return
        if group is not None:
            group.awaited.append(then)
            return
        if self._tools.services.stopping:
            then(ShuttingDown("the broker is stopping"))
            return
        user = self._user_of(key)
        if user is None:
            then(InvalidMessage(f"the login of user {key.user!r} does not count any more; log in again"))
            return
        group = PushGroup(key.topic, user.session, self._tools)
        group.awaited.append(then)
        self._groups[key.of_group] = user.groups[key.of_group] = group
        opening = self._openings[key.of_group] = GroupOpening(self, key, group, user.session)
        opening.begin()

    def add(self, kept: KeptSubscription) -> None:
        """A known one: its URL is pushed to, now or as soon as the group consumes."""
        group = self._groups.get(kept.key.of_group)
        if group is None:
            self.open(kept.key, partial(self._opened_again, kept.key))
        elif not group.awaited:
            group.add(kept.key.url, sync=kept.sync)

    def remove(self, key: SubscriptionKey) -> None:
        """One that is known no longer."""
        group = self._groups.get(key.of_group)
        if group is not None:
            group.remove(key.url)
        self.drop_unused(key)

    def drop_unused(self, key: SubscriptionKey) -> None:
        """The consumer of a group whose last URL is gone. The group itself stays in the queue, with what waits in it:
        whoever subscribes it again goes on there."""
        group = self._groups.get(key.of_group)
        if group is None or group.lanes or group.awaited:
            return
        self._forget(key.of_group, group)
        group.end()
        session, user = group.session, self._users.get(key.of_user)
        # With the session that it had, its consumer has ended, too; another session's numbers are its own.
        if user is not None and user.session is session:
            session.ask(Unsubscribe(session.number, None, group.consumer))

    def fail_openings(self, error: VibeMQError) -> None:
        for opening in list(self._openings.values()):
            opening.fail(error)

    # -- sessions ---------------------------------------------------------------------------------------------------

    def _user_of(self, key: SubscriptionKey) -> _UserSession | None:
        """None: the login does not count any more. If its user is gone, and another one has the name, what the user has
        subscribed ends."""
        found = self._users.get(key.of_user)
        if found is not None:
            return found
        principal = self._tools.services.acting(key.user, key.token_id)
        if principal is None:
            return None
        # A broker without authentication acts for everybody alike.
        if principal.name == key.user and principal.since != key.since:
            self._replaced(key.of_group)
            return None
        made = self._users[key.of_user] = _UserSession(self._connect(principal, partial(self._parted, key.of_user)))
        return made

    def _parted(self, user_key: UserKey, reason: str) -> None:
        """The broker stops; or the login that the user had does not count any more, and with another password it may at
        once; or something is wrong here, which may be so again."""
        gone = self._users.pop(user_key)
        if self._tools.services.stopping:
            return
        again_ms = AGAIN_MS if gone.session.closing else 0
        self.own.call_for_each(gone.groups.items(), partial(self._without_session, again_ms))

    def _without_session(self, again_ms: int, known: tuple[GroupKey, PushGroup]) -> None:
        group_key, group = known
        if self._groups.get(group_key) is group:
            self.group_lost(group_key, again_ms)

    # -- groups -----------------------------------------------------------------------------------------------------

    def group_opened(self, key: SubscriptionKey, group: PushGroup, error: VibeMQError | None) -> None:
        self._openings.pop(key.of_group, None)
        awaited, group.awaited = group.awaited, []
        if error is not None:
            self._forget(key.of_group, group)
            group.end()
            # Some may have become known meanwhile, and have been told that they are subscribed.
            if self._known.first_of_group(key.of_group) is not None:
                self._not_opened(key.of_group, error)
        else:
            self._lost.forget(key.of_group)
            all_kept = self._known.of_group(key.of_group)
            for kept in all_kept[:ADDED_AT_ONCE]:
                self._add_to(group, kept)
            if len(all_kept) > ADDED_AT_ONCE:
                self.own.call_for_each(all_kept[ADDED_AT_ONCE:], partial(self._add_to, group))
        for then in awaited:
            then(error)

    def _add_to(self, group: PushGroup, kept: KeptSubscription) -> None:
        if self._known.holds(kept) and self._groups.get(kept.key.of_group) is group:
            group.add(kept.key.url, sync=kept.sync)

    def group_lost(self, group_key: GroupKey, again_ms: int | None = None) -> None:
        """Through no wish of its subscribers.

        Args:
            again_ms: None: it was ended by itself, which is mostly because its queue was deleted.
        """
        opening = self._openings.get(group_key)
        if opening is not None:
            opening.fail(RequestFailed("the subscription was ended while it was made; ask again"))
        group = self._groups.get(group_key)
        if group is None:
            return
        self._forget(group_key, group)
        group.end()
        if self._known.first_of_group(group_key) is None:
            return
        if again_ms is None:
            self._lost.add_soon(group_key)
        else:
            self._lost.add(group_key, again_ms)

    def _forget(self, group_key: GroupKey, group: PushGroup) -> None:
        # From now on the queue may be deleted, and made anew in another mode, without a word to this.
        self.takes_turns.pop(group.topic, None)
        if self._groups.get(group_key) is group:
            del self._groups[group_key]
        user = self._users.get(group_key[:3])
        if user is not None and user.session is group.session:
            user.groups.pop(group_key, None)
            self._watch_unused(group_key[:3], user)

    def _watch_unused(self, user_key: UserKey, user: _UserSession) -> None:
        if user.groups or user.watched:
            return
        user.watched = True
        # The time of that session is right in its own turn.
        self.own.call_soon(partial(self._end_unused_later, user_key, user))

    def _end_unused_later(self, user_key: UserKey, user: _UserSession) -> None:
        self.own.call_at(self.own.now + UNUSED_MS, partial(self._end_unused, user_key, user))

    def _end_unused(self, user_key: UserKey, user: _UserSession) -> None:
        user.watched = False
        if self._users.get(user_key) is not user:
            return
        if user.groups or not user.session.idle:
            self._watch_unused(user_key, user)
            return
        del self._users[user_key]
        user.session.end()

    def _ask_again(self, group_key: GroupKey) -> None:
        key = self._known.first_of_group(group_key)
        if key is None:
            self._lost.forget(group_key)
        else:
            self.open(key, partial(self._opened_again, key))

    def _opened_again(self, key: SubscriptionKey, error: VibeMQError | None) -> None:
        if error is not None:
            self._not_opened(key.of_group, error)

    def _not_opened(self, group_key: GroupKey, error: VibeMQError) -> None:
        if isinstance(error, QueueNotFound):
            self._lost.add_soon(group_key)
        else:
            self._lost.add(group_key, AGAIN_MS)
