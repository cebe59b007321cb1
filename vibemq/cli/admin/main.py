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
        "Walk the whole store of a stopped broker and name what is wrong. Exit code 1 if anything is.",
    ),
    "repair": Verb(
        f"{_HERE}.check",
        "repair",
        "Save what is valid in a damaged store and say what could not be saved. Take a copy of the directory first.",
    ),
    "backup": Verb(
        f"{_HERE}.backup",
        "backup",
        "Write a consistent copy of the store: of a running broker with --url, of a stopped one with --data-dir.",
    ),
    "restore": Verb(
        f"{_HERE}.backup",
        "restore",
        "Put a backup in the place of a data directory. It is checked first, and what was there is moved aside.",
    ),
    "compact": Verb(
        f"{_HERE}.compact",
        "compact",
        "Rewrite the store of a stopped broker without the space that settled messages have left.",
    ),
    "migrate": Verb(
        f"{_HERE}.migrate",
        "migrate",
        "Show the store's version and the steps to ours, or apply them. There is no way back but a backup.",
    ),
    "doctor": Verb(
        f"{_HERE}.doctor.command",
        "doctor",
        "Look for what could trouble a broker here, and say how to mend it. Exit code 1 if a check fails.",
    ),
    "top": Verb(
        f"{_HERE}.top",
        "top",
        "Watch queues, rates and connections. Ctrl-C ends it; with --json or --once it looks once.",
    ),
    "import": Verb(
        f"{_HERE}.importer",
        "import_file",
        "Read queues, messages and dead letters of a .NET VibeMQ into a data directory, new or existing.",
    ),
    "queue": Verb(f"{_HERE}.queue", "app", "Queues of a running broker."),
    "dlq": Verb(f"{_HERE}.dlq.commands", "app", "Dead letters of a running broker."),
    "group": Verb(f"{_HERE}.group", "app", "Groups of a queue: who has read how far."),
}


def common(version: Version = False) -> None:
    """Operates brokers: running ones by --url, the store of a stopped one by --data-dir."""


app = group("vibemq-admin", common, VERBS)


def main() -> int:
    return run_app(app, "vibemq-admin")


def run() -> None:
    """Entry point of scripts that were installed before `vibemq.cli:run_admin` was."""
    cli.run_admin()
