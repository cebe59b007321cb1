"""`vibemq-admin dlq`: look at dead letters, put them back, delete them, take them away in a file."""

import sys
from typing import Annotated, Any

import typer

from vibemq.cli.admin.dlq import pages
from vibemq.cli.admin.dlq.edit_command import edit
from vibemq.cli.admin.dlq.export_command import export
from vibemq.cli.admin.dlq.filters import AtMost, Detach, Filters, ForReason, FromQueue, Note, filtered, filters_of
from vibemq.cli.admin.dlq.replay_command import replay
from vibemq.cli.admin.jobs.following import follow, require_all_read, require_done
from vibemq.cli.exits import Usage
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, DryRun, Json, Timeout, Url, Yes, queue_names
from vibemq.cli.messages import group_table, letter_sheet, letter_table, payload_bytes, preview_sheet
from vibemq.cli.online import ask, call, require_queue
from vibemq.cli.output import Output, count_text
from vibemq.client import Client
from vibemq.errors import MessageNotFound, MessageTooLarge
from vibemq.model.quantities import NUMBER_MAX

app = typer.Typer(help="Dead letters of a running broker.", no_args_is_help=True)
app.command()(replay)
app.command()(edit)
app.command()(export)


@app.command("ls")
@filtered
def list_letters(
    filters: Filters,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number.")] = 100,
    after: Annotated[
        int, typer.Option("--after", metavar="ID", min=0, max=NUMBER_MAX, help="Begin after this dead id.")
    ] = 0,
    newest: Annotated[bool, typer.Option("--newest", help="List the newest dead letters first.")] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """List dead letters without their payloads, oldest first or, with --newest, newest first."""
    out = Output(json=json)

    async def work(mq: Client) -> list[dict[str, Any]]:
        arguments = {**filters.arguments, "after": after, **({"order": "newest"} if newest else {})}
        letters = [letter async for page in pages.letters(mq, arguments, limit) for letter in page]
        if not letters:
            await require_queue(mq, filters.queue)
        return letters

    found = call(url, timeout, work)
    out.emit_many(found, letter_table(found))
    if len(found) == limit:
        out.note(f"{limit} shown; there may be more: --after {found[-1]['dead_id']}", style="dim")


@app.command()
def groups(
    queue: FromQueue = None,
    reason: ForReason = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number.")] = 100,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Count dead letters by queue, reason and error. Ids and numbers in the errors are ignored."""
    given = filters_of(queue, reason).arguments

    async def work(mq: Client) -> list[dict[str, Any]]:
        return [group async for page in pages.groups(mq, given, limit) for group in page]

    found = call(url, timeout, work)
    out = Output(json=json)
    out.emit_many(found, group_table(found))
    if len(found) == limit:
        out.note(f"{limit} shown; there may be more: --limit {10 * limit}", style="dim")


@app.command()
@filtered
def preview(
    filters: Filters,
    to: Annotated[
        str | None, typer.Option("--to", metavar="QUEUE", help="As for `dlq replay`.", autocompletion=queue_names)
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=0.1, help="As for `dlq replay`.")] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Say which dead letters fit, how many, and where a replay would put them. Changes nothing."""
    more = {name: value for name, value in (("to", to), ("rate", rate)) if value is not None}
    found = ask(url, timeout, "dlq.preview", **filters.arguments, **more)
    Output(json=json).emit(found, preview_sheet(found))


@app.command()
def show(
    dead_id: Annotated[int, typer.Argument(metavar="ID", min=0, max=NUMBER_MAX, help="Dead id, as `dlq ls` lists it.")],
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            "-q",
            help="The queue in which it died; required of users who may not inspect all queues.",
            autocompletion=queue_names,
        ),
    ] = None,
    decode: Annotated[
        str | None,
        typer.Option("--decode", metavar="CODING", help="Decompress the payload first (256 KiB of it): gzip or br."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print only the bytes of the payload.")] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Show one dead letter with its payload."""
    if decode not in (None, "gzip", "br"):
        raise Usage(f"--decode is {decode!r}; choose gzip or br")

    async def work(mq: Client) -> dict[str, Any] | None:
        return await pages.show(mq, dead_id, queue, decode=decode)

    letter = call(url, timeout, work)
    if letter is None:
        place = "" if queue is None else f" of queue {queue!r}"
        raise MessageNotFound(
            f"there is no dead letter {dead_id}{place}; `vibemq-admin dlq ls` lists the existing ones"
        )
    if raw:
        if letter.get("truncated"):
            raise MessageTooLarge(
                f"the payload has more than {letter['size']:,} bytes once it is opened; leave --decode out, and open "
                "the bytes with another program"
            )
        sys.stdout.buffer.write(payload_bytes(letter))
        return
    Output(json=json).emit(letter, letter_sheet(letter))


@app.command()
@filtered
def purge(
    filters: Filters,
    everything: Annotated[bool, typer.Option("--all", help="Select all dead letters, without a filter.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Maximum number, oldest first.")] = None,
    at_most: AtMost = None,
    note: Note = "",
    yes: Yes = False,
    detach: Detach = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Delete dead letters. The broker does it as a job, which continues when this command is interrupted."""
    if not filters and not everything:
        raise Usage("say which: a filter such as --queue or --reason, or --all")
    out = Output(json=json)

    async def counted(mq: Client) -> tuple[int, int, int]:
        found, most = await pages.count(mq, filters.arguments, limit)
        if not most:
            await require_queue(mq, filters.queue)
        return found, most, await pages.newest_id(mq, filters.queue)

    count, most, newest = call(url, timeout, counted)
    if dry_run or not most:
        verb = "would be deleted" if dry_run else "deleted"
        out.emit({"count": count, "dry_run": dry_run}, f"{count_text(count, 'dead letter')} {verb}")
        return
    least = "" if most == count else f"at least {count:,} and at most "
    out.confirm(f"Delete {least}{filters.chosen(most)}?", yes=yes)
    # What dies while somebody is asked is not deleted, also when others take letters meanwhile.
    meant = filters.arguments | {"to_id": min(newest, filters.arguments.get("to_id", newest))}
    more = {"limit": most} | ({} if at_most is None else {"at_most": at_most})
    job = ask(url, timeout, "job.start", kind="purge_dead", filter=meant, note=note, **more)
    if detach:
        out.emit(job, f"job {job['job']} deletes {count_text(count, 'dead letter')}")
        return
    ended = follow(url, timeout, job, out)
    require_done(ended)
    told = {"count": ended["done"], "dry_run": False, "job": ended["job"]}
    out.emit(told, f"{count_text(ended['done'], 'dead letter')} deleted")
    require_all_read(ended["job"], ended["damaged"])
