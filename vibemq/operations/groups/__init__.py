"""Groups of a queue: those of consumers, and cursors, which read by ranges."""

from vibemq.operations.groups.arguments import OfQueue
from vibemq.operations.groups.groups import OPERATIONS, RUNS_SHOWN, Groups

__all__ = ["OPERATIONS", "RUNS_SHOWN", "Groups", "OfQueue"]
