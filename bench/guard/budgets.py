"""How much the hot path may cost per message. Lower a figure when you make it faster; raising one needs a reason in the
pull request, and its measurement.

`python -m bench.guard` prints what everything costs now.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """Per message, at `hot_path.MESSAGES` messages."""

    calls: float
    """Exact but for what a batch costs as a whole: one more call per message is over it. Where asyncio has a part in
    it, with a tenth to spare, as its versions differ."""
    instructions: float
    """For batches of the broker so that even an empty loop over the messages, three instructions each, is over it;
    for the others with a third to spare, as versions of Python differ."""
    reference_loops: float
    """Processor time in units of `frozen.reference`, with a factor of three to spare."""


BUDGETS = {
    "broker takes a batch": Budget(calls=1.2, instructions=11.5, reference_loops=3.6),
    "broker hands out a batch": Budget(calls=0.7, instructions=4.0, reference_loops=0.9),
    "broker settles a batch": Budget(calls=1.0, instructions=10.0, reference_loops=1.5),
    "broker takes plain publishes": Budget(calls=7.1, instructions=223, reference_loops=9.6),
    "broker hands out plain deliveries": Budget(calls=8.6, instructions=268, reference_loops=6.0),
    "broker settles plain acks": Budget(calls=7.0, instructions=111, reference_loops=4.3),
    "broker confirms one by one": Budget(calls=645, instructions=11_300, reference_loops=1_500),
    "broker confirms and delivers one by one": Budget(calls=1_400, instructions=24_400, reference_loops=4_700),
    "client packs a batch": Budget(calls=12.6, instructions=158, reference_loops=5.8),
    "client packs many bodies": Budget(calls=5.5, instructions=83, reference_loops=2.0),
    "client takes a batch": Budget(calls=0.7, instructions=21, reference_loops=1.2),
    "client looks at every message": Budget(calls=12.6, instructions=228, reference_loops=7.6),
    "client publishes one by one": Budget(calls=206, instructions=3_020, reference_loops=140),
    "blocking client publishes one by one": Budget(calls=68.9, instructions=1_030, reference_loops=45),
    "client receives one by one": Budget(calls=190, instructions=3_050, reference_loops=150),
}
