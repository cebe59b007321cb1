"""Users and access tokens on their way into the store.

The engine knows nothing of them. It gives them their place among all that is stored, and their answer its durability.
"""

from vibemq.engine.pacing import STEP_UNITS, Slices
from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model.commands import ChangeAccounts
from vibemq.model.effects import Counted
from vibemq.model.options import Durability


def change(state: EngineState, step: Step, command: ChangeAccounts) -> Slices:
    for record in command.records:
        if step.work >= STEP_UNITS:
            step = yield
        step.note_structure(record)
        step.work += 1
    step.answer_standing(command, Counted(len(command.records)), Durability.STRONG)
