"""Answers that carry a promise, told before what they promise is written; those of users stand in facts.py.

The engine holds up whatever a handler says while it notes a fact (`NO_GUARD`), so each mutant takes that away as well:
then nobody but the handler says how long its answer waits.
"""

from tests.proof.mutant_list.mutant import FAILED_WRITE, LOST, SIM_ASIDE, Mutant

NO_GUARD = (
    "engine/engine.py",
    "            if step.facts > facts and len(step.effects) > told:\n",
    "            if step.facts < facts:\n",
)
CURSORS = "engine/handlers/cursors/requests.py"
QUEUES = "engine/handlers/queues.py"
STARTING = "engine/handlers/jobs/starting.py"
TRANSACTIONS = "engine/handlers/transactions.py"
CREATED = "    _add_groups(state, step, queue, command)\n    step.answer_standing(command, None, Durability.{})\n"
STARTED = "    step.answer(command, jobs.by_id[job.job_id], Durability.{})\n"
DECIDED = "    step.answer(command, _answer(state, transaction, duplicate=False), Durability.{})\n"


def too_early(what: str, command: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(
        f"{what} is answered before it is appended",
        file,
        old,
        new,
        sign=rf"{command} was answered, and its \w+ is not written|{LOST}",
        by=(SIM_ASIDE,),
        also=(NO_GUARD,),
    )


COMMIT = (
    CURSORS,
    "describe(queue, group, cursor), durable_need(queue) if first else light(queue))\n",
    "describe(queue, group, cursor), type(light(queue)).TRANSIENT)\n",
)

BEFORE_APPENDS = (
    Mutant(
        "a commit is answered while sqlite writes it",
        *COMMIT,
        sign=r"the reader was told that it is at \d+, and is at \d+",
        by=(FAILED_WRITE,),
        quick=False,
        also=(NO_GUARD,),
    ),
    too_early("a commit", "CommitCursor", *COMMIT),
    too_early(
        "a settlement",
        "Settle",
        "engine/handlers/settle.py",
        "    need = Durability.TRANSIENT if consumer is None else light(consumer.queue)\n",
        "    need = Durability.TRANSIENT\n",
    ),
    too_early(
        "an asynchronous publish",
        "Publish",
        "engine/handlers/publish.py",
        "            waits = durability is Durability.ASYNC or state.is_being_created(queue)\n",
        "            waits = state.is_being_created(queue)\n",
    ),
    too_early(
        "the creation of a queue",
        "CreateQueue",
        QUEUES,
        CREATED.format("STRONG"),
        CREATED.format("TRANSIENT"),
    ),
    too_early(
        "a change of users",
        "ChangeAccounts",
        "engine/handlers/accounts.py",
        "AccountsChanged(len(command.records)), Durability.STRONG)\n",
        "AccountsChanged(len(command.records)), Durability.TRANSIENT)\n",
    ),
    too_early("the start of a job", "StartJob", STARTING, STARTED.format("STRONG"), STARTED.format("TRANSIENT")),
    too_early(
        "a transaction", "DecideTransaction", TRANSACTIONS, DECIDED.format("STRONG"), DECIDED.format("TRANSIENT")
    ),
    Mutant(
        "what waits for an append is told at once",
        "server/commit/committer.py",
        "        held = self._effect_router.accept(outcome)\n",
        "        held = self._effect_router.accept(outcome)\n        self._effect_router.release(held.after_append)\n",
        sign=r"was answered, and its \w+ is not written|was told of and never written",
        by=(SIM_ASIDE,),
    ),
)

BEFORE_FLUSHES = (
    Mutant(
        "the creation of a queue is answered before its flush",
        QUEUES,
        CREATED.format("STRONG"),
        CREATED.format("ASYNC"),
        sign=LOST,
    ),
    Mutant(
        "the start of a job is answered before its flush",
        STARTING,
        STARTED.format("STRONG"),
        STARTED.format("ASYNC"),
        sign=LOST,
    ),
    Mutant(
        "a transaction is answered before its flush",
        TRANSACTIONS,
        DECIDED.format("STRONG"),
        DECIDED.format("ASYNC"),
        sign=LOST,
    ),
)
