"""The options of a queue as command-line options, and back to the names that the broker knows."""

from typing import Annotated, Any

import typer

from vibemq.cli.flags import duration_option, size_option
from vibemq.cli.values import key_values
from vibemq.errors import InvalidOptions
from vibemq.model.options import QueueOptions, options_from_dict, options_to_dict

Mode = Annotated[
    str | None,
    typer.Option("--mode", help="round-robin, fan-out-with-ack, fan-out-without-ack or priority-based."),
]
Durability = Annotated[str | None, typer.Option("--durability", help="strong (default), weak, async or transient.")]
Retention = Annotated[
    str | None, typer.Option("--retention", help="settled (default), or log: kept, so that groups may read again.")
]
Overflow = Annotated[
    str | None,
    typer.Option("--overflow", help="drop-newest (default), drop-oldest, block-publisher or redirect-to-dlq."),
]
MaxMessages = Annotated[int | None, typer.Option("--max-messages", min=0, help="Most waiting messages; 0 = no limit.")]
MaxBytes = Annotated[int | None, size_option("--max-bytes", "Most waiting bytes; 0 = no limit.")]
Ttl = Annotated[int | None, duration_option("--ttl", "Messages older than this expire.")]
DeadLetter = Annotated[
    bool | None, typer.Option("--dead-letter/--no-dead-letter", help="Keep what fails, or drop and count it.")
]
MaxAttempts = Annotated[
    int | None, typer.Option("--max-attempts", min=1, help="Failed deliveries before a message is dead.")
]
AckTimeout = Annotated[int | None, duration_option("--ack-timeout", "How long a consumer may hold a message.")]
RetryBase = Annotated[int | None, duration_option("--retry-base", "First delay after a failure; doubles each time.")]
RetryMax = Annotated[int | None, duration_option("--retry-max", "Longest delay after a failure.")]
LostConnection = Annotated[
    str | None, typer.Option("--lost-connection", help="What a consumer's lost connection counts as: fail or release.")
]
DedupWindow = Annotated[int | None, duration_option("--dedup-window", "How long a dedup id is remembered.")]
Retain = Annotated[int | None, duration_option("--retain", "Log retention: drop what is older.")]
RetainMessages = Annotated[
    int | None, typer.Option("--retain-messages", min=0, help="Log retention: keep at most so many.")
]
RetainBytes = Annotated[int | None, size_option("--retain-bytes", "Log retention: keep at most so many bytes.")]
Extra = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="Any queue option by the name it has in `queue info`."),
]


def chosen(extra: list[str] | None, **flags: Any) -> dict[str, Any]:
    """The options that were given, checked, under the broker's names.

    Raises:
        InvalidOptions: with the option that cannot be.
    """
    options = {name: value for name, value in flags.items() if value is not None}
    options.update({name.replace("-", "_"): _plain(value) for name, value in key_values(extra).items()})
    # A RedirectToDlq given to `change` may lean on what the queue has already; the broker judges combinations.
    for name, value in options.items():
        if name not in ("overflow", "dead_letter"):
            options_from_dict({name: value})
    if "overflow" in options:
        options_from_dict({"overflow": options["overflow"], "dead_letter": True})
    return options


def described(options: dict[str, Any]) -> dict[str, Any]:
    """The broker's answer with names in place of the numbers of enums; unknown options pass untouched."""
    try:
        read = options_from_dict({k: v for k, v in options.items() if k in options_to_dict(QueueOptions())})
    except InvalidOptions:
        return options
    texts: dict[str, Any] = {}
    for name, value in options.items():
        member = getattr(read, name, value)
        texts[name] = member.name.lower().replace("_", "-") if hasattr(member, "name") else value
    return texts


def _plain(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "yes", "on"):
        return True
    if lowered in ("false", "no", "off"):
        return False
    if lowered in ("none", "null"):
        return None
    return int(text) if text.lstrip("-").isdecimal() else text
