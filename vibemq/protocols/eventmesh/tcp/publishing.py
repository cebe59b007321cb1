"""What a client sends into topics: messages, broadcasts, requests and replies."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vibemq.errors import InvalidMessage, NoReply, QueueNotFound, VibeMQError
from vibemq.model.commands import Publish, Requester, Respond
from vibemq.model.effects import Published
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.rows import LARGE_ROW_BYTES, Rows, RowView, add_headers
from vibemq.protocols.eventmesh.messages import forms, names
from vibemq.protocols.eventmesh.messages.large_json import JsonSplitter, is_large
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.messages.received import ReceivedMessage
from vibemq.protocols.eventmesh.messages.rows_of import RowsOf
from vibemq.protocols.eventmesh.tcp.errors import status_of, text_of
from vibemq.protocols.eventmesh.tcp.package import Cmd, Package, answer_frame
from vibemq.protocols.eventmesh.tcp.state import EventMeshState

_READ_BYTES_MAX = 2 * LARGE_ROW_BYTES
"""A larger body cannot be a message that is allowed, and is not parsed."""
_MESSAGES = frozenset(
    {Cmd.ASYNC_MESSAGE_TO_SERVER, Cmd.BROADCAST_MESSAGE_TO_SERVER, Cmd.REQUEST_TO_SERVER, Cmd.RESPONSE_TO_SERVER}
)
_NO_TOPIC = "-"
"""Of a request that was refused, perhaps because it names none."""
_ADDED_HEADERS = 3
"""Headers that the session itself adds to a message."""
_ACKS = {
    Cmd.ASYNC_MESSAGE_TO_SERVER: Cmd.ASYNC_MESSAGE_TO_SERVER_ACK,
    Cmd.BROADCAST_MESSAGE_TO_SERVER: Cmd.BROADCAST_MESSAGE_TO_SERVER_ACK,
}


@dataclass(slots=True, eq=False)
class EventMeshBatch:
    """Token of a Publish: messages of one read to one topic."""

    topic: str
    rows: list[bytes] = field(default_factory=list)
    whole: Rows = field(default_factory=lambda: Rows.of([]))
    """All of them, once they are under way."""
    again: bool = False
    """The topic did not exist, and the session has had it created."""
    extras: dict[int, MessageExtra] = field(default_factory=dict)
    acks: list[tuple[Cmd, bytes]] = field(default_factory=list)
    """What answers each row: command and seq."""


@dataclass(slots=True, eq=False)
class EventMeshRequested:
    """Token of a Publish whose sender waits for the reply, and of its requester."""

    topic: str
    seq: bytes
    form: Form
    row: bytes
    requester: Requester | None = None
    again: bool = False
    ended: bool = False


class EventMeshPublishing:
    def __init__(self, state: EventMeshState, oldest_request: Callable[[], str]) -> None:
        """`oldest_request`: the address of the request that the client is at, for replies that do not say."""
        self._state = state
        self._oldest_request = oldest_request
        self._batches: dict[str, EventMeshBatch] = {}
        self._asked = Counter[str]()
        """By topic the batches whose first answers have not come."""
        self._behind: dict[str, list[EventMeshBatch]] = {}
        """Of topics that did not exist: batches that wait until those before them have been asked for again."""
        limits = state.context.limits
        self._rows_of = RowsOf(
            headers_max=limits.headers_max - _ADDED_HEADERS, header_value_units_max=limits.header_value_units_max
        )
        self._id = state.context.connection_id.encode()
        self._count = 0
        """Messages so far: they have no names of their own."""
        self._unanswered = 0

    # -- what the client says ---------------------------------------------------------------------------------------

    def splitter(self, package: Package) -> JsonSplitter | None:
        """What takes a large message apart, before it is published; None: it is not large, or cannot be a message."""
        body = package.body
        if package.cmd not in _MESSAGES or len(body) > _READ_BYTES_MAX or not is_large(body):
            return None
        form = forms.form_named(package.protocol_type)
        return forms.splitter_of(form, body)

    def publish(self, package: Package, large: JsonSplitter | None = None) -> None:
        """`large`: the message, taken apart; the same of the others."""
        state = self._state
        if not package.seq:
            raise InvalidMessage("a publish needs a `seq`, which its acknowledgement repeats")
        self._check_pace()
        form = self._form(package)
        self._count += 1
        ready = self._rows_of.row(form, large or package.body, b"%b-%d" % (self._id, self._count))
        row, topic = ready.row, ready.topic
        if package.cmd is Cmd.BROADCAST_MESSAGE_TO_SERVER:
            row = add_headers(row, [(names.SENT_BY, names.BROADCAST)])
        _check_row(row)
        state.form = form
        batch = self._batches.get(topic)
        if batch is None:
            batch = self._batches[topic] = EventMeshBatch(topic)
        if ready.ttl_ms:
            batch.extras[len(batch.rows)] = MessageExtra(expires_at=state.now + ready.ttl_ms)
        batch.rows.append(row)
        batch.acks.append((_ACKS[package.cmd], package.seq))
        self._unanswered += 1

    @property
    def topics(self) -> int:
        """For which something is gathered."""
        return len(self._batches)

    def flush(self) -> None:
        """Publish what is gathered. Called before anything else is asked, so that the order stays."""
        if not self._batches:
            return
        for topic, batch in self._batches.items():
            batch.whole = Rows.of(batch.rows)
            batch.rows = []
            behind = self._behind.get(topic)
            if behind is None:
                self._ask_first(batch)
            else:
                behind.append(batch)
        self._batches = {}

    @property
    def keeps_back(self) -> bool:
        """Something that the client has published waits for its topic, and has not been asked for."""
        return any(self._behind.values())

    def _ask_first(self, batch: EventMeshBatch) -> None:
        self._asked[batch.topic] += 1
        self._ask(batch)

    def _ask(self, batch: EventMeshBatch) -> None:
        state = self._state
        state.ask(Publish(state.session, batch, batch.topic, batch.whole, batch.extras or None, create=False))

    def request(self, package: Package, large: JsonSplitter | None) -> None:
        state, settings = self._state, self._state.settings
        if not package.seq:
            raise InvalidMessage("a request needs a `seq`, which its reply repeats")
        self._check_pace()
        message = self._checked(self._read(package, large), _ADDED_HEADERS)
        self._count += 1
        address = state.context.new_id()
        seq = package.seq.decode().strip('"') or "0"
        row = message.row(
            f"{state.context.connection_id}-{self._count}", (names.REPLY_TO, address), (names.CORRELATION_ID, seq)
        )
        _check_row(row)
        asked = EventMeshRequested(message.topic, package.seq, message.form, row)
        timeout_ms = min(message.ttl_ms or settings.request_timeout_ms, settings.request_timeout_max_ms)
        asked.requester = Requester(address, asked, timeout_ms)
        self._ask_request(asked)
        self._unanswered += 1

    def refuse_request(self, package: Package, error: VibeMQError) -> None:
        """With a body, without which a Java client closes its connection."""
        state, text = self._state, text_of(error)
        form = Form.CLOUDEVENT if package.protocol_type == Form.CLOUDEVENT else Form.MESSAGE
        body = forms.write(form, _NO_TOPIC, _NO_TOPIC, text.encode(), {}, with_headers=state.with_headers)
        answer = answer_frame(state.dialect, Cmd.RESPONSE_TO_CLIENT, package.seq, status_of(error), text, body, form)
        state.send(answer)

    def _ask_request(self, asked: EventMeshRequested) -> None:
        rows, session = Rows.of([asked.row]), self._state.session
        self._state.ask(Publish(session, asked, asked.topic, rows, create=False, requester=asked.requester))

    def respond(self, package: Package, large: JsonSplitter | None) -> None:
        """The reply to a request that was pushed. Nobody is told when nobody waits for it."""
        state = self._state
        try:
            # What brought it home is taken out before the others are counted.
            message = self._checked(self._read(package, large).as_reply())
            address = message.reply_address or self._oldest_request()
            if not address:
                return
            self._count += 1
            row = message.row(f"{state.context.connection_id}-{self._count}")
            _check_row(row)
        except VibeMQError:
            # There is no answer to a reply. Its requester is told in time that there is none.
            return
        state.ask(Respond(state.session, None, address, Rows.of([row])))

    def _form(self, package: Package) -> Form:
        if len(package.body) > _READ_BYTES_MAX:
            raise InvalidMessage(
                f"a message of {len(package.body):,} bytes; at most {LARGE_ROW_BYTES:,} are allowed, with properties"
            )
        return forms.form_named(package.protocol_type)

    def _read(self, package: Package, large: JsonSplitter | None) -> ReceivedMessage:
        return forms.read(self._form(package), large or package.body)

    def _checked(self, message: ReceivedMessage, added: int = 0) -> ReceivedMessage:
        """Raises InvalidMessage, InvalidQueueName. `added`: headers that the session itself adds."""
        limits = self._state.context.limits
        message.check(headers_max=limits.headers_max - added, header_value_units_max=limits.header_value_units_max)
        self._state.form = message.form
        return message

    def _check_pace(self) -> None:
        most = self._state.settings.unanswered_max
        if self._unanswered >= most:
            raise InvalidMessage(f"SEND_TOO_FAST: {most:,} messages of this connection wait for their answers")

    # -- what the engine says ---------------------------------------------------------------------------------------

    def published(self, batch: EventMeshBatch, result: Any) -> None:
        """Each message is answered once: all of them good, but for those that the engine names."""
        state = self._state
        if batch.again:
            self._answer(batch, result)
            return
        topic = batch.topic
        if _is_missing(result):
            batch.again = True
            state.create_topic(topic)
            self._ask(batch)
            self._behind.setdefault(topic, [])
        else:
            self._answer(batch, result)
        self._asked[topic] -= 1
        if not self._asked[topic]:
            del self._asked[topic]
            for waiting in self._behind.pop(topic, ()):
                self._ask_first(waiting)

    def _answer(self, batch: EventMeshBatch, result: Any) -> None:
        state = self._state
        self._unanswered -= len(batch.acks)
        refused: dict[int, VibeMQError] = {}
        if isinstance(result, Published):
            refused = result.refused or {}
        elif isinstance(result, VibeMQError):
            refused = dict.fromkeys(range(len(batch.acks)), result)
        dialect, out = state.dialect, state.out
        for index, (cmd, seq) in enumerate(batch.acks):
            error = refused.get(index) if refused else None
            if error is None:
                out.append(answer_frame(dialect, cmd, seq))
            else:
                out.append(answer_frame(dialect, cmd, seq, status_of(error), text_of(error)))

    def requested(self, asked: EventMeshRequested, result: Any) -> None:
        """The request has been accepted; or it has not, and that is its answer."""
        error = (result.refused or {}).get(0) if isinstance(result, Published) else result
        if _is_missing(error) and not asked.again:
            asked.again = True
            self._state.create_topic(asked.topic)
            self._ask_request(asked)
        elif isinstance(error, VibeMQError):
            self.responded(asked, error)

    def responded(self, asked: EventMeshRequested, result: Rows | VibeMQError) -> None:
        if asked.ended:
            return
        asked.ended = True
        self._unanswered -= 1
        state, form = self._state, asked.form
        code, text, row = 0, "", asked.row
        if isinstance(result, Rows):
            row = result[0]
        elif isinstance(result, NoReply) and not state.settings.answer_late_requests:
            return
        else:
            code, text = int(status_of(result)), text_of(result)
        try:
            body = self._reply(asked, row, text)
        except InvalidMessage as error:
            code, text = int(status_of(error)), f"the reply cannot be written for EventMesh: {error}"
            body = self._reply(asked, asked.row, text)
        state.send(answer_frame(state.dialect, Cmd.RESPONSE_TO_CLIENT, asked.seq, code, text, body, form))

    def _reply(self, asked: EventMeshRequested, row: bytes, text: str) -> bytes:
        """`text`: stands in for the payload, where it says why there is no reply."""
        view = RowView(row)
        payload = text.encode() or view.payload
        with_headers = self._state.with_headers
        body = forms.write(
            asked.form, asked.topic, view.message_id, payload, view.headers, {}, with_headers=with_headers
        )
        return self._state.dialect.readable(body)


def _is_missing(result: Any) -> bool:
    """Whether there is no such topic: all of the batch is refused then."""
    return isinstance(result, QueueNotFound)


def _check_row(row: bytes) -> None:
    if len(row) > LARGE_ROW_BYTES:
        raise InvalidMessage(
            f"a message of {len(row):,} bytes; at most {LARGE_ROW_BYTES:,} are allowed, with properties"
        )
