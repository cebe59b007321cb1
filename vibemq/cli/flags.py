"""Options that mean the same on every verb."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.models import ArgumentInfo

from vibemq.cli.exits import Usage, root_of
from vibemq.cli.values import duration_ms, folder, id_runs, key_value, seconds, size_bytes, url_with_tls
from vibemq.errors import ConfigInvalid, InvalidPayload

DEFAULT_URL = "vibemq://localhost:2925"
DEFAULT_TIMEOUT = 10.0
COMPLETING_S = 2.0
COMPLETED_MAX = 200

Json = Annotated[
    bool, typer.Option("--json", help="Machine-readable output: one JSON object, or one per line for lists.")
]
Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="VIBEMQ_URL",
        help=r"The broker: vibemq://\[user:password@]host\[:port]; a token for it may stand in VIBEMQ_ACCESS_TOKEN.",
    ),
]


def unread(text: Any) -> Any:
    """A parser that leaves the reading to `read_by`: a parser is not told which option it reads."""
    return text


def read_by(read: Callable[[str], Any]) -> Callable[..., Any]:
    """A callback that reads an option's text. What it refuses is told with the option, and the variable it is from."""

    def callback(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
        try:
            if isinstance(value, list | tuple):
                return [read(part) for part in value]
            return read(value) if isinstance(value, str) else value
        except ConfigInvalid as error:
            raise ConfigInvalid(f"{_place(context, parameter)} is not valid: {error}") from error

    return callback


def _place(context: typer.Context, parameter: typer.CallbackParam) -> str:
    """As `vibemq.settings.place_of` names a setting."""
    source = context.get_parameter_source(parameter.name or "")
    variable = parameter.envvar if source is not None and source.name == "ENVIRONMENT" else None
    return f"option {parameter.opts[0]}{f' (from environment variable {variable})' if variable else ''}"


def _readable_file(path: str) -> str:
    try:
        Path(path).open("rb").close()
    except OSError as error:
        raise ConfigInvalid(
            f"the file {path} cannot be read ({error.strerror}); correct the path, or the file's owner or mode"
        ) from error
    return path


def defaults_to(text: str) -> str:
    """The end of an option's help. Typer would write a default that is not the parameter's in parentheses."""
    return rf" [dim]\[default: {text}][/dim]" if text else ""


def timeout_option(default: str, *, variable: str | None = None) -> Any:
    """`--timeout DURATION`, whose value arrives in seconds; `default` is the parameter's, with its unit."""
    help_text = "How long to wait for an answer (10s, 500ms)." + defaults_to(default)
    return typer.Option(
        "--timeout",
        parser=unread,
        callback=read_by(seconds),
        metavar="DURATION",
        help=help_text,
        show_default=False,
        envvar=variable,
    )


Timeout = Annotated[float, timeout_option("10s", variable="VIBEMQ_TIMEOUT")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would change, and change nothing.")]


def data_dir_option(text: str, *, variable: str | None = None) -> Any:
    """`--data-dir DIR`, whose value arrives as a path."""
    return typer.Option(
        "--data-dir", parser=unread, callback=read_by(folder), metavar="DIR", envvar=variable, help=text
    )


DataDir = Annotated[Path, data_dir_option("The broker's data directory.", variable="VIBEMQ_DATA_DIR")]
Storage = Annotated[
    str | None,
    typer.Option("--storage", metavar="NAME", help="Storage provider; default: that of the store in the directory."),
]

# -- names that a shell completes -----------------------------------------------------------------------------------
# Those of the broker of the command line. Without an answer none, in silence: a shell asks while somebody types, who
# would see whatever goes wrong in the middle of the line.


def user_names(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, "user.list", "users", "user")


def queue_names(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, "queue.list", "queues", "name")


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Of the queue that stands before it."""
    queue = ctx.params.get("queue")
    return _names(ctx, incomplete, "group.list", "groups", "group", queue=queue) if queue else []


def _names(ctx: typer.Context, incomplete: str, operation: str, items: str, key: str, **arguments: Any) -> list[str]:
    # A command that is not completed needs none of them.
    from vibemq.cli.exits import root_of
    from vibemq.cli.online import call
    from vibemq.errors import VibeMQError

    url = ctx.params.get("url")
    if not isinstance(url, str):
        return []
    place = {"after": _before(incomplete)} if incomplete else {}
    try:
        answer = call(
            url_with_tls(url, ctx.params),
            COMPLETING_S,
            _asking(operation, {**arguments, **place, "limit": COMPLETED_MAX}),
        )
    except BaseException as raised:
        if isinstance(root_of(raised), VibeMQError | OSError):
            return []
        raise
    listed: list[Mapping[str, Any]] = answer if isinstance(answer, list) else (answer or {}).get(items, [])
    names = (str(item.get(key, "")) for item in listed)
    return [name for name in names if name.startswith(incomplete) and name.isprintable() and name]


def _asking(operation: str, arguments: dict[str, Any]) -> Callable[[Any], Awaitable[Any]]:
    async def ask(mq: Any) -> Any:
        return await mq.admin(operation, **arguments)

    return ask


def _before(start: str) -> str:
    """Text that comes before everything that starts so, and behind most of what does not. Lists are in order."""
    return start[:-1] + chr(ord(start[-1]) - 1) + "\x7f" if start[-1] > "\x00" else start[:-1]


Out = Annotated[
    Path,
    typer.Option(
        "--out", "-o", metavar="FILE", help="File to write; - is stdout." + defaults_to("stdout"), show_default=False
    ),
]
STANDARD = Path("-")
"""Stdin or stdout in place of a file."""
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.", autocompletion=queue_names)]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.", autocompletion=group_names)]
User = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.", autocompletion=user_names)]


def duration_option(name: str, text: str, *, default: str = "", read: Callable[[str], int] = duration_ms) -> object:
    """A `--name DURATION` option whose value arrives in milliseconds; `default` is the parameter's, with its unit."""
    callback = read_by(read)
    return typer.Option(
        name, parser=unread, callback=callback, metavar="DURATION", help=text + defaults_to(default), show_default=False
    )


def size_option(name: str, text: str, *, default: str = "") -> object:
    """A `--name SIZE` option whose value arrives in bytes; `default` as in `duration_option`."""
    callback = read_by(size_bytes)
    return typer.Option(
        name, parser=unread, callback=callback, metavar="SIZE", help=text + defaults_to(default), show_default=False
    )


def _pair(text: str) -> str:
    key_value(text)
    return text


def pair_option(*names: str, text: str, metavar: str = "KEY=VALUE") -> Any:
    """An option of pairs, which arrive as they were written."""
    return typer.Option(*names, metavar=metavar, help=text, callback=read_by(_pair))


def _ids(text: str) -> str:
    id_runs([text])
    return text


def ids_option(name: str, text: str) -> Any:
    """An option of ids, which arrive as they were written."""
    return typer.Option(name, metavar="ID", help=text, callback=read_by(_ids))


def _tls_option(name: str, metavar: str, variable: str, text: str) -> Any:
    callback = read_by(_readable_file) if metavar == "FILE" else None
    option = typer.Option(name, metavar=metavar, envvar=variable, help=text, rich_help_panel="TLS", callback=callback)
    return Annotated[str | None, option]


TLS: dict[str, tuple[Any, Any]] = {
    # parameter: (annotation, default); its key of the connection string stands in TLS_KEYS
    "tls_ca": (
        _tls_option("--tls-ca", "FILE", "VIBEMQ_TLS_CA", "Certificate authorities (PEM) to trust."),
        None,
    ),
    "tls_cert": (
        _tls_option(
            "--tls-cert", "FILE", "VIBEMQ_TLS_CERT", "Certificate (PEM) of this client, for a broker that requires one."
        ),
        None,
    ),
    "tls_key": (
        _tls_option("--tls-key", "FILE", "VIBEMQ_TLS_KEY", "Key (PEM) of the certificate, if it is in another file."),
        None,
    ),
    "tls_server_name": (
        _tls_option(
            "--tls-server-name",
            "NAME",
            "VIBEMQ_TLS_SERVER_NAME",
            "The name in the broker's certificate, if it is not the host of --url.",
        ),
        None,
    ),
    "tls_insecure": (
        Annotated[
            bool,
            typer.Option(
                "--tls-insecure", help="Use TLS and accept any certificate; only for tests.", rich_help_panel="TLS"
            ),
        ],
        False,
    ),
}


ARGUMENT = re.compile(r"argument (\w+)(?:\[\d+\])* of [a-z_.]+ (.*)", re.DOTALL)


def refused_option(error: BaseException, signature: inspect.Signature) -> Usage | None:
    """A broker's refusal of an argument, told with the option or the argument of the command line that it comes from;
    None: it is no such refusal."""
    found = ARGUMENT.fullmatch(str(error)) if isinstance(error, InvalidPayload) else None
    if found is None:
        return None
    wanted = f"--{found[1].removesuffix('_ms').replace('_', '-')}"
    rule = found[2].partition("; it means: ")[0]
    for parameter in signature.parameters.values():
        for mark in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(mark, ArgumentInfo) and parameter.name == found[1] and mark.metavar:
                return Usage(f"{mark.metavar} {rule}")
            # In `Annotated`, the first name of an option stands where its default would.
            names = (getattr(mark, "default", None), *(getattr(mark, "param_decls", None) or ()))
            if wanted not in names:
                continue
            return Usage(f"{wanted} {rule}")
    return None


def connecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that has a `url` the options of TLS, which reach it as keys of that url.

    Typer reads a command's parameters from its signature, so the signature is what is changed.
    """
    signature = inspect.signature(command)
    if "url" not in signature.parameters or "tls_ca" in signature.parameters:
        return command
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, (annotation, default) in TLS.items()
    ]

    @wraps(command)
    def with_tls(**values: Any) -> Any:
        given = {name: values.pop(name) for name in TLS}
        if values["url"] is not None:
            values["url"] = url_with_tls(values["url"], given)
        try:
            return command(**values)
        except Exception as raised:
            refused = refused_option(root_of(raised), signature)
            if refused is None:
                raise
            raise refused from None

    own = [parameter.replace(kind=keyword) for parameter in signature.parameters.values()]
    with_tls.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    return with_tls
