"""What a queue decides wrongly: its order, its owners, its deadlines, its selectors, its end."""

from tests.proof.mutant_list.mutant import CHAOS_SIM, ENGINE_SIM, LIFETIME_SIM, SELECTOR_SIM, Mutant

ENGINE = (
    Mutant(
        "a new owner does not fence the old one",
        "engine/handlers/groups.py",
        "        end_consumers(step, queue, group.name, _fenced(queue, group), but_session=command.session)\n",
        "",
        sign=r"were not fenced",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "the last step of a purge does not wait for the flush of those before",
        "engine/handlers/queues.py",
        "    return heavy(queue) if count else light(queue)\n",
        "    return light(queue)\n",
        sign=r"^Lost: ",
        quick=False,
    ),
    Mutant(
        "a group's epoch stays when it is taken over",
        "engine/handlers/fan_out.py",
        "    group.epoch += 1\n",
        "",
        sign=r"epoch \d+ after \d+ owners",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "an ack of somebody else's delivery counts",
        "engine/handlers/settle.py",
        "    held = _take(consumer, runs)\n",
        "    held = _take(consumer, runs) or [\n"
        "        run for other in consumer.group.consumers for run in _take(other, runs)\n    ]\n",
        sign=r"out of order|compare: |settle",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "a delivery's deadline is ignored",
        "engine/handlers/settle.py",
        "    overdue = consumer.unacked.due(step.now, max(1, STEP_UNITS - step.work))\n    if not overdue:\n",
        "    overdue = consumer.unacked.due(step.now, 1)\n    if overdue or not overdue:\n",
        sign=r"compare: .*in_flight",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "a returned message goes to the tail",
        "engine/handlers/requeue.py",
        "        group.ready.add(first, last)\n    step.touch(queue, group)\n    remove_from_group(",
        "        for sequence in range(first, last + 1):\n            group.delayed.add(sequence, step.now + 1)\n"
        "            state.arm(queue, step.now + 1)\n    step.touch(queue, group)\n    remove_from_group(",
        sign=r"compare: .*delayed",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "a message that falls due takes its place by its sequence",
        "engine/queue/scheduled.py",
        "and fallen[index][0] < published_at:\n",
        "and fallen[index][1] < first:\n",
        sign=r"out of order|others were due before",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "what was published before and after a message fell due is taken for one",
        "engine/queue/queue.py",
        "        passed = upcoming.pass_by(",
        "        passed = not upcoming.pass_by(",
        sign=r"out of order|others were due before",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "a store takes what was published before and after a message fell due for one",
        "storage/state/messages.py",
        "        and not record.apart\n",
        "",
        sign=r"out of order|others were due before",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "a message's end is ignored",
        "engine/handlers/expiry.py",
        "def expire(",
        "def expire(*_: object) -> None:\n    return\n\n\ndef _expire(",
        sign=r"out of order|compare: ",
        by=(ENGINE_SIM,),
    ),
)

SHARE = "engine/queue/share.py"

SHARED_CAPACITY = (
    Mutant(
        "a share does not count what was settled",
        SHARE,
        "            self._note(self.count - count, self.size - size)\n        return taken\n",
        "            pass\n        return taken\n",
        sign=r"its members hold",
        by=(CHAOS_SIM,),
    ),
    Mutant(
        "nobody in line is called when a share has room",
        SHARE,
        "        if count < 0 or size < 0:\n            self.call()\n",
        "",
        sign=r"has room, and nobody is called",
        by=(CHAOS_SIM,),
    ),
    Mutant(
        "a share goes on when its last member has left",
        "engine/queue/consumer.py",
        "        if not share.members and self.shares.get(share.name) is share:\n",
        "        if not share.members and self.shares.get(share.name) is None:\n",
        sign=r"has no members and is kept",
        by=(CHAOS_SIM,),
    ),
)

SELECTORS = (
    Mutant(
        "a message that comes back is not looked at again",
        "engine/queue/routing/sifted.py",
        "        super().add(first, last)\n        self.fresh.add(NORMAL, first, last)\n",
        "        super().add(first, last)\n        if first < last:\n            self.fresh.add(NORMAL, first, last)\n",
        sign=r"waits in vain",
        by=(SELECTOR_SIM,),
    ),
    Mutant(
        "what comes after a message that matches is taken to match, too",
        "engine/queue/routing/routes.py",
        "                found.setdefault(place, []).append((first, last))\n",
        "                found.setdefault(place, []).append((first, last + 1))\n",
        sign=r"is not what .* wants",
        by=(SELECTOR_SIM,),
    ),
    Mutant(
        "a full consumer is not asked again about what it was not told",
        "engine/queue/routing/routes.py",
        "            elif question.late is None or question.late is line:\n",
        "            elif question.late is line:\n",
        sign=r"waits in vain",
        by=(SELECTOR_SIM,),
    ),
    Mutant(
        "what is known is not looked at again for a higher priority that comes",
        "engine/queue/routing/routes.py",
        "                if above - before:\n",
        "                if before - above:\n",
        sign=r"is given to .* is above it",
        by=(SELECTOR_SIM._replace(seed=2),),
    ),
    Mutant(
        "an answer about the filter before settles what the new one matches",
        "engine/queue/routing/routes.py",
        "        self.where = where\n        self._drop_question()\n",
        "        self.where = where\n",
        sign=r"although it matches the filter|is not what the filter .* matches|wait in vain in a group whose filter",
        by=(SELECTOR_SIM,),
    ),
    Mutant(
        "a filter is gone after a restart",
        "engine/recovery.py",
        "        group.filter_by(Selector.parse(stored.where))\n",
        "",
        sign=r"the filter is not the one that is kept",
        by=(SELECTOR_SIM,),
    ),
    Mutant(
        "a message that has failed holds up nobody",
        "engine/routing/isolated.py",
        "    if until < END and step.now < until:\n",
        "    if until < step.now:\n",
        sign=r"has failed \d+ times and comes back after \d+ ms",
        by=(SELECTOR_SIM,),
    ),
)

REQUESTS = (
    Mutant(
        "a request that was answered still waits",
        "engine/requests/answering.py",
        "    state.requests.forget(waiting)\n",
        "",
        sign=r"request \d+ has ended twice",
        by=(CHAOS_SIM,),
    ),
    Mutant(
        "nobody hears of a request that became a dead letter",
        "engine/handlers/dead_lettering.py",
        "        fail_sequences(queue, group, doomed, reason, error)\n",
        "        for sequence in doomed:\n            if sequence in queue.requests:\n"
        "                queue.requests[sequence].table.forget(queue.requests[sequence])\n",
        sign=r"requests without an end",
        by=(CHAOS_SIM,),
    ),
    Mutant(
        "nobody hears that a request's time has passed",
        "engine/requests/asking.py",
        "        step.effects.append(_told(waiting, overdue(waiting)))\n",
        "        overdue(waiting)\n",
        sign=r"requests without an end",
        by=(CHAOS_SIM,),
    ),
)

LIFETIME = "engine/lifetime.py"
DEPARTURE = "engine/departure.py"

LIFETIMES = (
    Mutant(
        "publishing keeps a queue that nobody reads",
        DEPARTURE,
        "        ask.CreateQueue,\n        ask.ChangeQueue,\n",
        "        ask.Publish,\n        ask.CreateQueue,\n        ask.ChangeQueue,\n",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
    Mutant(
        "a queue goes before it has had a consumer",
        LIFETIME,
        "    if queue.attended and options.auto_delete:\n",
        "    if options.auto_delete:\n",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
    Mutant(
        "the consumers under which auto_delete was set do not count",
        "engine/handlers/queues.py",
        "    if queue.attendant_count:\n",
        "    if False:\n",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
    Mutant(
        "an exclusive queue outlives a restart",
        LIFETIME,
        "    if queue.options.exclusive:\n        doom(state, queue, Departure.EXCLUSIVE)\n    elif",
        "    if",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
    Mutant(
        "an exclusive queue outlives its connection",
        "engine/handlers/subscribe.py",
        "    step = yield from lifetime.doom_with(state, step, session)\n",
        "",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
    Mutant(
        "an exclusive queue is open to others",
        LIFETIME,
        "        raise QueueExclusive(queue.name)\n",
        "        return\n",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
    Mutant(
        "a restart forgets that a queue has had a consumer",
        "engine/recovery.py",
        "    queue.attended = stored.attended\n",
        "",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
    Mutant(
        "a start does not begin the time of a queue anew",
        "engine/recovery.py",
        "            lifetime.begin(state, queue, step.now)\n",
        "            lifetime.begin(state, queue, queue.created_at)\n",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
)
