"""What the commands of `vibemq-admin` require of a user: the words of the reference, for their help."""

from vibemq.auth.matrix import OPERATIONS, SELF, in_words
from vibemq.model.access import Action

REQUESTS: dict[str, tuple[str, ...]] = {
    "top": ("broker.overview", "queue.rows"),
    "doctor": (),
    "reload": ("broker.reload",),
    "backup": ("storage.backup",),
    "queue create": ("queue.create",),
    "queue change": ("queue.info", "queue.change"),
    "queue ls": ("queue.list", "queue.rows"),
    "queue info": ("queue.info",),
    "queue rm": ("queue.info", "queue.delete"),
    "queue purge": ("queue.info", "queue.purge"),
    "queue peek": ("queue.peek",),
    "queue move": ("queue.move",),
    "queue export": ("queue.info", "queue.export", "message.part"),
    "queue import": ("queue.import",),
    "definitions export": ("queue.list",),
    "definitions import": ("definitions.import",),
    "message show": ("message.show",),
    "message rm": ("message.remove",),
    "group ls": ("group.list",),
    "group show": ("group.offsets",),
    "group create": ("group.list", "group.join"),
    "group set": ("group.set",),
    "group seek": ("group.list", "group.seek", "group.offsets"),
    "group filter": ("group.filter",),
    "group quarantine": ("group.quarantine",),
    "group rm": ("group.list", "group.delete"),
    "dlq ls": ("dlq.list",),
    "dlq groups": ("dlq.groups",),
    "dlq preview": ("dlq.preview",),
    "dlq show": ("dlq.show",),
    "dlq edit": ("dlq.edit",),
    "dlq replay": ("dlq.preview", "job.start", "dlq.replay"),
    "dlq purge": ("dlq.preview", "dlq.list", "job.start", "dlq.purge"),
    "job ls": ("job.list",),
    "job show": ("job.show",),
    "job pause": ("job.change",),
    "job resume": ("job.change",),
    "job cancel": ("job.change",),
    "job follow": ("job.show",),
    "job result": ("job.result",),
    "job discard": ("job.discard",),
    "dlq export": ("dlq.list", "dlq.show", "job.start", "job.show", "job.result"),
    "user add": ("user.add",),
    "user change": ("user.change",),
    "user rm": ("user.show", "token.list", "user.remove"),
    "user ls": ("user.list",),
    "user show": ("user.show",),
    "user passwd": ("user.self", "user.password"),
    "user grant": ("user.grant",),
    "user revoke": ("user.revoke",),
    "user check": ("user.check",),
    "token create": ("user.self", "token.create"),
    "token ls": ("token.list",),
    "token revoke": ("token.revoke",),
    "connections ls": ("connections.list",),
    "connections consumers": ("connections.consumers",),
    "connections close": ("connections.close",),
    "connections redirect": ("connections.redirect",),
    "broker overview": ("broker.overview",),
    "broker settings": ("broker.settings",),
    "broker listeners": ("listeners.list",),
    "broker backups": ("backup.list",),
    "broker history": ("history.get",),
    "audit ls": ("audit.list",),
    "audit follow": ("audit.list",),
    "consumer ls": ("consumer.list",),
    "cursor ls": ("cursor.list",),
    "transaction ls": ("transaction.list",),
    "whoami": ("user.self",),
}
"""Command -> the operations that it cannot do without."""


def required(command: str) -> str:
    """A sentence for the help of a command; empty when nothing is required."""
    permissions = dict.fromkeys(
        permission for request in REQUESTS.get(command, ()) for permission in OPERATIONS[request]
    )
    if any(permission.action is Action.ADMIN for permission in permissions):
        return "On a broker with authentication this requires a superuser."
    if SELF in permissions:
        return f"On a broker with authentication this requires {in_words(SELF)}."
    free = (Action.LIST, Action.OWN)
    words = ", ".join(dict.fromkeys(in_words(each) for each in permissions if each.action not in free))
    return f"Permissions on a broker with authentication: {words}." if words else ""
