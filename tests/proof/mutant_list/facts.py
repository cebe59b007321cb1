"""Records that do not say what has happened, or that somebody is answered before: messages, users, jobs."""

from tests.proof.mutant_list.mutant import CHAOS_SIM, ENGINE_SIM, LOST, SIM, USERS, Mutant

FACTS = (
    Mutant(
        "one batch in several records",
        "storage/lmdb/provider.py",
        "            position = self._writer.write(durable) if durable else None\n",
        "            for one in durable[:-1]:\n                self._writer.write([one])\n"
        "            position = self._writer.write(durable[-1:]) if durable else None\n",
        sign=r"leave the DLQ in a batch that adds 0 messages|is not what its records make|dead letters",
    ),
    Mutant(
        "a dead letter moves as two facts",
        "engine/handlers/dead_lettering.py",
        "    step.note(DeadLettered(queue.queue_id, group.group_id, letters), heavy(queue))\n",
        "    step.note_settled(queue, group, [(f.sequence, f.sequence) for f in letters])\n"
        "    step.note(DeadLettered(queue.queue_id, group.group_id, letters), heavy(queue))\n",
        sign=r"settled, though nobody acknowledged them",
    ),
    Mutant(
        "an acked message is not removed",
        "storage/state/reducer.py",
        "    for group in groups:\n"
        "        if len(record.runs) > 1 and _settle_unheard(queue, group, record.runs, dirty):\n"
        "            continue\n        for run in record.runs:\n            _settle(queue, group, run, dirty)\n",
        "",
        sign=r"too many|group\.unsettled_set",
        by=(ENGINE_SIM, SIM),
    ),
    Mutant(
        "the dedup window is not restored",
        "engine/recovery.py",
        "        if published_at >= oldest:\n",
        "        if published_at < 0:\n",
        sign=r"forgot dedup ids|was published twice",
    ),
    Mutant(
        "the sequence counter is restored one too low",
        "engine/recovery.py",
        "    queue.next_sequence = stored.next_sequence\n",
        "    queue.next_sequence = max(1, stored.next_sequence - 1)\n",
        sign=r"would be given again|is given again|first_sequence == self.first_seen",
        by=(ENGINE_SIM, SIM),
    ),
)

ACCOUNTS = "engine/handlers/accounts.py"
EARLY_ANSWER = (
    "    step.answer_standing(command, AccountsChanged(len(command.records)), Durability.STRONG)\n",
    "    step.answer_standing(command, AccountsChanged(len(command.records)), Durability.ASYNC)\n",
)

USER_CHANGES = (
    Mutant(
        "a change of users is answered before its flush",
        ACCOUNTS,
        *EARLY_ANSWER,
        sign=LOST,
    ),
    Mutant(
        "a change of users that a full disk refuses has been answered",
        ACCOUNTS,
        *EARLY_ANSWER,
        sign=r"user-\d+ was answered with True",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "an answer that stands does not wait for what is owed",
        "engine/failures/answers.py",
        "        state.owed_answers.append(reply)\n",
        "        pass\n",
        sign=r"user-\d+ was answered with True",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "a checkpoint leaves a removed token where it is",
        "storage/kvstore/store.py",
        "    for token_id in dirty.tokens:\n",
        "    for token_id in dirty.tokens & state.tokens.keys():\n",
        sign=r"^Resurrected: token ",
    ),
    Mutant(
        "the tokens of a removed user stay",
        "operations/users.py",
        "            gone: list[AccountRecord] = [TokenRemoved(token_id) for token_id in "
        "self._accounts.tokens_of(user.name)]\n",
        "            gone: list[AccountRecord] = []\n",
        sign=r"is None with tokens \[",
        by=(USERS,),
        quick=False,
    ),
    Mutant(
        "an operator is answered while the record is on its way",
        "operations/users.py",
        "        await self._local.ask(lambda session, token: ChangeAccounts(session, token, list(records)))\n",
        "        asyncio.get_running_loop().call_later(\n"
        "            0.2, lambda: setattr(self, '_late', asyncio.ensure_future(\n"
        "                self._local.ask(lambda session, token: ChangeAccounts(session, token, list(records))))))\n",
        sign=r"known State|known None",
        by=(USERS,),
        quick=False,
    ),
)

JOBS = (
    Mutant(
        "a checkpoint leaves out what a job has done",
        "storage/kvstore/store.py",
        "    for job_id in dirty.jobs:\n",
        "    for job_id in dirty.jobs - state.jobs.keys():\n",
        sign=r"job \d+ is ",
    ),
    Mutant(
        "a job's account is not in the batch of its letters",
        "engine/handlers/jobs/advancing.py",
        "        step.note(record, need)\n",
        "        (step.note(record, need) if not done else state.owed_behind.append(record))\n",
        sign=r"disk\.jobs == self\.engine\.jobs",
        by=(CHAOS_SIM,),
        quick=False,
    ),
    Mutant(
        "a full disk takes back what a transient queue has confirmed",
        "engine/engine.py",
        "            if added.promised:\n",
        "            if added.promised and added.hidden is not None:\n",
        sign=r"were confirmed and are gone",
        by=(CHAOS_SIM._replace(seconds=120.0),),
        quick=False,
    ),
    Mutant(
        "a step that a full disk refused is counted",
        "engine/engine.py",
        "        for undo in outcome.undo:\n",
        "        for undo in outcome.undo[:0]:\n",
        sign=r"disk\.jobs == self\.engine\.jobs",
        by=(CHAOS_SIM,),
        quick=False,
    ),
)
