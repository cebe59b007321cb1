"""Replies, from whichever connection."""

from vibemq.engine.state import EngineState
from vibemq.engine.step import Step
from vibemq.errors import RequesterGone
from vibemq.model.commands import Respond
from vibemq.model.effects import Responded


def respond(state: EngineState, step: Step, command: Respond) -> None:
    """The first reply counts.

    Raises:
        RequesterGone: nobody waits at the address, or not any more.
    """
    waiting = state.requests.find(command.address, step.now)
    if waiting is None:
        raise RequesterGone(
            "nobody waits for this reply any more: the requester has a reply already, has given up, or is gone; "
            "acknowledge the message, and do not send the reply again"
        )
    state.requests.forget(waiting)
    step.effects.append(Responded(waiting.session, waiting.requester.token, command.rows))
    step.answer(command, None)
