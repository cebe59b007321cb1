"""The one table of permissions: what every command and every operation needs.

A command is a word of the engine (`vibemq.model.commands`); an operation is a request by name, as the native protocol's
Admin and CursorRequest frames, the command line and other doors carry it. Both tables are total, and so is that of the
kinds of jobs: a command or a kind without a row fails when this module is imported, an operation without a row fails
when it is registered (`permissions_of`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from vibemq.model import commands as c
from vibemq.model.access import Action, NeededPermission, ResourceKind, When
from vibemq.model.jobs.job import JobKind

Row = tuple[NeededPermission, ...]
"""All of them are needed."""


def _queue(action: Action, argument: str = "", when: When = When.ALWAYS) -> NeededPermission:
    return NeededPermission(action, ResourceKind.QUEUE, argument, when)


PUBLISH, SUBSCRIBE = _queue(Action.PUBLISH), _queue(Action.SUBSCRIBE)
CREATE, DELETE = _queue(Action.CREATE), _queue(Action.DELETE)
PURGE, INSPECT = _queue(Action.PURGE), _queue(Action.INSPECT)
CREATE_MISSING = _queue(Action.CREATE, when=When.MISSING)
INSPECT_NAMED = _queue(Action.INSPECT, when=When.NAMED)
PUBLISH_TO = _queue(Action.PUBLISH, "to")
"""Where dead letters are replayed to, and messages moved; without the argument, the queue that they died in."""
MANAGE = NeededPermission(Action.MANAGE, ResourceKind.GROUP, when=When.NOT_OWNER)
TRANSACT = NeededPermission(Action.TRANSACT, ResourceKind.TRANSACTION)
LIST = NeededPermission(Action.LIST, ResourceKind.BROKER)
ADMIN = NeededPermission(Action.ADMIN, ResourceKind.BROKER)
OWN = NeededPermission(Action.OWN, ResourceKind.SESSION)
SELF = NeededPermission(Action.SELF, ResourceKind.USER)
NEVER = NeededPermission(Action.NEVER, ResourceKind.BROKER)

COMMANDS: Mapping[type, Row] = {
    c.Publish: (PUBLISH, CREATE_MISSING),
    # The address of a reply is known to whoever was given the request.
    c.Respond: (OWN,),
    c.GiveUp: (OWN,),
    c.Subscribe: (SUBSCRIBE, CREATE_MISSING),
    c.Unsubscribe: (OWN,),
    c.SetCapacity: (OWN,),
    c.SetShare: (OWN,),
    c.Settle: (OWN,),
    c.Extend: (OWN,),
    c.CreateQueue: (CREATE,),
    c.ChangeQueue: (CREATE,),
    c.DeleteQueue: (DELETE,),
    c.PurgeQueue: (PURGE,),
    c.RemoveMessages: (PURGE,),
    c.DescribeQueue: (INSPECT,),
    c.ListQueues: (LIST,),
    c.DeleteGroup: (SUBSCRIBE, MANAGE),
    c.SeekGroup: (SUBSCRIBE, MANAGE),
    c.FilterGroup: (SUBSCRIBE, MANAGE),
    c.Stage: (PUBLISH, CREATE_MISSING, TRANSACT),
    # The server's own, on behalf of an operation whose row was checked before, or of nobody.
    c.JoinCursor: (NEVER,),
    c.CommitCursor: (NEVER,),
    c.PlanBatch: (NEVER,),
    c.EnterBatch: (NEVER,),
    c.RejectAt: (NEVER,),
    c.Quarantine: (NEVER,),
    c.RemoveListed: (NEVER,),
    c.DecideTransaction: (NEVER,),
    c.MoveStage: (NEVER,),
    c.MoveStaged: (NEVER,),
    c.DropStages: (NEVER,),
    c.MoveMessages: (NEVER,),
    c.ImportMessages: (NEVER,),
    c.ReplayDead: (NEVER,),
    c.PurgeDead: (NEVER,),
    c.StartJob: (NEVER,),
    c.ChangeJob: (NEVER,),
    c.AdvanceJob: (NEVER,),
    c.ForgetJobs: (NEVER,),
    c.ForgetMade: (NEVER,),
    c.ForgetApplication: (NEVER,),
    c.ChangeAccounts: (NEVER,),
    c.SetFlow: (NEVER,),
    c.CloseSession: (NEVER,),
    c.Classified: (NEVER,),
    c.EndConsumers: (NEVER,),
    c.SetPressure: (NEVER,),
}

OPERATIONS: Mapping[str, Row] = {
    "broker.info": (ADMIN,),
    "broker.metrics": (ADMIN,),
    "broker.reload": (ADMIN,),
    # Of the queues that the caller may inspect; of the whole broker for superusers.
    "broker.overview": (LIST,),
    "queue.rows": (LIST,),
    # Without the argument `queue` it concerns the whole broker, which needs a rule for `*`.
    "history.get": (INSPECT,),
    "audit.list": (ADMIN,),
    "broker.checks": (ADMIN,),
    "broker.settings": (ADMIN,),
    "listeners.list": (ADMIN,),
    "consumer.list": (INSPECT,),
    # Of queues that the caller may inspect, and of applications that it may commit for.
    "cursor.list": (LIST,),
    "transaction.list": (LIST,),
    # With their own name as `user`, users are shown and close their own.
    "connections.list": (SELF,),
    "connections.consumers": (SELF,),
    "connections.close": (SELF,),
    "connections.redirect": (ADMIN,),
    "storage.backup": (ADMIN,),
    "backup.list": (ADMIN,),
    "definitions.import": (ADMIN,),
    "queue.create": (CREATE,),
    "queue.change": (CREATE,),
    "queue.delete": (DELETE,),
    "queue.purge": (PURGE,),
    "queue.remove": (PURGE,),
    "queue.info": (INSPECT,),
    "queue.list": (LIST,),
    "queue.peek": (INSPECT, SUBSCRIBE),
    "queue.move": (SUBSCRIBE, PURGE, PUBLISH_TO),
    "queue.export": (INSPECT, SUBSCRIBE),
    "queue.import": (PUBLISH,),
    "message.show": (INSPECT, SUBSCRIBE),
    "message.part": (INSPECT, SUBSCRIBE),
    "message.remove": (PURGE,),
    "group.list": (SUBSCRIBE,),
    "group.offsets": (SUBSCRIBE,),
    "group.advance": (SUBSCRIBE,),
    "group.split": (SUBSCRIBE,),
    "group.fetch": (SUBSCRIBE,),
    "group.join": (SUBSCRIBE, MANAGE),
    "group.commit": (SUBSCRIBE, MANAGE),
    "group.plan": (SUBSCRIBE, MANAGE),
    "group.enter": (SUBSCRIBE, MANAGE),
    "group.reject": (SUBSCRIBE, MANAGE),
    "group.quarantine": (SUBSCRIBE, MANAGE),
    "group.set": (SUBSCRIBE, MANAGE),
    "group.seek": (SUBSCRIBE, MANAGE),
    "group.filter": (SUBSCRIBE, MANAGE),
    "group.delete": (SUBSCRIBE, MANAGE),
    # Without the argument `queue` they show the letters of the queues that the user may inspect.
    "dlq.list": (INSPECT_NAMED,),
    "dlq.groups": (INSPECT_NAMED,),
    "dlq.preview": (INSPECT_NAMED,),
    # Without it these concern every queue, which needs a rule for `*`.
    "dlq.show": (INSPECT,),
    "dlq.replay": (PURGE, PUBLISH_TO),
    "dlq.purge": (PURGE,),
    "dlq.edit": (PURGE, PUBLISH_TO),
    # What a job does is checked by its kind (`JOB_KINDS`), and a list shows what the caller may see.
    "job.start": (LIST,),
    "job.list": (LIST,),
    "job.show": (LIST,),
    "job.change": (LIST,),
    "job.result": (LIST,),
    "job.discard": (LIST,),
    "dead.offsets": (INSPECT,),
    "dead.fetch": (INSPECT,),
    "dead.redrive": (PURGE, PUBLISH_TO),
    "transaction.commit": (TRANSACT,),
    "transaction.abort": (TRANSACT,),
    "transaction.last": (TRANSACT,),
    "transaction.forget": (ADMIN,),
    "user.add": (ADMIN,),
    "user.change": (ADMIN,),
    "user.remove": (ADMIN,),
    "user.list": (ADMIN,),
    "user.show": (SELF,),
    "user.password": (SELF,),
    "user.grant": (ADMIN,),
    "user.revoke": (ADMIN,),
    "user.check": (SELF,),
    "user.allowed": (ADMIN,),
    "user.self": (OWN,),
    "token.create": (SELF,),
    "token.list": (SELF,),
    "token.revoke": (SELF,),
}


JOB_KINDS: Mapping[JobKind, Row] = {
    JobKind.REPLAY: OPERATIONS["dlq.replay"],
    JobKind.PURGE_DEAD: OPERATIONS["dlq.purge"],
    JobKind.EXPORT_DEAD: OPERATIONS["dlq.show"],
}
"""What each kind of job needs: when it is started, at each of its steps (of its maker), and when it is changed."""


def permissions_of(operation: str) -> Row:
    """What an operation needs.

    Raises:
        LookupError: no row; an operation without one cannot be registered.
    """
    try:
        return OPERATIONS[operation]
    except KeyError:
        raise LookupError(
            f"operation {operation[:64]!r} has no row in vibemq/auth/matrix.py; say there which permissions it needs"
        ) from None


def resource_name(permission: NeededPermission, value_of: Callable[[str], Any]) -> str:
    """The name of the resource, from the fields of a command or the arguments of an operation; "" = all of its kind.

    `value_of`: a field or argument by name, None when there is none. What is not text counts as not given: the
    operation itself refuses it.
    """

    def text(name: str) -> str:
        value = value_of(name)
        return value if isinstance(value, str) else ""

    if permission.argument:
        return text(permission.argument) or text("queue")
    match permission.kind:
        case ResourceKind.QUEUE:
            return text("queue")
        case ResourceKind.GROUP:
            return f"{text('queue')}/{text('group')}"
        case ResourceKind.TRANSACTION:
            return text("app")
        case ResourceKind.USER:
            return text("user")
        case _:
            return ""


def check_total(rows: Mapping[type, Row] | Mapping[JobKind, Row], words: Iterable[type | JobKind], what: str) -> None:
    """Raises LookupError when a word has no row, or a row no word. `what`: the words are, in the plural."""
    different = {word.__name__ if isinstance(word, type) else str(word) for word in set(rows) ^ set(words)}
    if different:
        raise LookupError(f"vibemq/auth/matrix.py and the {what} differ in {', '.join(sorted(different))}")


check_total(COMMANDS, get_args(c.Command), "commands")
check_total(JOB_KINDS, JobKind, "kinds of jobs")


_BROKER_WORDS = {Action.ADMIN: "a superuser", Action.LIST: "none"}


def in_words(permission: NeededPermission) -> str:
    """`purge` on the queue, as references and help texts say it."""
    conditions = {When.MISSING: " when it is missing", When.NOT_OWNER: " when it does not belong to the user"}
    if permission.action in _BROKER_WORDS:
        return _BROKER_WORDS[permission.action]
    if permission.action is Action.SELF:
        return "a superuser, or the user itself, logged in with its password"
    if permission.kind is ResourceKind.BROKER:
        return f"`{permission.action}`"
    place = f" (`{permission.argument}`)" if permission.argument else ""
    return f"`{permission.action}` on the {permission.kind}{place}{conditions.get(permission.when, '')}"
