"""Users and access tokens on their way into the store.

The engine knows nothing of them. It gives them their place among all that is stored, and their answer its durability.
"""

from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.model.commands import ChangeAccounts
from vibemq.model.effects import AccountsChanged
from vibemq.model.options import Durability


def change(state: EngineState, step: Step, command: ChangeAccounts) -> None:
    """In one step, whatever their number: a user that is removed goes with all its tokens or not at all."""
    for record in command.records:
        step.note_structure(record)
    step.answer_standing(command, AccountsChanged(len(command.records)), Durability.STRONG)
