"""Batches of commands on their way to the engine: short ones at once, long ones in steps between which others go on."""

from collections.abc import Iterator, Sequence

from vibemq.engine import Batch
from vibemq.model.commands import Command
from vibemq.model.options import Durability
from vibemq.server.clock import Clock
from vibemq.server.commit.committer import Committer
from vibemq.server.contracts import QueueEngine
from vibemq.server.net.pacer import Pacer


class Decider:
    """The one way to the engine for everybody who has commands decided.

    Raises the fault of a handler, a bug of ours, when everything that the engine decided before it is on its way.
    """

    def __init__(self, engine: QueueEngine, committer: Committer, clock: Clock, pacer: Pacer) -> None:
        self._engine = engine
        self._committer = committer
        self._clock = clock
        self._pacer = pacer

    @property
    def generation(self) -> int:
        """Of what is decided now: see `Committer.generation`."""
        return self._committer.generation

    def append_now(self) -> bool:
        """Have what was decided so far appended, before somebody hears of it. False: the store has failed, and nobody
        is told anything any more."""
        self._committer.append_now()
        return not self._committer.dead

    def advance(self, batch: Batch) -> bool:
        """The next step of a batch. Whether it has decided something that the journal has to keep."""
        try:
            outcome = self._engine.advance(batch, self._clock.now())
        except Exception as error:
            self._committer.fail(error)
            raise
        self._committer.submit(outcome)
        if batch.fault is not None:
            raise batch.fault
        return bool(outcome.records) and outcome.durability > Durability.TRANSIENT

    def steps(self, batch: Batch) -> Iterator[None]:
        """What is left of a batch, for the pacer."""
        while not batch.done:
            self.advance(batch)
            yield

    def decide(self, commands: Sequence[Command]) -> None:
        """Have commands decided behind which nothing else has to keep: the first step at once."""
        batch = Batch(commands)
        self.advance(batch)
        if not batch.done:
            self._pacer.begin_later(self.steps(batch))

    def go_on(self, work: Iterator[None]) -> None:
        """Do work that takes steps: at once as far as there is time in this turn of the loop, else in the next ones."""
        self._pacer.begin(work)

    def go_on_later(self, work: Iterator[None]) -> None:
        """The same from the next turn on: its first step is done."""
        self._pacer.begin_later(work)
