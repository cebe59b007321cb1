"""`vibemq-admin definitions`: the queues of a broker with their options, as a file, and from one."""

import json as json_format
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from vibemq.cli.exits import PartlyDone, Usage
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, STANDARD, DryRun, Json, Out, Timeout, Url, Yes, defaults_to
from vibemq.cli.online import call
from vibemq.cli.output import Output, content_of, count_text, is_standard, table, whole_file
from vibemq.client import Client
from vibemq.errors import ClientError, StorageFailed, VibeMQError
from vibemq.model.options import is_own_queue, options_in_words

app = typer.Typer(help="Queues of a running broker with their options, as a file.", no_args_is_help=True)

PAGE_QUEUES = 100
BATCH_QUEUES = 1_000
BATCH_BYTES = 512 * 1024
"""Most of one request; a larger file goes in several."""


@app.command("export")
def export(
    file: Out = STANDARD,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Write the queues that you may inspect, with their options, to a file of JSON; messages are not in it.

    The broker's own queues and exclusive ones are left out.

    Example: vibemq-admin definitions export --out queues.json
    """
    out = Output(json=json)
    out.confirm_overwrite(file, yes=yes)

    async def work(mq: Client) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = None
        while True:
            page = await mq.admin("queue.list", limit=PAGE_QUEUES, **({} if after is None else {"after": after}))
            found += (
                {"queue": info["name"], "options": options_in_words(info["options"])}
                for info in page["queues"]
                # Of a queue that may not be inspected only the name is told.
                if not info.get("restricted") and not info["options"]["exclusive"] and not is_own_queue(info["name"])
            )
            after = page["next"]
            if after is None:
                return found

    queues = call(url, timeout, work)
    with whole_file(file) as stream:
        stream.write(json_format.dumps({"queues": queues}, indent=1, ensure_ascii=False).encode() + b"\n")
    if not is_standard(file):
        text = f"{count_text(len(queues), 'queue')} written to {file}"
        out.emit({"count": len(queues), "file": str(file)}, text)


@app.command("import")
def import_file(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="[FILE]",
            help="File of `definitions export`; - is stdin." + defaults_to("stdin"),
            show_default=False,
        ),
    ] = STANDARD,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Create the queues of a file that are missing. One that is there with other options is left as it is, and listed.

    The broker checks all of them before it creates the first.

    Example: vibemq-admin definitions import queues.json --dry-run
    """
    out = Output(json=json)
    batches = list(_batches(_read(file)))

    async def work(mq: Client) -> dict[str, Any]:
        checked: list[dict[str, Any]] = []
        if dry_run or len(batches) > 1:
            checked = [await mq.admin("definitions.import", queues=one, dry_run=True) for one in batches]
        return _together(checked if dry_run else await _create(mq, batches, checked))

    told = call(url, timeout, work)
    out.emit(told, _shown(told))


async def _create(mq: Client, batches: list[list[Any]], checked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Raises PartlyDone: some of the queues were created."""
    done: list[dict[str, Any]] = []
    for number, one in enumerate(batches):
        count = sum(told["count"] for told in done)
        try:
            done.append(await mq.admin("definitions.import", queues=one))
        except VibeMQError as error:
            if not count:
                raise
            raise _partly(count, _why(error, checked[number]["created"])) from error
        if failed := done[-1]["failed"]:
            raise _partly(count + done[-1]["count"], _was_not(failed["queue"], failed["message"]))
    return done


def _why(error: VibeMQError, planned: list[str]) -> str:
    """What became of a request that was refused as a whole. `planned`: the queues that it was to create."""
    if planned and not isinstance(error, ClientError | StorageFailed):
        return _was_not(planned[0], str(error))
    first = f", from {planned[0]!r} on" if planned else ""
    return f"of the next request{first}, nobody knows: {error}"


def _was_not(queue: str, why: str) -> str:
    return f"queue {queue!r} was not: {why}"


def _partly(count: int, why: str) -> PartlyDone:
    return PartlyDone(
        f"{count_text(count, 'queue')} created; {why}; "
        "repair that and import the file again: queues that are there stay as they are"
    )


def _read(file: Path) -> list[Any]:
    """Raises Usage."""
    try:
        text = content_of(file)
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Usage(f"{file} is no JSON: {error}; `definitions export` writes such a file") from None
    queues = found.get("queues") if isinstance(found, dict) else None
    if not isinstance(queues, list):
        raise Usage(f'{file} is no list of queues: it must be {{"queues": [{{"queue": …, "options": …}}]}}')
    seen: set[str] = set()
    for one in queues:
        name = one.get("queue") if isinstance(one, dict) else None
        # The broker says what is wrong with those that have none.
        if isinstance(name, str):
            if name in seen:
                raise Usage(f"{file} has queue {name!r} twice; remove one of them")
            seen.add(name)
    return queues


def _batches(queues: list[Any]) -> Iterator[list[Any]]:
    batch: list[Any] = []
    size = 0
    for one in queues:
        length = len(orjson.dumps(one))
        if batch and (len(batch) == BATCH_QUEUES or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += length
    yield batch


def _together(told: list[dict[str, Any]]) -> dict[str, Any]:
    lists = {name: [item for one in told for item in one[name]] for name in ("created", "unchanged", "different")}
    return {
        **lists,
        "failed": told[-1]["failed"],
        "count": len(lists["created"]),
        "dry_run": told[-1]["dry_run"],
    }


def _shown(told: dict[str, Any]) -> Any:
    rows: list[tuple[object, ...]] = [
        *((queue, "would be created" if told["dry_run"] else "created", "") for queue in told["created"]),
        *((queue, "unchanged", "") for queue in told["unchanged"]),
        *((one["queue"], "different", _difference(one["options"])) for one in told["different"]),
    ]
    return table(("queue", "what", "options here → in the file"), rows, whole=True)


def _difference(options: dict[str, Any]) -> str:
    here, wanted = (
        options_in_words({name: one[which] for name, one in options.items()}) for which in ("current", "wanted")
    )
    return ", ".join(f"{name}: {_word(here[name])} → {_word(wanted[name])}" for name in options)


def _word(value: Any) -> str:
    return json_format.dumps(value, ensure_ascii=False)
