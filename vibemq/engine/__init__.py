"""The queue engine: pure and deterministic. No I/O, no clock, no randomness, no byte layout.

engine.py       the face: handle, committed, failed, tick        pacing.py: long batches in short steps
state.py        everything it knows        turn.py     one step, and the outcome it becomes
queue.py        one queue                  group.py    one pass over it
ready.py        what may be handed out     later.py    what waits for an instant    held.py  what consumers hold
publish.py      dedup.py overflow.py adding.py: new messages
dispatch.py     hand-outs                  settle.py   and failing.py, leaving.py: what becomes of them
subscribe.py    consumers and sessions     fanout.py   groups come and go
timers.py       expiry.py retention.py: what falls due
restore.py      after a start              undo.py     after a full disk
"""

from vibemq.engine.engine import Engine
from vibemq.engine.pacing import paced
from vibemq.engine.settings import EngineSettings
from vibemq.engine.state import Totals

__all__ = ["Engine", "EngineSettings", "Totals", "paced"]
