"""The client's side of the native protocol on one connection: bytes in, answers out. No sockets, no clock.

    receive_data(bytes) → frames the broker sent, decoded
    connect · request · publish · settle · extend · flow → bytes to send

Source: docs/spec/native.md.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from vibemq._version import __version__
from vibemq.client.address import ClientSettings
from vibemq.client.failures import error_of
from vibemq.client.publishing.outbox import PublishBatch
from vibemq.client.publishing.outgoing import Extra
from vibemq.client.settlements import SettleRuns
from vibemq.errors import AuthRequired, ErrorCode, RemoteProtocolError, UnknownCommand
from vibemq.model.rows import Rows
from vibemq.model.runs import Run
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.compression import Compression, InflationCredit, choose
from vibemq.protocols.native.codec.extensions import (
    DeliverMany,
    PublishManyAck,
    ResponseFrame,
    SubscriptionEnded,
    begin_deliver_many,
)
from vibemq.protocols.native.codec.extra_columns import EXTRAS_EXTENSION
from vibemq.protocols.native.codec.frames import BODY_BYTES_MAX, HEADER, encode_frame
from vibemq.protocols.native.codec.large import MAX_BODY_HEADER, LargeFrameReader, asked_body_bytes, body_bytes_for
from vibemq.protocols.native.codec.wire import CommandType, WireMessage, body_type, decode_body, encode_body

Incoming = WireMessage | PublishManyAck | DeliverMany | SubscriptionEnded | ResponseFrame

RUNS_MAX = 30_000
"""Runs in one frame: 16 bytes each, well below the limit of a body."""

_PARSERS = {
    CommandType.PUBLISH_MANY_ACK: extensions.parse_publish_many_ack,
    CommandType.DELIVER_MANY: extensions.parse_deliver_many,
    CommandType.DELIVER_SCATTERED: extensions.parse_deliver_scattered,
    CommandType.SUBSCRIPTION_ENDED: extensions.parse_subscription_ended,
    CommandType.RESPONSE: extensions.parse_response,
}


class ClientProtocol:
    """One connection, from Connect to its end."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._reader = LargeFrameReader({int(CommandType.DELIVER_MANY): begin_deliver_many}, _join)
        self.body_bytes_max = BODY_BYTES_MAX
        """Of a frame with one message; agreed with the broker."""
        self._compression = Compression.NONE
        self._credit = InflationCredit()
        self.extensions: frozenset[str] = frozenset()
        """Granted by the broker."""
        self.server_version = ""
        self.connection_id = ""

    @property
    def receives_large(self) -> bool:
        """Whether a large message has come in part."""
        return self._reader.receives_large

    def receive_data(self, data: bytes) -> Iterable[Incoming]:
        """Everything that is complete by now.

        Raises:
            RemoteProtocolError: the stream cannot be read on.
        """
        body = self._reader.lone_body(data)
        return self._several(data) if body is None else (_parsed(body),)

    def _several(self, data: bytes) -> Iterator[Incoming]:
        self._reader.receive_data(data)
        while frames := self._reader.frames():
            for body in frames:
                yield body if isinstance(body, DeliverMany) else _parsed(body)

    def connect(self, request_id: str) -> bytes:
        settings = self._settings
        headers = {
            "authUsername": settings.username,
            "authPassword": settings.password,
            "authToken": settings.token,
            "clientVersion": __version__,
            "client-name": settings.name,
            "supported-compression": ",".join(settings.compression),
            "supported-extensions": ",".join(extensions.EXTENSIONS),
            MAX_BODY_HEADER: str(body_bytes_for(settings.max_message_bytes)),
        }
        return self.request(CommandType.CONNECT, request_id, headers={k: v for k, v in headers.items() if v})

    def accept(self, answer: WireMessage) -> None:
        """Take the answer to Connect.

        Raises:
            VibeMQError: the broker refused.
            RemoteProtocolError: it is no VibeMQ broker, or one without the extensions this client is built on.
        """
        if answer.type == CommandType.ERROR and answer.error_code == ErrorCode.AUTH_REQUIRED:
            # The broker's own sentence is about headers, which users of this client never see.
            raise AuthRequired(
                "the broker requires credentials; write vibemq://user:password@host or vibemq://host?token=…, "
                "or give username and password, or token, to connect"
            )
        if answer.type == CommandType.ERROR:
            raise error_of(answer.error_code or "", answer.error_message or "the broker refused the connection")
        if answer.type != CommandType.CONNECT_ACK:
            raise RemoteProtocolError(f"the broker answered Connect with a frame of type {answer.type}")
        granted = answer.headers.get("negotiated-extensions", "")
        self.extensions = frozenset(name.strip() for name in granted.split(",") if name.strip())
        if extensions.BATCH_EXTENSION not in self.extensions:
            raise RemoteProtocolError(
                f"the broker does not offer the extension {extensions.BATCH_EXTENSION!r}, which this client needs;"
                " it must be a VibeMQ of this family, not the .NET one"
            )
        self.server_version = answer.headers.get("serverVersion", "")
        self.connection_id = answer.headers.get("connectionId", "")
        self.body_bytes_max = asked_body_bytes(answer.headers) or BODY_BYTES_MAX
        self._reader.large_bytes_max = self.body_bytes_max
        self._compression = choose(answer.headers.get("negotiated-compression", ""), self._settings.compression)

    def request(
        self,
        kind: CommandType,
        request_id: str,
        queue: str = "",
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        return self._frame(encode_body(kind, request_id, queue, payload, headers or {}))

    def check_selectors(self) -> None:
        """A broker that does not know them would hand out every message.

        Raises:
            UnknownCommand: this one does not.
        """
        if extensions.WHERE_EXTENSION not in self.extensions:
            raise UnknownCommand(
                f"the broker does not offer the extension {extensions.WHERE_EXTENSION!r}: it cannot filter messages by "
                "`where`; upgrade the broker, or filter in the program"
            )

    def publish(self, batch: PublishBatch) -> bytes:
        if batch.count == 1:
            return self._counted_frame(extensions.publish_lone(batch.id, batch.queue, batch.rows[0], batch.extras))
        columns = batch.extra_columns() if EXTRAS_EXTENSION in self.extensions else None
        extras = batch.extras if columns is None else None
        return self._counted_frame(extensions.publish_many(batch.id, batch.queue, Rows.of(batch.rows), extras, columns))

    def publish_row(self, request_id: str, queue: str, row: bytes, extra: Extra | None) -> bytes:
        """As `publish`, of one row that fits into an ordinary frame."""
        return self._frame(extensions.publish_lone(request_id, queue, row, None if extra is None else {0: extra}))

    def ask(self, request_id: str, queue: str, row: bytes, timeout_ms: int, extra: Extra | None) -> bytes:
        """
        Raises:
            UnknownCommand: the broker knows no requests.
        """
        self._need_requests()
        return self._frame(extensions.request(request_id, queue, row, timeout_ms, extra))

    def give_up(self, request_id: str) -> bytes:
        return self._frame(extensions.give_up(request_id))

    def respond(self, request_id: str, address: str, row: bytes) -> bytes:
        """Raises as `ask`."""
        self._need_requests()
        return self._frame(extensions.response(request_id, address, row))

    def _need_requests(self) -> None:
        if extensions.REQUEST_EXTENSION not in self.extensions:
            raise UnknownCommand(
                f"the broker does not offer the extension {extensions.REQUEST_EXTENSION!r}: it knows no requests and "
                "replies; upgrade the broker, or use a queue for the replies"
            )

    def publish_head(self, batch: PublishBatch) -> bytes:
        """Of a batch whose one row is too large for an ordinary frame: what comes before the row."""
        head = extensions.publish_one(batch.id, batch.queue, len(batch.rows[0]), batch.extras)
        return HEADER.pack(len(head) + len(batch.rows[0]), Compression.NONE) + head

    def settle(self, subscription: str, settled: SettleRuns) -> bytes:
        verb, delay_ms, reason, runs = settled
        delay = None if delay_ms < 0 else delay_ms
        if len(runs) <= RUNS_MAX:
            return self._frame(extensions.settle(subscription, verb, runs, delay_ms=delay, reason=reason))
        return b"".join(
            self._frame(extensions.settle(subscription, verb, piece, delay_ms=delay, reason=reason))
            for piece in _pieces(runs)
        )

    def extend(self, subscription: str, runs: Sequence[Run], ack_timeout_ms: int) -> bytes:
        timeout = None if ack_timeout_ms < 0 else ack_timeout_ms
        return b"".join(
            self._frame(extensions.extend_many(subscription, piece, ack_timeout_ms=timeout)) for piece in _pieces(runs)
        )

    def flow(self, subscription: str, capacity_messages: int, capacity_bytes: int) -> bytes:
        return self._frame(extensions.flow(subscription, capacity_messages, capacity_bytes))

    def _counted_frame(self, body: bytes) -> bytes:
        """One that is made in the order in which it is sent."""
        threshold = self._settings.compression_threshold
        return encode_frame(body, self._compression, threshold, inflates=self._credit.take)

    def _frame(self, body: bytes) -> bytes:
        """One that may be sent behind others that are made later."""
        threshold = self._settings.compression_threshold
        return encode_frame(body, self._compression, threshold, inflates=self._credit.covers)


def _parsed(body: bytes) -> Incoming:
    parse = _PARSERS.get(body_type(body))  # type: ignore[call-overload]  # a plain int finds its member
    return decode_body(body) if parse is None else parse(body)


def _join(frame: DeliverMany, row: Rows) -> None:
    frame.rows = row


def _pieces(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    for start in range(0, len(runs), RUNS_MAX):
        yield runs[start : start + RUNS_MAX]
