"""Transactions in a simulated broker: somebody stages messages, decides, and has the stages enter their queues.

The engine itself knows what is staged and what is decided, so a life goes on where the one before it was cut off.
"""

import random

from tests.proof.sim_world import World
from vibemq.engine.stage_names import is_plain, plain_of, stage_in, version_and_app
from vibemq.model.commands import DecideTransaction, DropStages, MoveStage, MoveStaged, Stage
from vibemq.model.rows import Rows, pack_row

STAGER = 8
SHARE = 0.2
"""Of the steps of a life."""
APP = "app"
READ_BYTES = 1 << 20


class StageOperator:
    """Dead with its world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def step(self, rng: random.Random) -> None:
        # One thing at a time, as the server does: what is read for a move is still there when the move is decided.
        if rng.random() >= SHARE or self._world.is_asking(STAGER):
            return
        done = self._world.engine._state.transactions.get(APP)
        version = 0 if done is None else done.version + 1
        left = self._decided()
        if left and rng.random() < 0.6:
            self._move(rng, rng.choice(left))
            return
        staged = [stage_in(name) for name, at in self._stages().items() if at == version]
        match rng.randrange(10):
            case 0 | 1 | 2 if staged:
                some = rng.sample(staged, rng.randint(1, len(staged)))
                self._world.ask(DecideTransaction(STAGER, self._token(), APP, version, some))
            case 3 if staged:
                names = [plain_of(name)[0] for name, at in self._stages().items() if at == version]
                self._world.ask(DropStages(STAGER, self._token(), names))
            case _:
                self._stage(rng, version)

    def _token(self) -> str:
        return f"t{next(self._world.tokens)}"

    def _stages(self) -> dict[str, int]:
        names = self._world.engine._state.stages_of.get(APP, {})
        return {name: version for name, version in names.items() if is_plain(name)}

    def _decided(self) -> list[str]:
        state = self._world.engine._state
        done = state.transactions.get(APP)
        chosen = () if done is None else done.stages
        return [name for name in self._stages() if state.stages[name].queue_id in chosen]

    def _stage(self, rng: random.Random, version: int) -> None:
        names = sorted(info.name for info in self._world.engine.queue_infos())
        lasting = [name for name in names if not name.startswith("transient")]
        if not lasting:
            return
        queue, rows = rng.choice(lasting), []
        for _ in range(rng.choice((1, 3, 10))):
            message_id = f"s{next(self._world.tokens)}-{self._world.ledger.life}"
            rows.append(pack_row(message_id, rng.randbytes(rng.choice((0, 40, 700)))))
        self._world.ask(Stage(STAGER, self._token(), queue, APP, version, queue, rng.randrange(1 << 30), Rows.of(rows)))

    def _move(self, rng: random.Random, name: str) -> None:
        assert version_and_app(name)[1] == APP
        queue_id, runs, more, _ = self._world.engine.readers.plain_part(name)
        target = plain_of(name)[1]
        if more or not runs:
            # A stage that is empty goes; one that is decided and is not stays.
            self._world.ask(DropStages(STAGER, self._token(), [name]))
        elif rng.random() < 0.4:
            first, last = rng.choice((runs[0], runs[0], runs[-1]))
            self._copy(name, queue_id, rng.randint(first, last) if rng.random() < 0.3 else first, last, target)
        else:
            self._world.ask(MoveStage(STAGER, self._token(), name, target))

    def _copy(self, name: str, queue_id: int, first: int, last: int, target: str) -> None:
        """As when the queue keeps its messages in memory for a while: some leave the stage by themselves."""
        parts = self._world.provider.read(queue_id, first, min(last, first + 4), READ_BYTES)
        part = parts[0]
        rows = part.rows
        assert part.first_sequence == first
        self._world.ask(MoveStaged(STAGER, self._token(), name, first, target, rows, None, rows.count))
