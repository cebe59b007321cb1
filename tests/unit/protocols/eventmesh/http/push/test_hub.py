"""What the plug-in asks of which session, when a user's session has ended and another one takes its place."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

import pytest

from vibemq.errors import LimitError, RequestFailed, VibeMQError
from vibemq.model.commands import CreateQueue, DescribeQueue, Publish, Subscribe, Unsubscribe
from vibemq.model.effects import Published, Reply, Subscribed
from vibemq.protocols.eventmesh.http.push.consumers import UNUSED_MS
from vibemq.protocols.eventmesh.http.push.hub import SubscriptionHub
from vibemq.protocols.eventmesh.http.push.inner_session import CALLS_AT_ONCE, InnerSession
from vibemq.protocols.eventmesh.http.push.lost_groups import AGAIN_MS
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.eventmesh.topics import SubscriptionItem
from vibemq.protocols.session import Peer, Principal, Services, SessionContext
from vibemq.testing.session_conformance import NOW, context

ANN = Principal("ann", superuser=True)
URL = "http://192.0.2.1/"


class HubRoom:
    """A hub, and an engine that allows everything, when the test has it answer."""

    stopping = False

    def __init__(self, **settings: Any) -> None:
        self.sessions: list[InnerSession] = []
        self.heard: list[VibeMQError | None] = []
        self.principal = ANN
        self.hub = SubscriptionHub(cast(Services, self), EventMeshHttpSettings(**settings))
        self.hub.start()
        self.go_on()

    def http_calls(self, **_: Any) -> Any:
        return self

    async def check(self, url: str, *, owner: str) -> None:
        """It may be called."""

    def watch_users(self, _: Any) -> None:
        """They do not change."""

    def acting(self, user: str, token_id: str) -> Principal:
        return self.principal

    def begin(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        try:
            work(*args).send(None)
        except StopIteration:
            return
        raise AssertionError("nothing has to be waited for")

    def connect(self, create: Callable[[SessionContext], InnerSession], **_: Any) -> tuple[InnerSession, Peer]:
        self.sessions.append(create(replace(context(), session=len(self.sessions) + 1)))
        return self.sessions[-1], cast(Peer, self)

    def go_on(self) -> None:
        while requests := [(session, request) for session in self.sessions for request in session.commands()]:
            for session, request in requests:
                self._answer(session, request)

    def pass_time(self, ms: int) -> None:
        for session in self.sessions:
            session.tick(session.now + ms)
        while any(session.unread for session in self.sessions):
            self.go_on()

    def take_up(self) -> None:
        """The turn of the session that all share, in which it begins what was asked."""
        for request in self.sessions[0].commands():
            self._answer(self.sessions[0], request)

    def _answer(self, session: InnerSession, request: Any) -> None:
        result: Any = None
        if isinstance(request, Subscribe):
            result = Subscribed(request.queue, "", request.consumer, 1)
        elif isinstance(request, Publish):
            result = Published(request.queue, 1, 1)
        if request.token is not None:
            session.apply([Reply(session.number, request.token, result)])

    def refuse_to_consume(self) -> None:
        """As `go_on`, but nobody gets a consumer."""
        while requests := [(session, request) for session in self.sessions for request in session.commands()]:
            for session, request in requests:
                if isinstance(request, Subscribe):
                    session.apply([Reply(session.number, request.token, RequestFailed("not now"))])
                else:
                    self._answer(session, request)

    def subscribe(self, topic: str, url: str = URL) -> None:
        self.hub.subscribe(self.principal, "g", [SubscriptionItem(topic=topic)], url, NOW, self.heard.append)

    def unsubscribe(self, topic: str) -> None:
        self.hub.unsubscribe(self.principal, "g", [topic], URL, self.heard.append)


def test_a_group_of_a_session_that_has_ended_ends_no_consumer_of_the_next_one() -> None:
    """Each session counts its consumers from 1."""
    room = HubRoom()
    # A topic that was looked at is subscribed without a question to the session that all share.
    room.hub.consumers.note_turns("new", turns=False)
    # More than are gone through in the turns below: "old" is still there.
    for number in range(4 * CALLS_AT_ONCE):
        room.subscribe(f"t{number}")
    room.subscribe("old")
    room.go_on()
    gone = room.sessions[-1]
    gone.shutdown("another password")
    room.subscribe("new")
    room.take_up()
    _, _, successor = room.sessions
    assert [type(each) for each in successor.commands()] == [Subscribe]
    room.unsubscribe("old")
    room.take_up()
    assert [each for each in successor.commands() if isinstance(each, Unsubscribe)] == []


def test_the_last_url_of_a_group_takes_its_consumer_with_it() -> None:
    room = HubRoom()
    room.subscribe("t")
    room.go_on()
    room.unsubscribe("t")
    room.take_up()
    (end,) = room.sessions[-1].commands()
    assert isinstance(end, Unsubscribe)
    assert end.consumer == 1


def test_what_a_queue_is_is_asked_again_when_nobody_has_consumed_it_meanwhile() -> None:
    """It may have been deleted, and made anew in another mode."""
    room = HubRoom()
    room.subscribe("t")
    room.go_on()
    room.hub.consumers.note_turns("t", turns=True)
    room.unsubscribe("t")
    room.go_on()
    room.subscribe("t")
    (asked,) = room.sessions[0].commands()
    assert isinstance(asked, DescribeQueue)
    assert asked.queue == "t"


def test_the_end_of_a_users_session_touches_its_own_groups_only() -> None:
    """However many the others have, its groups ask again in the next turn."""
    room = HubRoom()
    for number in range(4 * CALLS_AT_ONCE):
        room.subscribe(f"t{number}")
    room.go_on()
    room.principal = replace(ANN, name="bob")
    room.subscribe("bobs")
    room.go_on()
    room.sessions[-1].shutdown("another password")
    for _ in range(2):
        # The group is lost in one, and asks again in the next.
        room.take_up()
    assert [type(each) for each in room.sessions[-1].commands()] == [CreateQueue]


def test_requests_at_the_same_time_make_no_more_subscriptions_than_there_may_be() -> None:
    room = HubRoom(subscriptions_max=2)
    for topic in ("a", "b", "c", "a"):
        room.subscribe(topic)
    room.go_on()
    assert [type(error) for error in room.heard].count(LimitError) == 2
    # What was refused, or has ended, takes no room.
    room.unsubscribe("a")
    room.go_on()
    room.heard.clear()
    for topic in ("c", "c"):
        room.subscribe(topic)
        room.go_on()
    assert room.heard == [None, None]


def test_one_user_leaves_room_for_the_subscriptions_of_others() -> None:
    room = HubRoom(subscriptions_max=3, subscriptions_per_user_max=2)
    for topic in ("a", "b", "c", "a"):
        room.subscribe(topic)
    room.go_on()
    refusals = [error for error in room.heard if error is not None]
    assert len(room.heard) == 4
    assert [str(error) for error in refusals] == [
        "2 subscriptions are the limit for one user (subscriptions_per_user_max); unsubscribe some of user 'ann'"
    ] * len(refusals)
    assert len(refusals) == 2
    with pytest.raises(LimitError, match="subscriptions_per_user_max"):
        room.subscribe("c")
    room.heard.clear()
    room.principal = replace(ANN, name="bob")
    room.subscribe("c")
    room.go_on()
    assert room.heard == [None]
    with pytest.raises(LimitError, match=r"3 subscriptions are the limit \(subscriptions_max\)"):
        room.subscribe("d")
    room.principal = ANN
    room.unsubscribe("a")
    room.go_on()
    room.heard.clear()
    room.subscribe("d")
    room.go_on()
    assert room.heard == [None]


def test_a_session_in_which_nothing_is_consumed_ends_after_a_while() -> None:
    room = HubRoom()
    room.subscribe("t")
    room.go_on()
    own, user = room.sessions
    room.unsubscribe("t")
    room.go_on()
    user.works += 1
    room.pass_time(UNUSED_MS)
    assert not user.closing, "a push is under way, and what becomes of it is not said yet"
    user.works -= 1
    room.pass_time(UNUSED_MS)
    assert user.closing
    room.subscribe("t")
    room.go_on()
    assert len(room.sessions) == 3
    room.pass_time(2 * UNUSED_MS)
    assert not own.closing
    assert not room.sessions[-1].closing


def test_a_session_stays_when_something_is_subscribed_in_time() -> None:
    room = HubRoom()
    room.subscribe("t")
    room.go_on()
    room.unsubscribe("t")
    room.go_on()
    room.pass_time(UNUSED_MS - 1)
    room.subscribe("other")
    room.go_on()
    room.pass_time(UNUSED_MS)
    room.unsubscribe("other")
    room.go_on()
    room.pass_time(UNUSED_MS - 1)
    assert [each.closing for each in room.sessions] == [False, False]
    room.pass_time(1)
    assert [each.closing for each in room.sessions] == [False, True]


def test_who_was_told_that_it_is_subscribed_is_served_although_another_one_of_its_group_was_refused() -> None:
    """The queue is deleted while the first subscription is being kept, and the group asks anew for the second one."""
    room = HubRoom()
    consumers = room.hub.consumers
    consumers.note_turns("t", turns=False)
    room.subscribe("t")
    room.take_up()
    user = room.sessions[-1]
    (wish,) = user.commands()
    assert isinstance(wish, Subscribe)
    room._answer(user, wish)
    (group_key,) = consumers._groups
    consumers.group_lost(group_key)
    consumers.note_turns("t", turns=False)
    room.subscribe("t", "http://192.0.2.2/")
    room.refuse_to_consume()
    assert [type(error) for error in room.heard] == [type(None), RequestFailed]
    room.sessions[0].tick(room.sessions[0].now + AGAIN_MS)
    room.go_on()
    assert [lane.url for lane in consumers._groups[group_key].lanes] == [URL]


def test_the_own_login_of_a_user_ends_what_was_subscribed_with_its_access_tokens() -> None:
    """A token that was revoked or has expired can end nothing any more."""
    room = HubRoom()
    mine, first, second = ANN, replace(ANN, token_id="first"), replace(ANN, token_id="second")
    for login in (mine, first, second):
        room.principal = login
        room.subscribe("t")
        room.go_on()
    assert room.heard == [None] * 3
    room.principal = first
    room.unsubscribe("t")
    room.go_on()
    assert _tokens(room) == {"", "second"}
    room.principal = replace(mine, rules=())
    room.unsubscribe("t")
    room.go_on()
    assert _tokens(room) == {"second"}
    room.principal = mine
    room.unsubscribe("t")
    room.pass_time(0)
    assert _tokens(room) == set()
    assert not room.hub._known._by_tokens


def _tokens(room: HubRoom) -> set[str]:
    """With which something is subscribed."""
    return {kept.key.token_id for kept in room.hub._known}
