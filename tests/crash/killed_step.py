"""A process that is killed when it takes a certain step, such as the third change of a name."""

import os
import sys
from collections.abc import Callable, Collection

from tests.proof.forked import ChildDied, in_fork

KILLED = 137


def killed_at(step: int, steps: Collection[str], work: Callable[[], int]) -> bool:
    """Whether there was such a step.

    Args:
        step: from 1.
        steps: names of the audit events that count.
        work: returns 0.
    """
    seen = 0

    def hook(event: str, arguments: object) -> None:
        nonlocal seen
        if event in steps:
            seen += 1
            if seen == step:
                os._exit(KILLED)

    def watched() -> int:
        sys.addaudithook(hook)
        return work()

    try:
        code = in_fork(watched)
    except ChildDied as died:
        code = died.code
    assert code in (0, KILLED)
    return code == KILLED
