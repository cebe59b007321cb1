"""`vibemq-admin`: the verbs, one file each, imported when they are used."""

from vibemq import cli
from vibemq.cli.entry import run_app
from vibemq.cli.lazy import Verb, group
from vibemq.cli.main import Version

_HERE = "vibemq.cli.admin"
VERBS = {
    "check": Verb(
        f"{_HERE}.check",
        "check",
        "Check the whole store of a stopped broker and print each problem. Exit code 1 if there is one.",
    ),
    "repair": Verb(
        f"{_HERE}.check",
        "repair",
        "Repair a damaged store: keep all valid data and list the rest. Make a copy of the directory first.",
    ),
    "backup": Verb(
        f"{_HERE}.backup",
        "backup",
        "Write a consistent copy of the store: of a running broker with --url, of a stopped one with --data-dir.",
    ),
    "restore": Verb(
        f"{_HERE}.backup",
        "restore",
        "Check a backup, then replace a data directory with it. The previous content is renamed, not deleted.",
    ),
    "compact": Verb(
        f"{_HERE}.compact",
        "compact",
        "Rewrite the store of a stopped broker to free the space of settled messages.",
    ),
    "migrate": Verb(
        f"{_HERE}.migrate",
        "migrate",
        "Show the store's version and the pending steps, or apply them. To go back, restore a backup.",
    ),
    "doctor": Verb(
        f"{_HERE}.doctor.command",
        "doctor",
        "Check this machine and a broker, and print a remedy for each problem. Exit code 1 if a check fails.",
    ),
    "reload": Verb(
        f"{_HERE}.reload",
        "reload_settings",
        "Have a running broker read its settings and TLS files again, as SIGHUP does. Exit code 2 if it refuses them.",
    ),
    "top": Verb(
        f"{_HERE}.top",
        "top",
        "Show queues, rates and connections until Ctrl-C; with --json or --once, print them once.",
    ),
    "import": Verb(
        f"{_HERE}.importer",
        "import_file",
        "Import queues, messages and dead letters of a .NET VibeMQ into a new or existing data directory.",
    ),
    "broker": Verb(f"{_HERE}.watch.broker", "app", "State, history and settings of a running broker."),
    "audit": Verb(f"{_HERE}.watch.audit", "app", "The audit log of a running broker."),
    "consumer": Verb(f"{_HERE}.watch.readers", "consumers", "Consumers of a running broker's queues."),
    "cursor": Verb(f"{_HERE}.watch.readers", "cursors", "Groups that read by ranges, of all queues."),
    "transaction": Verb(f"{_HERE}.watch.readers", "transactions", "Applications that commit transactions."),
    "queue": Verb(f"{_HERE}.queue", "app", "Queues of a running broker."),
    "definitions": Verb(
        f"{_HERE}.transfer.definitions_command", "app", "Queues of a running broker with their options, as a file."
    ),
    "message": Verb(f"{_HERE}.message", "app", "Single messages of a running broker's queues."),
    "dlq": Verb(f"{_HERE}.dlq.commands", "app", "Dead letters of a running broker."),
    "job": Verb(f"{_HERE}.jobs.commands", "app", "Jobs of a running broker: replay, purge and export of dead letters."),
    "group": Verb(f"{_HERE}.group", "app", "Groups of a queue: positions and backlogs."),
    "user": Verb(f"{_HERE}.access.users", "app", "Users of a running broker, and their permissions."),
    "token": Verb(f"{_HERE}.access.tokens", "app", "Access tokens of a running broker."),
    "connections": Verb(f"{_HERE}.access.connections", "app", "Connections of a running broker."),
    "whoami": Verb(
        f"{_HERE}.access.connections", "whoami", "Show as which user the broker knows you, and what you may do."
    ),
}


def common(version: Version = False) -> None:
    """Operate a running broker with --url, or the store of a stopped broker with --data-dir."""


def required(command: str) -> str:
    # The help of the whole program imports no verb, nor what this needs.
    from vibemq.cli.admin import permissions

    return permissions.required(command)


app = group("vibemq-admin", common, VERBS, required)


def main() -> int:
    return run_app(app, "vibemq-admin")


def run() -> None:
    """Entry point of scripts that were installed before `vibemq.cli:run_admin` was."""
    cli.run_admin()
