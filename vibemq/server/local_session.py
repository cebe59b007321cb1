"""The server's own session with the engine: commands of operators and of the embedding program, awaited."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from vibemq.errors import VibeMQError
from vibemq.model.commands import Command
from vibemq.model.effects import Classify, Effect, QueueGone, Reply
from vibemq.server.commit.release_order import told_to_nobody

INNER_SESSION = 0
"""Sessions of connections are numbered from 1."""


class LocalSession:
    """Asks the engine and waits for the reply, which comes when the answer's durability holds."""

    def __init__(
        self,
        decide: Callable[[Sequence[Command]], None],
        queue_gone: Callable[[QueueGone], None],
        classify: Callable[[Classify], None],
        audit: Callable[[Sequence[Effect]], None] = told_to_nobody,
    ) -> None:
        """`queue_gone` is told of queues that the broker has deleted by itself, `classify` is asked about messages.
        `audit` sees the effects first (`vibemq.server.access.command_audit`)."""
        self._decide = decide
        self._queue_gone = queue_gone
        self._classify = classify
        self._audit = audit
        self._tokens = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def ask(self, make: Callable[[int, int], Command]) -> Any:
        """Have `make(session, token)` decided.

        Raises:
            VibeMQError: the engine's refusal.
        """
        return (await self.ask_whole(make)).result

    async def ask_whole(self, make: Callable[[int, int], Command]) -> Reply:
        """The same; the answer also says whether there was nothing to do."""
        token = next(self._tokens)
        future = self._waiting[token] = asyncio.get_running_loop().create_future()
        try:
            self._decide([make(INNER_SESSION, token)])
            reply: Reply = await future
        finally:
            del self._waiting[token]
        if not isinstance(reply.result, VibeMQError):
            return reply
        refusal = reply.result
        try:
            raise refusal
        finally:
            # Its traceback has this frame, which must not refer to it: only the cycle collector would free them.
            del refusal, reply, future

    def take(self, effects: Sequence[Effect]) -> None:
        """Receive what the engine decided for this session."""
        self._audit(effects)
        for effect in effects:
            if isinstance(effect, Reply) and (future := self._waiting.get(effect.token)) and not future.done():
                future.set_result(effect)
            elif isinstance(effect, QueueGone):
                self._queue_gone(effect)
            elif isinstance(effect, Classify):
                self._classify(effect)
