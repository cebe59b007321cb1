"""Every way in which the product is broken on purpose, and who must notice.

A mutant is one replacement of text, or several; each text must stand in its file exactly once, so a mutant that no
longer fits the source fails loudly instead of proving nothing.
"""

from tests.proof.mutant_list.answers import BEFORE_APPENDS, BEFORE_FLUSHES
from tests.proof.mutant_list.connections import CONNECTIONS, RANGES
from tests.proof.mutant_list.engine import ENGINE, LIFETIMES, REQUESTS, SELECTORS, SHARED_CAPACITY
from tests.proof.mutant_list.facts import FACTS, JOBS, USER_CHANGES
from tests.proof.mutant_list.mutant import Catcher, Mutant
from tests.proof.mutant_list.storage import BELIEF, CHECKPOINTS, DISKS, FLUSHES

__all__ = ["MUTANTS", "Catcher", "Mutant"]

MUTANTS = (
    FLUSHES
    + BELIEF
    + CHECKPOINTS
    + FACTS
    + USER_CHANGES
    + JOBS
    + ENGINE
    + SHARED_CAPACITY
    + SELECTORS
    + REQUESTS
    + LIFETIMES
    + CONNECTIONS
    + RANGES
    + DISKS
    + BEFORE_APPENDS
    + BEFORE_FLUSHES
)
