"""What is asked of the broker, and the waiting for its answer: requests of the client itself, those whose reply another
program gives, and such replies. Each belongs to the connection that carries it.

The link takes the answers: it knows what they are for.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import anyio

from vibemq.client.address import ClientSettings
from vibemq.client.protocol import ClientProtocol
from vibemq.client.publishing.outgoing import Extra, RowPacker
from vibemq.client.publishing.requests import AwaitedReplies, Response, too_late
from vibemq.client.waiting.latch import Latch
from vibemq.client.waiting.pending import PendingRequest, PendingRequests
from vibemq.client.waiting.resending import Resending
from vibemq.errors import ConnectionLost, NotConnected
from vibemq.model.quantities import whole_ms
from vibemq.protocols.native.codec.wire import CommandType, WireMessage


class RequestingLink(Protocol):
    """The link, as its requests see it."""

    settings: ClientSettings
    protocol: ClientProtocol | None
    resending: Resending

    @property
    def is_idle(self) -> bool: ...

    async def connected(self) -> ClientProtocol: ...

    def no_connection(self, waited: str) -> NotConnected: ...

    def new_id(self) -> str: ...

    def put_behind(self, frame: bytes, *, alone: bool = False) -> None: ...

    def note_unproven(self) -> None: ...


class LinkRequests:
    """See the module."""

    def __init__(self, link: RequestingLink, pending: PendingRequests, replies: AwaitedReplies) -> None:
        self._link = link
        self._pending = pending
        self._replies = replies
        self.packer = RowPacker()
        """Of requests and replies, which fit into an ordinary frame."""

    async def request(
        self,
        kind: CommandType,
        queue: str = "",
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        what: str = "",
        idempotent: bool = False,
    ) -> WireMessage:
        """Ask and wait for the answer.

        Args:
            what: named in errors.
            idempotent: ask again when the connection is lost before the answer.

        Raises:
            ConnectionLost, RequestTimeout: it may or may not have happened.
            VibeMQError: the broker refused.
        """
        resending = self._link.resending
        lost_at: float | None = None
        while True:
            protocol = await self._link.connected()
            pending = PendingRequest(what or kind.name, anyio.current_time())
            request_id = self._send_request(protocol, pending, kind, queue, payload, headers)
            try:
                await pending.done.wait()
            finally:
                self._forget_request(request_id)
            try:
                return pending.result()
            except ConnectionLost:
                if lost_at is None:
                    lost_at = resending.lost_at
                if not idempotent or resending.is_over(lost_at):
                    raise

    def ask(
        self, kind: CommandType, queue: str, *, headers: Mapping[str, str], then: Callable[[], None]
    ) -> Latch | None:
        """Ask without waiting. `then` is called, and the event set, when the answer or the end of waiting for it has
        come; None when there is no connection, and nothing was asked."""
        if self._link.protocol is None:
            return None
        pending = PendingRequest(kind.name, anyio.current_time(), then)
        self._send_request(self._link.protocol, pending, kind, queue, b"", headers)
        return pending.done

    async def reply_to(self, queue: str, row: bytes, extra: Extra | None, timeout: float) -> Response:
        """Send a request, and wait for the reply to it.

        Raises:
            NoReply: it did not come in time.
            NotConnected: there was no connection in that time, and nothing was sent.
            ConnectionLost: the request may have been carried out.
            VibeMQError: the broker refused it, or nobody will reply.
        """
        deadline = anyio.current_time() + timeout
        protocol = await self._connected_by(deadline, timeout)
        request_id = self._link.new_id()
        left_ms = max(1, whole_ms((deadline - anyio.current_time()) * 1000))
        frame = protocol.ask(request_id, queue, row, left_ms, extra)
        alone = self._link.is_idle
        awaited = self._replies.add(request_id, queue)
        self._link.put_behind(frame, alone=alone)
        in_time = False
        try:
            in_time = await awaited.done.wait_until(deadline)
        finally:
            self._replies.forget(request_id)
            if not awaited.done.is_set():
                self._link.note_unproven()
                if protocol is self._link.protocol and anyio.current_time() < deadline:
                    # The caller was cancelled: nobody needs to begin with it. In the end its time does the same.
                    self._link.put_behind(protocol.give_up(request_id))
        if not in_time:
            raise too_late(queue, timeout)
        return awaited.result()

    async def _connected_by(self, deadline: float, timeout: float) -> ClientProtocol:
        """Raises NotConnected: there was no connection in that time."""
        if self._link.protocol is not None:
            return self._link.protocol
        with anyio.move_on_at(deadline):
            return await self._link.connected()
        raise self._link.no_connection(f"{timeout:g} s")

    async def respond(self, address: str, row: bytes) -> None:
        """
        Raises:
            RequesterGone: nobody waits for it any more.
            ConnectionLost, RequestTimeout: it may or may not have come in time.
        """
        protocol = await self._link.connected()
        request_id = self._link.new_id()
        frame = protocol.respond(request_id, address, row)
        pending = self._send(frame, request_id, PendingRequest("a reply", anyio.current_time()))
        try:
            await pending.done.wait()
        finally:
            self._forget_request(request_id)
        pending.result()

    # -- inside --------------------------------------------------------------------------------------------------

    def _forget_request(self, request_id: str) -> None:
        if request_id in self._pending.by_id:
            self._link.note_unproven()
            del self._pending.by_id[request_id]

    def _send_request(
        self,
        protocol: ClientProtocol,
        pending: PendingRequest,
        kind: CommandType,
        queue: str,
        payload: bytes,
        headers: Mapping[str, str] | None,
    ) -> str:
        request_id = self._link.new_id()
        self._send(protocol.request(kind, request_id, queue, payload, headers), request_id, pending)
        return request_id

    def _send(self, frame: bytes, request_id: str, pending: PendingRequest) -> PendingRequest:
        alone = self._link.is_idle
        self._pending.by_id[request_id] = pending
        self._link.put_behind(frame, alone=alone)
        return pending
