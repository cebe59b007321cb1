"""`vibemq-admin`: the verbs, one file each."""

import sys

import typer

from vibemq.cli.admin import group, queue
from vibemq.cli.admin.backup import backup, restore
from vibemq.cli.admin.check import check, repair
from vibemq.cli.admin.compact import compact
from vibemq.cli.admin.dlq import commands
from vibemq.cli.admin.doctor.command import doctor
from vibemq.cli.admin.importer import import_file
from vibemq.cli.admin.migrate import migrate
from vibemq.cli.admin.top import top
from vibemq.cli.entry import run_app
from vibemq.cli.main import Version

app = typer.Typer(
    name="vibemq-admin",
    help="Operates brokers: running ones by --url, the store of a stopped one by --data-dir.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(queue.app, name="queue")
app.add_typer(commands.app, name="dlq")
app.add_typer(group.app, name="group")
for verb in (check, repair, backup, restore, compact, migrate, doctor, top):
    app.command()(verb)
app.command("import")(import_file)


@app.callback()
def common(version: Version = False) -> None:
    """Operates brokers: running ones by --url, the store of a stopped one by --data-dir."""


def run() -> None:
    """Entry point of the script `vibemq-admin`."""
    sys.exit(run_app(app, "vibemq-admin"))
