"""What a queue has noted of messages that are gone is forgotten: their sizes, instants and priorities.

Each time the notes have doubled, a walk goes over them, in stretches by sequence. It does a little whenever messages
become visible or expire, in proportion to the notes that came with them, so it is over long before they double again.

A message is gone when no group has it and the log does not either. Of each stretch every group is asked, and only then
the stretch's notes are forgotten. That a group gives up meanwhile what it had is harmless. When one gets older messages
(`Queue.alive`), the stretch is begun anew. What is not visible yet is beyond the end of the walk.
"""

from vibemq.engine.queue.queue import Queue
from vibemq.engine.queue.walk import Walk

_AT_LEAST = 512
_UNITS = 64
"""Of one call: nearly as many notes, and at least one stretch."""
_UNITS_MAX = 4096
_UNITS_PER_NOTE = 1.25
"""What a call does beyond that for each note that is new: the walk is over before there are twice as many."""
_MESSAGES_PER_UNIT = 6
"""And for these, when as many have become visible, or more."""
_GROUPS_PER_UNIT = 8
"""With very many groups more is done for each."""
_UNITS_PER_STRETCH = 128


def collect(queue: Queue) -> None:
    """Begin a walk when it is time, and go on with the one that is under way."""
    if queue.leaving:
        return
    weight = queue.weight()
    walk = queue.walk
    if walk is None:
        if weight < queue.collect_at:
            return
        end = queue.unseen[0].first if queue.unseen else queue.next_sequence
        walk = queue.walk = Walk(end, weight, queue.next_sequence)
    pace = _UNITS_PER_NOTE + len(queue.groups) // _GROUPS_PER_UNIT
    new = max(0, weight - walk.weight)
    walk.new += new
    units = min(_UNITS_MAX, _UNITS + int(pace * new) + (queue.next_sequence - walk.next_sequence) // _MESSAGES_PER_UNIT)
    while units > 0:
        if walk.first < walk.end:
            units -= _UNITS_PER_STRETCH + _go_on(queue, walk, units)
        elif queue.sizes.renumber(units):
            queue.walk = None
            # What came meanwhile was not looked at.
            queue.collect_at = max(_AT_LEAST, 2 * (queue.weight() - walk.new))
            return
        else:
            break
    walk.weight, walk.next_sequence = queue.weight(), queue.next_sequence


def _go_on(queue: Queue, walk: Walk, units: int) -> int:
    """Ask some groups about the stretch, and forget what none of them wants when that was all of them; the cost."""
    if not walk.last:
        last = queue.stretch_of_notes(walk.first, walk.end - 1)
        logged = [] if queue.log is None else queue.log.overlap(walk.first, last)
        walk.begin(last, queue.who_may_want(), logged)
    first, last = walk.first, walk.last
    cost = walk.ask(units)
    wanted = walk.finish()
    if wanted is not None:
        queue.forget_notes(first, last, wanted)
    return cost
