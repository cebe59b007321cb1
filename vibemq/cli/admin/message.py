"""`vibemq-admin message`: single messages of a queue."""

import re
import sys
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from vibemq.cli.exits import CommandFailed, PartlyDone, Usage
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, DryRun, Json, Queue, Timeout, Url, Yes
from vibemq.cli.messages import message_sheet, payload_part
from vibemq.cli.online import ask, call, require_queue
from vibemq.cli.output import Output, count_text
from vibemq.cli.progress import tracked
from vibemq.cli.values import whole_number
from vibemq.client import Client
from vibemq.errors import ErrorCode, MessageNotFound, VibeMQError
from vibemq.model.quantities import NUMBER_MAX

app = typer.Typer(help="Single messages of a running broker's queues.", no_args_is_help=True)


LISTED_MAX = 1_000
"""Most messages of one command, as of one request."""
SHOWN_MAX = 10
PART_MAX = 262_144
SEQUENCES = re.compile(r"([0-9]+)(?:-([0-9]+))?")


@app.command()
def show(
    queue: Queue,
    sequence: Annotated[
        int, typer.Argument(metavar="SEQUENCE", min=0, max=NUMBER_MAX, help="Sequence, as `queue peek` shows it.")
    ],
    decode: Annotated[
        str | None, typer.Option("--decode", metavar="CODING", help="Decompress the payload first: gzip or br.")
    ] = None,
    offset: Annotated[int, typer.Option("--offset", min=0, help="First byte of the payload to show.")] = 0,
    length: Annotated[
        int, typer.Option("--length", min=0, max=PART_MAX, help="Maximum number of bytes of the payload to show.")
    ] = 65_536,
    raw: Annotated[bool, typer.Option("--raw", help="Print only these bytes of the payload.")] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Show one stored message and its state, without delivering it.

    Example: vibemq-admin message show orders 17
    """
    if decode not in (None, "gzip", "br"):
        raise Usage(f"--decode is {decode!r}; choose gzip or br")
    part = {"decode": decode, "offset": offset, "length": length}
    found = ask(url, timeout, "message.show", queue=queue, sequence=sequence, **part)
    if raw:
        sys.stdout.buffer.write(payload_part(found))
        return
    Output(json=json).emit(found, message_sheet(found))


@app.command("rm")
def remove(
    queue: Queue,
    messages: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID|SEQUENCE]...",
            help="Numbers and ranges (17, 20-25) are sequences, as `queue peek` shows them; anything else is an id.",
        ),
    ] = None,
    ids: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="An id, also if it looks like a number. Repeatable.")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Remove single waiting messages. A message that a consumer holds stays with it and is reported.

    An id removes every message that has it; to find it, the broker reads the queue.

    Example: vibemq-admin message rm orders 17 20-25 7f3c9a52-order

    Example: vibemq-admin message rm orders --id 4711 --dry-run
    """
    sequences, named = _chosen(messages or [], ids or [])
    out = Output(json=json)
    if not dry_run:
        out.confirm(f"Remove {_asked(sequences, named)} from queue {queue}?", yes=yes)

    async def work(mq: Client) -> Removals:
        await require_queue(mq, queue)
        with tracked("looked at", out, silent=json or not named) as progress:
            found = Removals(set(named))
            arguments: dict[str, Any] = {"sequences": sequences, "ids": named, "dry_run": dry_run}
            start: int | None = 0
            try:
                while start is not None:
                    answer = await mq.admin("message.remove", queue=queue, **arguments, **{"from": start})
                    found.take(answer)
                    start = answer["next"]
                    arguments |= {"sequences": [], "incarnation": answer["incarnation"]}
                    if start is not None:
                        progress(start, 0)
            except VibeMQError as error:
                if dry_run or not found.removed:
                    raise
                # Messages of a queue that was made anew were not meant.
                again = "" if error.code == ErrorCode.WRONG_INCARNATION else "; run the same command again for the rest"
                done = count_text(len(found.removed), "message")
                raise PartlyDone(f"{done} removed, then: {error}{again}") from error
            return found

    found = call(url, timeout, work)
    verb = "would be removed" if dry_run else "removed"
    text = f"{count_text(len(found.removed), 'message')} of queue {queue} {verb}"
    out.emit({"queue": queue, **found.described(), "dry_run": dry_run}, text)
    _complain(found, queue, verb)


@dataclass
class Removals:
    """What became of the messages that were named, over several answers of the broker."""

    unseen: set[str]
    """Ids that no message has had so far."""
    removed: list[int] = field(default_factory=list)
    in_flight: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)

    def take(self, answer: dict[str, Any]) -> None:
        for kept, name in ((self.removed, "removed"), (self.in_flight, "in_flight"), (self.missing, "missing")):
            kept += answer[name]
        self.unseen -= {message_id for _, message_id in answer["matched"]}

    def described(self) -> dict[str, Any]:
        return {
            "count": len(self.removed),
            "removed": self.removed,
            "in_flight": self.in_flight,
            "not_found": [*self.missing, *sorted(self.unseen)],
        }


def _chosen(messages: list[str], ids: list[str]) -> tuple[list[int], list[str]]:
    """Sequences and ids.

    Raises:
        Usage: none, too many, or a range that cannot be.
    """
    sequences: dict[int, None] = {}
    named = dict.fromkeys(ids)
    for text in messages:
        found = SEQUENCES.fullmatch(text)
        if found is None:
            named[text] = None
            continue
        first, last = whole_number(found[1]), whole_number(found[2] or found[1])
        if first is None or last is None or not 0 < first <= last <= NUMBER_MAX:
            named_so = repr(text[:40])
            raise Usage(f"{named_so} names no messages; sequences begin at 1, and the smaller one of a range is first")
        if last - first >= LISTED_MAX:
            raise Usage(f"{text!r} names more than {LISTED_MAX:,} messages; `queue purge` removes all that wait")
        sequences.update(dict.fromkeys(range(first, last + 1)))
    if not 0 < len(sequences) + len(named) <= LISTED_MAX:
        count = len(sequences) + len(named)
        raise Usage(f"{count:,} messages are named; name 1 to {LISTED_MAX:,}, by sequence (17, 20-25) or id")
    return list(sequences), list(named)


def _asked(sequences: list[int], ids: list[str]) -> str:
    parts = [count_text(len(sequences), "message")] if sequences else []
    if ids:
        parts.append(f"all messages with {'the id ' + ids[0] if len(ids) == 1 else f'one of {len(ids):,} ids'}")
    return " and ".join(parts)


def _complain(found: Removals, queue: str, verb: str) -> None:
    """
    Raises:
        CommandFailed: something that was named stays, or is not there.
    """
    wrong = []
    if found.in_flight:
        wrong.append(f"{_listed(found.in_flight)} with a consumer, which keeps what it holds until it is settled")
    not_found = [*found.missing, *sorted(found.unseen)]
    if not_found:
        wrong.append(f"{_listed(not_found)} not in queue {queue!r}, or not waiting any more")
    if not wrong:
        return
    sentence = "; ".join(wrong)
    if found.removed:
        raise PartlyDone(f"{len(found.removed):,} {verb}; {sentence}")
    raise CommandFailed(sentence) if found.in_flight else MessageNotFound(sentence)


def _listed(names: list[Any]) -> str:
    more = len(names) - SHOWN_MAX
    shown = ", ".join(map(str, names[:SHOWN_MAX])) + (f" and {more:,} more" if more > 0 else "")
    return f"{shown} {'is' if len(names) == 1 else 'are'}"
