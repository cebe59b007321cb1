"""Tokens of the commands a native session sends, and how each answers its peer."""

from dataclasses import dataclass
from typing import Any

import orjson

from vibemq.errors import LocalProtocolError, MessageTooLarge, NotAuthorized, QueueNotFound, UnknownCommand, VibeMQError
from vibemq.model.commands import Subscribe, Unsubscribe
from vibemq.model.effects import Fetched, Published, QueuePage
from vibemq.model.rows import Rows
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.columns import columns_frame
from vibemq.protocols.native.codec.options import queue_info_json
from vibemq.protocols.native.codec.wire import CommandType
from vibemq.protocols.native.errors import sentence, wire_code
from vibemq.protocols.native.outbox import send_publish_acks
from vibemq.protocols.native.publish import NativeBatch
from vibemq.protocols.native.state import NativeState
from vibemq.protocols.native.subscriptions import NativeSubscription


def _json(result: Any) -> bytes:
    if isinstance(result, QueuePage):
        result = {"queues": result.queues, "next": result.next}
    return orjson.dumps({} if result is None else result)


@dataclass(slots=True)
class Plain:
    """Answered by a frame of `kind` that repeats id and queue."""

    kind: CommandType
    id: str
    queue: str = ""

    def answer(self, state: NativeState, result: Any) -> None:
        state.reply(self.kind, self.id, self.queue)

    def refuse(self, state: NativeState, error: VibeMQError) -> None:
        state.error(self.id, error)


@dataclass(slots=True)
class Described(Plain):
    """QueueInfo (42): no payload for an unknown queue."""

    def answer(self, state: NativeState, result: Any) -> None:
        payload = queue_info_json(result) if isinstance(result, QueueInfo) else b""
        state.reply(self.kind, self.id, self.queue, payload)

    def refuse(self, state: NativeState, error: VibeMQError) -> None:
        if isinstance(error, QueueNotFound):
            state.reply(self.kind, self.id, self.queue)
        else:
            state.error(self.id, error)


@dataclass(slots=True)
class Listed(Plain):
    """ListQueues (43): a JSON array of names."""

    def answer(self, state: NativeState, result: Any) -> None:
        state.reply(self.kind, self.id, payload=orjson.dumps(result.names))


@dataclass(slots=True)
class Administered(Plain):
    """Admin (66): the result as JSON."""

    def answer(self, state: NativeState, result: Any) -> None:
        if isinstance(result, Fetched):
            state.error(self.id, UnknownCommand("rows are answered as columns; ask in a CursorRequest (70)"))
        else:
            state.reply(self.kind, self.id, payload=_json(result))


@dataclass(slots=True)
class AskedRequest(Plain):
    """CursorRequest (70): JSON, or columns."""

    def answer(self, state: NativeState, result: Any) -> None:
        if isinstance(result, Fetched):
            most = state.outbox.body_bytes_max
            try:
                state.outbox.send_frames(columns_frame(self.id, self.queue, result, body_bytes_max=most))
            except LocalProtocolError as error:
                state.error(self.id, MessageTooLarge(f"{error}; ask for fewer columns"))
        else:
            state.reply(self.kind, self.id, self.queue, _json(result))


@dataclass(slots=True)
class Staged:
    """Stage (73): how many messages were staged."""

    id: str
    queue: str
    count: int

    def answer(self, state: NativeState, result: Published) -> None:
        if result.refused:
            self.refuse(state, result.refused[0])
        else:
            payload = orjson.dumps({"staged": self.count})
            state.reply(CommandType.CURSOR_REPLY, self.id, self.queue, payload)

    def refuse(self, state: NativeState, error: VibeMQError) -> None:
        state.error(self.id, error)


@dataclass(slots=True)
class AdminDescribed(Administered):
    """queue.info: null for an unknown queue."""

    def answer(self, state: NativeState, result: Any) -> None:
        state.reply(self.kind, self.id, payload=orjson.dumps(result))

    def refuse(self, state: NativeState, error: VibeMQError) -> None:
        if isinstance(error, QueueNotFound):
            self.answer(state, None)
        else:
            state.error(self.id, error)


@dataclass(slots=True)
class PublishedPlain:
    """One PublishAck, or Error, for each message of a batch of Publish frames."""

    ids: list[bytes]
    queue_block: bytes

    @classmethod
    def of(cls, batch: NativeBatch) -> "PublishedPlain":
        return cls(batch.ids, batch.queue_block)

    def answer(self, state: NativeState, result: Published) -> None:
        ids = self.ids
        if result.refused:
            for index, error in sorted(result.refused.items()):
                self._error(state, ids[index], error)
            ids = [id_block for index, id_block in enumerate(ids) if index not in result.refused]
        send_publish_acks(state.outbox, ids, self.queue_block, with_headers=not state.bulk)

    def refuse(self, state: NativeState, error: VibeMQError) -> None:
        for id_block in self.ids:
            self._error(state, id_block, error)

    @staticmethod
    def _error(state: NativeState, id_block: bytes, error: VibeMQError) -> None:
        state.error(id_block[2:], error)


@dataclass(slots=True)
class PublishedMany:
    """One PublishManyAck for a PublishMany."""

    id: str
    queue: str

    def answer(self, state: NativeState, result: Published) -> None:
        refused = result.refused or {}
        told = {index: (wire_code(error), sentence(error)) for index, error in refused.items()}
        bare = {index: (code, "") for index, (code, _) in told.items()}
        # Tens of thousands of refusals do not fit; without their sentences, or as runs, they do. A publisher that got
        # an Error instead would take the rows that are accepted for refused, and publish them again.
        for detail, by_runs in ((told, False), (bare, False), (bare, True)):
            body = extensions.publish_many_ack(
                self.id, self.queue, result.first_sequence, result.count, detail, result.duplicates, by_runs=by_runs
            )
            if by_runs or len(body) <= state.outbox.body_bytes_max:
                state.outbox.send(body)
                return

    def refuse(self, state: NativeState, error: VibeMQError) -> None:
        state.error(self.id, error)


@dataclass(slots=True)
class Requested:
    """A Request: token of its publish, and of its requester. It is answered once."""

    id: str
    address: str = ""
    ended: bool = False

    def answer(self, state: NativeState, result: Published) -> None:
        if result.refused:
            self.refuse(state, result.refused[0])

    def refuse(self, state: NativeState, error: VibeMQError) -> None:
        if not self.ended:
            self._end(state)
            state.error(self.id, error)

    def _end(self, state: NativeState) -> None:
        self.ended = True
        if state.asked.get(self.id) is self:
            del state.asked[self.id]

    def respond(self, state: NativeState, result: Rows | VibeMQError) -> None:
        if isinstance(result, VibeMQError):
            self.refuse(state, result)
            return
        if self.ended:
            return
        self._end(state)
        try:
            state.outbox.send(extensions.response(self.id, "", result.data))
        except LocalProtocolError as error:
            state.error(self.id, MessageTooLarge(f"the reply is too large for this connection: {error}"))


@dataclass(slots=True)
class SubscribeAsked:
    """SubscribeAck to every frame that asked meanwhile."""

    subscription: NativeSubscription

    def answer(self, state: NativeState, result: Any) -> None:
        self.subscription.active = True
        for message_id in self._askers():
            acknowledge_subscribe(state, self.subscription, message_id, getattr(result, "group", None))

    def refuse(self, state: NativeState, error: VibeMQError) -> None:
        state.subscriptions.end(self.subscription)
        for message_id in self._askers():
            state.error(message_id, error)

    def _askers(self) -> list[str]:
        askers, self.subscription.asked_by = self.subscription.asked_by, []
        return askers


def acknowledge_subscribe(
    state: NativeState, subscription: NativeSubscription, message_id: str, group: str | None = None
) -> None:
    headers = {"queueName": subscription.queue, "subscriptionId": subscription.id}
    if group and not subscription.plain:
        headers["group"] = group
    state.reply(CommandType.SUBSCRIBE_ACK, message_id, subscription.queue, headers=headers)


@dataclass(slots=True)
class RenewalAsked(SubscribeAsked):
    """For a plain subscription whose queue had gone; nobody waits for the answer."""

    def answer(self, state: NativeState, result: Any) -> None:
        subscription = self.subscription
        subscription.active = True
        state.wanted.discard(subscription.queue)
        if state.subscriptions.of_queue(subscription.queue) is not subscription:
            # The peer has subscribed anew, or has lost interest, while we asked.
            state.subscriptions.remove(subscription)
            state.ask(Unsubscribe(state.session, None, subscription.consumer))

    def refuse(self, state: NativeState, error: VibeMQError) -> None:
        state.subscriptions.end(self.subscription)
        if isinstance(error, NotAuthorized):
            state.wanted.discard(self.subscription.queue)


def ask_plain(state: NativeState, queue: str, askers: list[str]) -> None:
    """Subscribe a plain client; without askers it is a renewal, which does not create the queue."""
    subscription = state.subscriptions.add(askers[0] if askers else state.context.new_id(), queue, plain=True)
    subscription.asked_by = askers
    state.fit_delivery_index()
    state.ask(
        Subscribe(
            state.session,
            SubscribeAsked(subscription) if askers else RenewalAsked(subscription),
            subscription.consumer,
            queue,
            capacity_messages=state.settings.prefetch,
            capacity_bytes=state.settings.prefetch_bytes,
            create=bool(askers),
        )
    )


@dataclass(slots=True)
class UnsubscribeAsked:
    """UnsubscribeAck; from then on nothing is delivered."""

    id: str
    subscription: NativeSubscription

    def answer(self, state: NativeState, result: Any) -> None:
        state.subscriptions.remove(self.subscription)
        acknowledge_unsubscribe(state, self.id, self.subscription.queue, self.subscription.id)

    def refuse(self, state: NativeState, error: VibeMQError) -> None:
        state.subscriptions.remove(self.subscription)
        state.error(self.id, error)


def acknowledge_unsubscribe(state: NativeState, message_id: str, queue: str, subscription_id: str) -> None:
    headers = {"queueName": queue, "subscriptionId": subscription_id}
    state.reply(CommandType.UNSUBSCRIBE_ACK, message_id, queue, headers=headers)


def leave(state: NativeState, message_id: str, subscription: NativeSubscription) -> None:
    """Ask the engine to end a subscription."""
    state.subscriptions.forget_name(subscription)
    state.ask(Unsubscribe(state.session, UnsubscribeAsked(message_id, subscription), subscription.consumer))
