"""Hanging up on connections, and sending them elsewhere. `monitoring.connection_list` shows who is there."""

import asyncio
from typing import Any, Literal

from pydantic import Field

from vibemq.errors import Forbidden, InvalidPayload
from vibemq.operations.arguments import Arguments, CanBeTried, Text
from vibemq.operations.contracts import ClosablePeer, EngineQuestions, Peers
from vibemq.operations.registry import Caller, Operation

REASON_MAX = 200
SEEN_PER_TURN = 1000
CLOSED_PER_TURN = 50
"""Connections between which the loop has a turn."""


class CloseConnectionArguments(CanBeTried):
    connection_id: Text | None = Field(None, description="Of one connection, as connections.list shows it.")
    user: Text | None = Field(
        None,
        description="Without an id: all connections of this user, but for the one that asks. With one: only if it is "
        "of this user. Who is no superuser gives the own name.",
    )
    reason: str = Field("", max_length=REASON_MAX, description="Why; the client is told.")
    mode: Literal["release", "fail"] = Field(
        "release",
        description="What becomes of the messages that it holds: release gives them to others and counts nothing; fail "
        "counts a failed attempt of each, as a lost connection does.",
    )


class RedirectConnectionArguments(Arguments):
    connection_id: Text | None = Field(None, description="Of one connection, as connections.list shows it.")
    user: Text | None = Field(None, description="In place of the id: all connections of this user.")
    host: Text = Field(description="Where the client shall connect: a name or an address.")
    port: int = Field(ge=1, le=65_535, description="The port there.")


class Connections:
    def __init__(self, peers: Peers, engine: EngineQuestions) -> None:
        self._peers = peers
        self._readers = engine.readers

    async def close(self, caller: Caller, wanted: CloseConnectionArguments) -> dict[str, Any]:
        """What was decided for them is still confirmed; then they are told why and hung up on. A client may connect
        again. `closed` counts them, `unsettled` the messages that they held.

        Raises:
            InvalidPayload
            Forbidden: it is the connection that asks.
        """
        if wanted.connection_id is None and wanted.user is None:
            raise InvalidPayload(
                "connections.close takes connection_id (over HTTP: DELETE /connections/{connection_id}) or user; give "
                "one of them, or both"
            )
        if not wanted.reason.isprintable():
            raise InvalidPayload("argument reason of connections.close must be printable text without line breaks")
        reason = "the broker's operator closed this connection"
        closed = unsettled = 0
        for peer in await self._found(caller, wanted):
            if not peer.ending:
                unsettled += self._readers.session_load(peer.number)[1]
                if not wanted.dry_run:
                    told = f"{reason}: {wanted.reason}" if wanted.reason else reason
                    caller.check_again()
                    peer.dismiss(told, clean=wanted.mode == "release")
                    caller.done.count += 1
                closed += 1
                if closed % CLOSED_PER_TURN == 0:
                    await asyncio.sleep(0)
        return {"closed": closed, "unsettled": unsettled}

    async def redirect(self, caller: Caller, wanted: RedirectConnectionArguments) -> dict[str, Any]:
        """They are handed nothing more, and closed after a while if they do not go. `redirected` counts those whose
        protocol has a word for it: EventMesh over TCP. Raises InvalidPayload."""
        if (wanted.connection_id is None) == (wanted.user is None):
            raise InvalidPayload("connections.redirect takes either connection_id or user; give one of them")
        if not wanted.host.isprintable():
            raise InvalidPayload("argument host of connections.redirect must be a name or an address")
        redirected = 0
        for peer in await self._found(caller, wanted):
            caller.check_again()
            if peer.redirect(wanted.host, wanted.port):
                redirected += 1
                caller.done.count += 1
                if redirected % CLOSED_PER_TURN == 0:
                    await asyncio.sleep(0)
        return {"redirected": redirected}

    async def _found(
        self, caller: Caller, wanted: CloseConnectionArguments | RedirectConnectionArguments
    ) -> list[ClosablePeer]:
        found: list[ClosablePeer] = []
        for number, peer in enumerate(self._peers.peers(), 1):
            if number % SEEN_PER_TURN == 0:
                await asyncio.sleep(0)
            is_theirs = wanted.user is None or (peer.principal is not None and peer.principal.name == wanted.user)
            if wanted.connection_id is not None:
                if peer.connection_id == wanted.connection_id and is_theirs:
                    found.append(peer)
            elif peer.number != caller.session and is_theirs:
                found.append(peer)
        if any(peer.number == caller.session for peer in found):
            raise Forbidden("this is the connection that asks; disconnect in place of closing it")
        return found


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "connections.close",
        "Close a connection, or all of a user. Users may close their own.",
        CloseConnectionArguments,
        Connections,
        task=Connections.close,
        logged=True,
        audited=True,
    ),
    Operation(
        "connections.redirect",
        "Tell a client, or all of a user, to connect to another server.",
        RedirectConnectionArguments,
        Connections,
        task=Connections.redirect,
        logged=True,
        audited=True,
    ),
]
