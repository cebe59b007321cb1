"""The same calls every time: one client, one after another, every policy and every way out of a queue, and a reader
by range, which acknowledges and is answered."""

from contextlib import closing
from time import monotonic_ns
from typing import Any
from urllib.parse import urlsplit

import vibemq
from tests.integration.cursor_peer import Peer, Refusal
from tests.proof.account import READ_BY_RANGE, Account, Event
from tests.proof.load import FULL, ONE_CONNECTION, publish_accounted
from vibemq.errors import ErrorCode, VibeMQError

QUEUES = {"strong": "strong", "weak": "weak", "async": "async"}
SIZES = (10, 400, 1500)
READER = "reader"
COMMITS = 3
"""In each round, one after the other."""


class SteadyWork:
    """`rounds` rounds on one broker; goes on after refusals, ends when the broker is gone."""

    def __init__(self, account: Account, rounds: int) -> None:
        self._account = account
        self._rounds = rounds
        self.finished = False
        """Every round was played, with or without refusals: the broker was there to the end."""
        self.refusals: dict[str, str] = {}
        """Error code -> one sentence."""

    async def run(self, url: str) -> None:
        try:
            async with vibemq.connect(url, reconnect=ONE_CONNECTION, command_timeout=30) as mq:
                await self._create(mq)
                with closing(Peer(urlsplit(url).port or 0)) as peer:
                    for number in range(self._rounds):
                        await self._round(mq, peer, number)
                self.finished = True
        except (VibeMQError, Refusal, TimeoutError, ConnectionError) as error:
            self.refusals.setdefault(str(getattr(error, "code", type(error).__name__)), str(error))

    async def _create(self, mq: vibemq.Client) -> None:
        for policy, name in QUEUES.items():
            event = self._account.creating(name, monotonic_ns())
            if await self._done(mq.create_queue(name, durability=policy, max_attempts=1000)):
                event.done_at = monotonic_ns()
        event = self._account.creating(READ_BY_RANGE, monotonic_ns())
        if await self._done(mq.create_queue(READ_BY_RANGE, durability="weak", mode="fan-out-with-ack")):
            event.done_at = monotonic_ns()

    async def _done(self, call: Any) -> bool:
        """Whether it was; False when it was refused for want of room."""
        try:
            await call
        except VibeMQError as error:
            if error.code not in (*FULL, ErrorCode.QUEUE_NOT_FOUND):
                raise
            self.refusals.setdefault(error.code, str(error))
            return False
        return True

    async def _round(self, mq: vibemq.Client, peer: Peer, number: int) -> None:
        for policy, queue in QUEUES.items():
            await self._publish(mq, policy, queue)
            await self._settle(mq, queue)
        await self._acknowledge(mq, peer)
        if number % 2:
            await self._replay(mq)

    async def _publish(self, mq: vibemq.Client, policy: str, queue: str) -> None:
        for error in await publish_accounted(mq, self._account, policy, queue, SIZES):
            self.refusals.setdefault(error.code, str(error))

    async def _settle(self, mq: vibemq.Client, queue: str) -> None:
        events: list[Event] = []
        for index, message in enumerate(await mq.fetch(queue, max=3, timeout=0.0)):
            if index == 2:
                message.release()
                continue
            kind, settle = (("reject", message.reject), ("ack", message.ack))[index]
            events.append(self._account.issued(message.id, kind, monotonic_ns()))  # type: ignore[arg-type]
            settle()
        await mq.ping()
        for event in events:
            event.done_at = monotonic_ns()

    async def _acknowledge(self, mq: vibemq.Client, peer: Peer) -> None:
        """The reader waits for each answer, and the loop with it: there is nothing else to do."""
        if not await self._done(mq.publish_many(READ_BY_RANGE, [{}] * COMMITS)):
            return
        account, ask = self._account, peer.ask
        try:
            joined = ask("group.join", READ_BY_RANGE, group=READER, start="beginning")
            for sequence in range(joined["tail"] - COMMITS + 1, joined["tail"] + 1):
                account.acknowledging = sequence
                told = ask("group.commit", READ_BY_RANGE, group=READER, epoch=joined["epoch"], sequence=sequence)
                account.acknowledged = told["committed"]
        except Refusal as refusal:
            if refusal.code not in FULL:
                raise
            self.refusals.setdefault(refusal.code, str(refusal))

    async def _replay(self, mq: vibemq.Client) -> None:
        listed = await mq.admin("dlq.list", limit=1)
        for letter in listed["letters"]:
            event = self._account.issued(letter["id"], "replay", monotonic_ns())
            if await self._done(mq.admin("dlq.replay", ids=[letter["dead_id"]])):
                event.done_at = monotonic_ns()
