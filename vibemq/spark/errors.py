"""What goes wrong, and what to do about it. These travel as text inside Spark's own exceptions.

    SourceError
    ├── OptionError        an option or a schema cannot be used
    ├── Unreachable        no broker answered in time
    ├── Refused            the broker said no; `code` says why
    └── DataLoss           messages that should be read are gone

This package imports nothing of ours, so that it can be shipped to executors that know only Spark: see `register`.
"""

import shlex

FOR_NOW = frozenset(("BLOCKED", "STORAGE_FULL", "RATE_LIMITED", "SHUTTING_DOWN", "CONNECTION_LIMIT", "QUEUE_FULL"))
"""Refusals that pass: the same request may succeed later."""


class SourceError(Exception):
    """Base of the family; `str(error)` is for a person."""

    code = ""
    """The broker's, when it is the broker that refused."""

    @property
    def says_queue_is_gone(self) -> bool:
        """The queue was deleted, or is another one of its name."""
        return self.code in ("QUEUE_NOT_FOUND", "WRONG_INCARNATION")


class OptionError(SourceError):
    """An option, a schema or a mode that cannot be used."""


class Unreachable(SourceError):
    """No broker answered, for as long as `retryTimeout` allows."""


class ConnectionLost(SourceError):
    """The connection ended or its peer fell silent; never leaves the client."""


class Refused(SourceError):
    """The broker's own sentence and code."""

    def __init__(self, code: str, sentence: str, advice: str = "") -> None:
        super().__init__(f"{advice} [{code}: {sentence}]" if advice else f"{sentence} [{code}]")
        self.code = code
        self.sentence = sentence

    @property
    def is_for_now(self) -> bool:
        return self.code in FOR_NOW


class DataLoss(SourceError):
    """Messages that should be read or rejected are gone, and `failOnDataLoss` is true."""

    def __init__(self, sentence: str, code: str = "") -> None:
        super().__init__(sentence)
        self.code = code


GO_ON = "Set failOnDataLoss=false to go on behind them."


def deleted_queues(queues: list[str]) -> DataLoss:
    """Of a pattern, while the query was reading them."""
    names = ", ".join(map(repr, queues))
    which, it = (f"queues {names} were", "them") if len(queues) > 1 else (f"queue {names} was", "it")
    return DataLoss(
        f"{which} deleted; what the query had not read is gone. Set failOnDataLoss=false to go on without {it}.",
        "QUEUE_NOT_FOUND",
    )


def quarantine_command(queue: str, group: str, first: int, last: int) -> str:
    return f"vibemq-admin group quarantine {queue} {shlex.quote(group)} {first}-{last}"


def seek_command(queue: str, group: str, start: str = "earliest") -> str:
    return f"vibemq-admin group seek {queue} {shlex.quote(group)} {start}"


def explained(error: Refused, queue: str, group: str = "") -> SourceError:
    """The refusal with what to do about it; the same error when its sentence is enough."""
    if error.code in ("WRONG_INCARNATION", "OFFSET_GONE"):
        return DataLoss(f"{_advice(error, queue, group)} [{error.code}: {error.sentence}]", error.code)
    advice = _advice(error, queue, group)
    return Refused(error.code, error.sentence, advice) if advice else error


def without_checkpoint(group: str, queues: list[str], chosen: str, loss: str) -> Refused:
    """The groups of these queues have been read, and the query has no position of them.

    Args:
        chosen: the value of `newCheckpoint`, which does not name this loss.
    """
    shown = ", ".join(map(repr, queues[:3])) + (f" and {len(queues) - 3} more" if len(queues) > 3 else "")
    of = f"group {group!r} of queue{'s' if len(queues) > 1 else ''} {shown}"
    return Refused(
        "GROUP_HAS_PROGRESS",
        f"{of} has acknowledged messages",
        f"this query has no checkpoint, but {of} has been read with one.{_why_it_does_not_count(chosen)} Batches would"
        " be counted from 0 and state would be empty: a file sink skips the batch numbers that its _spark_metadata has,"
        " and their rows would be missing; windows and other aggregates would begin anew and overwrite their totals;"
        " exactlyOnce would not know what it has written. Use the old checkpoint. Or take an output that is new (or"
        f" cleared) and set newCheckpoint=replay:{loss}, from the earliest message that is held, or"
        f" newCheckpoint=continue:{loss}, at the cursor; the value counts once, for this loss of a checkpoint. Or move"
        f" the group{' in each queue' if len(queues) > 1 else ''} with `{seek_command(queues[0], group)}`; or use"
        " another group",
    )


def _why_it_does_not_count(chosen: str) -> str:
    if ":" in chosen:
        return (
            f" newCheckpoint={chosen} does not count: it was for an earlier loss and heeded then, or another query has"
            " joined the group since, or it is of other queues or another group."
        )
    return "" if chosen == "refuse" else f" newCheckpoint={chosen} does not say for which loss of a checkpoint."


def _advice(error: Refused, queue: str, group: str) -> str:
    match error.code:
        case "QUEUE_NOT_FOUND":
            return f"queue {queue!r} does not exist (any more): create it, or correct the option queue"
        case "GROUP_FENCED":
            return (
                f"group {group!r} of queue {queue!r} is another query's now, or an operator has moved it."
                " A group has one query: stop the other, or give this one a group of its own. A query that calls load()"
                " of the queue several times needs a group for each."
            )
        case "GROUP_EXPIRED":
            return (
                f"group {group!r} of queue {queue!r} has expired: it lagged more than its limit, and messages are gone."
                f" Move it with `{seek_command(queue, group)}`, and begin with a new checkpoint and an output that is"
                " new, or set failOnDataLoss=false to go on with this checkpoint behind what is gone. Or use another"
                " group with a new checkpoint."
            )
        case "WRONG_INCARNATION" if not group:
            return (
                f"queue {queue!r} is not the one for which this read was planned: it was deleted and created again, or"
                " the broker's data were restored from a backup. Read it again."
            )
        case "WRONG_INCARNATION":
            return (
                f"queue {queue!r} is not the one that the checkpoint knows: it was deleted and created again, or the"
                " broker's data were restored from a backup. Under the same offsets are other messages now. Begin with"
                " a new checkpoint and an output that is new; after a restore also with newCheckpoint=replay, from the"
                " earliest message that the group holds, or newCheckpoint=continue, where it was when the backup was"
                " made (what was processed since then and is still in the backup comes again; what was published since"
                " then is gone); the query without a checkpoint prints the whole value. Or set failOnDataLoss=false to"
                " go on with what there is now."
            )
        case "OFFSET_GONE":
            return (
                f"the requested range has been acknowledged already by group {group!r} of queue {queue!r}, or the group"
                " was moved past it: the checkpoint is older than the cursor by more than the group's hold."
                " Use the newest checkpoint, or begin with a new one, and with the newCheckpoint=replay:… or"
                " =continue:… that the query then prints"
                " (read first what your sink then does: docs/howto/spark/run.md#without-a-checkpoint)."
                if group
                else f"queue {queue!r} no longer keeps the beginning of the range. {GO_ON}"
            )
        case "GROUP_HAS_PROGRESS":
            return (
                f"this query has no checkpoint, and group {group!r} of queue {queue!r} was read with one while the"
                " query began. Start it again, and do what it then says"
            )
        case "PLAN_UNKNOWN":
            return (
                f"the checkpoint was rolled back further than group {group!r} remembers, or it is a copy, or another"
                " query's: the batch that follows could have other rows than the sink has under its number. Use the"
                " newest checkpoint, and a longer hold next time. Or begin with a new checkpoint, and with the"
                " newCheckpoint=replay:… or =continue:… that the query then prints. A query without a checkpoint is"
                " told this when queues have come since its group was first read, and nothing is acknowledged yet: take"
                " an output that is new, and move the group in each queue with"
                f" `{seek_command(queue, group)}`, or use another group"
            )
        case "BATCH_CHANGED":
            return (
                "the checkpoint was rolled back or put back by hand to where the same batches cannot be cut again, or"
                " its batches are counted from 0 again under the old id of the query, or it is not the one that has"
                " read these messages. A sink that knows a batch by its number would leave rows out, or have them"
                " twice. Nothing was read. Use the newest checkpoint of the query. Or delete the whole folder, with its"
                " file metadata, take an output that is new, and the newCheckpoint=replay:… or =continue:… that the"
                " query then prints (docs/howto/spark/run.md#a-batch-that-changed)"
            )
        case "GROUP_NOT_FOUND":
            return (
                f"queue {queue!r} has no group {group!r}; it comes into being when a streaming query starts with it."
                " If this query has a checkpoint, its group was deleted: messages may have gone meanwhile, and how"
                " batches were cut is forgotten. Begin with a new checkpoint and an output that is new, or set"
                " failOnDataLoss=false to make the group where the checkpoint is"
            )
        case "STAGE_NOT_FOUND":
            return "the stages of this batch have expired (they are kept for 24 hours); run the batch again"
        case "AUTH_FAILED" | "AUTH_REQUIRED":
            return "the broker does not let this user in: see username with passwordFile or passwordEnv, or tokenFile"
        case "NOT_AUTHORIZED":
            return (
                "this user may not do that: docs/reference/spark.md#connection says which permissions a job needs, and"
                " a group or an application belongs to the user who used it first"
            )
        case _:
            return ""
