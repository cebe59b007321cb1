"""Which dead letters: the filters that every `dlq` verb shares, and the options of the verbs that start jobs."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Annotated, Any

import typer

from vibemq.cli.exits import Usage
from vibemq.cli.flags import duration_option, ids_option, pair_option, queue_names
from vibemq.cli.output import count_text
from vibemq.cli.values import id_runs, key_values
from vibemq.model.quantities import NUMBER_MAX
from vibemq.model.records import Reason

_REASONS = tuple(reason.name.lower() for reason in Reason)

FromQueue = Annotated[
    str | None,
    typer.Option("--queue", "-q", help="Only dead letters of this queue.", autocompletion=queue_names),
]
ForReason = Annotated[
    str | None,
    typer.Option("--reason", help="Only dead letters with this reason: " + ", ".join(_REASONS) + "."),
]
OlderThan = Annotated[
    int | None, duration_option("--older-than", "Only dead letters that became so longer ago than this.")
]
NewerThan = Annotated[int | None, duration_option("--newer-than", "Only dead letters that became so within this time.")]
WithHeader = Annotated[
    list[str] | None,
    pair_option("--header", "-H", text="Only dead letters with this header; may be repeated."),
]
WithId = Annotated[
    list[str] | None,
    ids_option("--id", "Only these dead ids: 17, 20-25, or a comma list; may be repeated."),
]
WithFingerprint = Annotated[
    str | None,
    typer.Option("--fingerprint", metavar="HEX", help="Only dead letters with this error, as `dlq groups` names it."),
]
WithError = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only dead letters whose error contains this text.")
]
FromId = Annotated[
    int | None,
    typer.Option("--from-id", metavar="ID", min=0, max=NUMBER_MAX, help="Only this dead id and later ones."),
]
ToId = Annotated[
    int | None,
    typer.Option("--to-id", metavar="ID", min=0, max=NUMBER_MAX, help="Only this dead id and earlier ones."),
]
Replayed = Annotated[
    bool | None,
    typer.Option("--replayed/--not-replayed", help="Only dead letters that have, or have not, been replayed before."),
]
AtMost = Annotated[
    int | None, typer.Option("--at-most", min=0, metavar="N", help="Fail, and change nothing, if more than N fit.")
]
Note = Annotated[str, typer.Option("--note", help="Why; kept with the job.")]
Detach = Annotated[
    bool, typer.Option("--detach", help="Print the job and leave; `job follow` shows what becomes of it.")
]
WithMessageId = Annotated[str | None, typer.Option("--message-id", help="Only dead letters with this message id.")]


@dataclass(frozen=True, slots=True)
class Filters:
    """What was asked for, under the names of the admin verbs."""

    arguments: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.arguments)

    @property
    def queue(self) -> str | None:
        """The one queue whose dead letters are meant; None = of all queues."""
        return self.arguments.get("queue")

    def chosen(self, count: int) -> str:
        """So many dead letters that fit, in words."""
        letters = count_text(count, "dead letter")
        if not self.arguments:
            return letters
        return f"{letters} with " + ", ".join(f"{name}={_short(value)}" for name, value in self.arguments.items())


def filters_of(
    queue: FromQueue = None,
    reason: ForReason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    header: WithHeader = None,
    ids: WithId = None,
    message_id: WithMessageId = None,
    fingerprint: WithFingerprint = None,
    error: WithError = None,
    from_id: FromId = None,
    to_id: ToId = None,
    replayed: Replayed = None,
) -> Filters:
    """Read the options. `filtered` takes them from this signature.

    Raises:
        Usage: an unknown reason.
        ConfigInvalid: a header without `=`, an id that is none.
    """
    given = {
        "queue": queue,
        "reason": _reason(reason),
        "older_than_ms": older_than,
        "newer_than_ms": newer_than,
        "header": key_values(header) or None,
        "ids": id_runs(ids) if ids else None,
        "message_id": message_id,
        "fingerprint": fingerprint,
        "error": error,
        "from_id": from_id,
        "to_id": to_id,
        "replayed": replayed,
    }
    return Filters({name: value for name, value in given.items() if value is not None})


def filtered(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `filters_of` where its parameter `filters` stands, which gets their value.

    Typer reads a command's parameters from its signature, so the signature is what is changed.
    """
    signature = inspect.signature(command)
    options = inspect.signature(filters_of).parameters

    @wraps(command)
    def with_filters(**values: Any) -> None:
        given = {name: values.pop(name) for name in options}
        command(filters=filters_of(**given), **values)

    parameters: list[inspect.Parameter] = []
    for own in signature.parameters.values():
        parameters += options.values() if own.name == "filters" else [own]
    with_filters.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    return with_filters


def _reason(text: str | None) -> str | None:
    if text is None:
        return None
    name = text.strip().lower().replace("-", "_")
    if name not in _REASONS:
        raise Usage(f"--reason is {text!r}; choose one of {', '.join(_REASONS)}")
    return name


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:39] + "…"
