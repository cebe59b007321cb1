"""The queue engine: pure and deterministic. No I/O, no clock, no randomness, no byte layout.

engine.py     the public face: handle, committed, failed, tick      step.py       one step, and the outcome it becomes
state.py      everything the engine knows                           dispatch.py   hand-outs
recovery.py   from a stored state                                   failures/     after a full disk
views.py      descriptions of queues; range_views.py: of ranges     pacing.py     long batches in short steps
queue/        one queue, its groups and consumers, and the sets of sequences that they hold
handlers/     what each command does
"""

from vibemq.engine.engine import Engine
from vibemq.engine.pacing import Batch
from vibemq.engine.settings import EngineSettings
from vibemq.engine.state import Totals

__all__ = ["Batch", "Engine", "EngineSettings", "Totals"]
