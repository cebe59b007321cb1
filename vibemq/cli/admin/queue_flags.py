"""The options of a queue as command-line options, and back to the names that the broker knows."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer

from vibemq.cli.flags import duration_option, pair_option, read_by, size_option, unread
from vibemq.cli.values import duration_ms, key_values, size_bytes, whole_number
from vibemq.errors import ConfigInvalid, InvalidOptions
from vibemq.model.options import options_from_dict, options_in_words, options_to_dict, spelled_out

Result = TypeVar("Result")


def _text(name: str, help_text: str) -> Any:
    return Annotated[str | None, typer.Option(name, help=help_text)]


def _count(name: str, help_text: str) -> Any:
    return Annotated[int | None, typer.Option(name, min=0, help=help_text)]


def _duration(name: str, help_text: str) -> Any:
    return Annotated[int | None, duration_option(name, help_text)]


def _size(name: str, help_text: str) -> Any:
    return Annotated[int | None, size_option(name, help_text)]


def retention_limit(text: str | tuple[str, int]) -> tuple[str, int]:
    """`7d` or `1h30m` as an age, `1GiB` as bytes: the queue option it stands for, and its value.

    A bare number is refused: it could be either.
    """
    if isinstance(text, tuple):
        return text
    for option, read in (("retain_ms", duration_ms), ("retain_bytes", size_bytes)):
        try:
            if not text.strip().isdecimal():
                return option, read(text)
        except ConfigInvalid:
            continue
    raise ConfigInvalid(f"{text!r} is not a limit; write 7d or 1h30m for an age, 64MiB or 1GiB for a size")


_RETAIN = Annotated[
    list[Any] | None,
    typer.Option(
        "--retain",
        parser=unread,
        callback=read_by(retention_limit),
        metavar="AGE|SIZE",
        help="Log retention: maximum age (7d) or maximum size (1GiB) of messages; may be given twice, for both.",
    ),
]

FIXED: dict[str, Any] = {
    "mode": _text(
        "--mode",
        "round-robin (default): each message to one consumer. broadcast: every message to every subscriber, and kept "
        "so that it can be read again (fan-out-with-ack with log retention). Also fan-out-with-ack, "
        "fan-out-without-ack, priority-based.",
    ),
    "retention": _text(
        "--retention", "settled (default), or log: messages are kept, so that groups can read them again."
    ),
}
"""Options that cannot be changed after `create`, by the broker's names."""

CHANGEABLE: dict[str, Any] = {
    "durability": _text("--durability", "strong (default), weak, async or transient."),
    "overflow": _text("--overflow", "drop-newest (default), drop-oldest, block-publisher or redirect-to-dlq."),
    "max_messages": _count("--max-messages", "Maximum number of waiting messages; 0 = no limit."),
    "max_bytes": _size("--max-bytes", "Maximum size of the waiting messages; 0 = no limit."),
    "message_ttl_ms": _duration("--ttl", "Messages older than this expire; 0 = no limit."),
    "dead_letter": Annotated[
        bool | None,
        typer.Option(
            "--dead-letter/--no-dead-letter", help="Failed messages become dead letters, or are dropped and counted."
        ),
    ],
    "max_attempts": _count("--max-attempts", "Failed attempts until a message becomes a dead letter; 0 counts as 1."),
    "ack_timeout_ms": _duration("--ack-timeout", "How long a consumer may hold a message; 0 = no limit."),
    "retry_base_ms": _duration(
        "--retry-base", "Delay after the first failure; doubles with each further one. 0 = at once."
    ),
    "retry_max_ms": _duration("--retry-max", "Longest delay after a failure; 0 = no limit."),
    "lost_connection": _text("--lost-connection", "After a lost connection: fail (count a failed attempt) or release."),
    "hold_behind_failed": Annotated[
        bool | None,
        typer.Option(
            "--hold-behind-failed/--no-hold-behind-failed",
            help="A message that has failed holds up those behind it until its backoff is over.",
        ),
    ],
    "highest_priority_only": Annotated[
        bool | None,
        typer.Option(
            "--highest-priority-only/--no-highest-priority-only",
            help="Fan-out: of subscribers without a group name, only those of the highest priority receive.",
        ),
    ],
    "dedup_window_ms": _duration("--dedup-window", "How long a dedup id is stored; 0 = not at all."),
    "retain": _RETAIN,
    "retain_messages": _count("--retain-messages", "Log retention: maximum number of messages; 0 = no limit."),
    "retain_bytes": _size("--retain-bytes", "Log retention: maximum size of messages; 0 = no limit."),
    "expires_ms": _duration(
        "--expires", "The queue is deleted when nobody has consumed from it nor declared it for so long; 0 = never."
    ),
    "auto_delete": Annotated[
        bool | None,
        typer.Option("--auto-delete/--no-auto-delete", help="The queue is deleted when its last consumer has left."),
    ],
    "option": Annotated[
        list[str] | None,
        pair_option("--option", metavar="NAME=VALUE", text="Any queue option, by its name in `queue info --json`."),
    ],
}
"""Options that can be changed later."""


def with_queue_options(flags: dict[str, Any]) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Give a command these flags in the place of its parameter `options`, in which it gets those that were given.

    Typer reads a command's parameters from its signature, so the signature is what is changed.
    """

    def decorate(command: Callable[..., Result]) -> Callable[..., Result]:
        signature = inspect.signature(command)
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in flags.items()
        ]

        @wraps(command)
        def taking_flags(**values: Any) -> Result:
            given = {name: values.pop(name) for name in flags}
            return command(options=chosen(**given), **values)

        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in signature.parameters.items()
            if name != "options"
        ]
        # The queue's name, which every command has first, then the options of the queue, then those of the command.
        taking_flags.__signature__ = signature.replace(parameters=[own[0], *added, *own[1:]])  # type: ignore[attr-defined]
        return taking_flags

    return decorate


def chosen(
    option: list[str] | None = None, retain: list[tuple[str, int]] | None = None, **flags: Any
) -> dict[str, Any]:
    """The options that were given, checked, under the broker's names.

    Raises:
        InvalidOptions: with the option that cannot be.
    """
    options = {name: value for name, value in flags.items() if value is not None}
    for name, limit in retain or ():
        if name in options:
            raise InvalidOptions(f"{name} is given twice; one age and one size at most")
        options[name] = limit
    options.update({name.replace("-", "_"): _plain(value) for name, value in key_values(option).items()})
    if options.get("exclusive"):
        raise InvalidOptions(
            "an exclusive queue is deleted with the connection that creates it, which is here that of this command; "
            "create it in the program that uses it, or use auto_delete or expires_ms"
        )
    # A RedirectToDlq given to `change` may lean on what the queue has already; the broker judges combinations.
    for name, value in options.items():
        if name not in ("overflow", "dead_letter"):
            options_from_dict({name: value})
    if "overflow" in options:
        options_from_dict({"overflow": options["overflow"], "dead_letter": True})
    return options


def applied(options: dict[str, Any]) -> dict[str, Any]:
    """What the broker makes of these options, with the names of choices. `broadcast` stands for three of them."""
    given = dict(options)
    if "overflow" in given:
        given.setdefault("dead_letter", True)
    after = options_in_words(options_to_dict(options_from_dict(given)))
    return {name: after[name] for name in spelled_out(options)}


def named(queue: dict[str, Any]) -> dict[str, Any]:
    """A queue as the broker describes it, its options with the names of choices: what `--json` prints."""
    return {**queue, "options": options_in_words(queue["options"])} if queue.get("options") else queue


def _plain(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "yes", "on"):
        return True
    if lowered in ("false", "no", "off"):
        return False
    if lowered in ("none", "null"):
        return None
    number = whole_number(text)
    return text if number is None else number
