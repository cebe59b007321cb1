"""`vibemq serve`: the broker."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vibemq.cli.flags import data_dir_option

if TYPE_CHECKING:
    from vibemq.config import Listener, Settings


def serve(
    data_dir: Annotated[
        Path | None,
        data_dir_option("Directory for all data of the broker; default: that of the settings, else ./vibemq-data."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="Settings in TOML; command-line options override them. Default: $VIBEMQ_CONFIG, else"
            " /etc/vibemq/vibemq.toml if it exists.",
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen on, of every listener and HTTP.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65_535, help="Native protocol; 0 = any free port, which is printed."),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            "--http-port", min=0, max=65_535, help="HTTP API, console, health and metrics; 0 = any free port."
        ),
    ] = None,
    http: Annotated[
        bool | None,
        typer.Option("--http/--no-http", help="Whether to serve the HTTP API, the console, health and metrics."),
    ] = None,
    storage: Annotated[
        str | None, typer.Option("--storage", metavar="NAME", help="Storage provider: lmdb, sqlite or memory.")
    ] = None,
    log_level: Annotated[str | None, typer.Option("--log-level", help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option("--log-format", help="text or json.")] = None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    Prints one JSON line per listener on stdout when it is ready; logs go to stderr. Every setting can also come from a
    TOML file or from environment variables (VIBEMQ_DATA_DIR, VIBEMQ_AUTH__TOKEN, …). Listeners of
    other protocols (omq, blazingmq, eventmesh, eventmesh-http) are set in the settings file. A terminal
    that is closed does not end the broker: after SIGHUP it reads its settings again.

    Example: vibemq serve --data-dir /var/lib/vibemq --port 2925
    """
    # Imported late, here and below: `vibemq pub` need not load the whole server.
    from vibemq.settings import Loaded, SettingsReader, check_plugins

    overrides = {
        "data_dir": data_dir,
        "storage": {"provider": storage},
        "http": {"host": host, "port": http_port, "enabled": http},
        "log": {"level": log_level, "format": log_format},
    }
    reader = SettingsReader(config, overrides)

    def read() -> Loaded:
        found = reader.read()
        changed = with_listener(found.settings, host, port)
        found.origins.update(given_of_listeners(changed.listeners, host, port))
        found = replace(found, settings=changed)
        check_plugins(found)
        return found

    loaded = read()
    from vibemq.server import app
    from vibemq.server.net.tls import check_tls_files

    def read_again() -> Loaded:
        again = read()
        check_tls_files(again)
        return again

    check_tls_files(loaded)
    reader.require(loaded.files)
    raise typer.Exit(app.serve(loaded, read_again, reader.require) or 0)


def given_of_listeners(listeners: Sequence["Listener"], host: str | None, port: int | None) -> dict[str, str]:
    """What `with_listener` has set, also to what it was, as origins of settings."""
    from vibemq.settings import COMMAND_LINE

    given = [f"listeners[{number}].host" for number in range(len(listeners)) if host is not None]
    if port is not None:
        given.append(f"listeners[{_native(listeners)}].port")
    return dict.fromkeys(given, COMMAND_LINE)


def _native(listeners: Sequence["Listener"]) -> int | None:
    """Which one is the first of VibeMQ's own protocol."""
    return next((number for number, listener in enumerate(listeners) if listener.protocol == "native"), None)


def with_listener(settings: "Settings", host: str | None, port: int | None) -> "Settings":
    """--host is for every listener, --port for the first native one (which is added when there is none)."""
    if host is None and port is None:
        return settings
    from vibemq.config import Listener

    listeners = list(settings.listeners)
    if host is not None:
        listeners = [listener.model_copy(update={"host": host}) for listener in listeners]
    if port is not None:
        native = _native(listeners)
        if native is None:
            listeners.append(Listener(port=port) if host is None else Listener(port=port, host=host))
        else:
            listeners[native] = listeners[native].model_copy(update={"port": port})
    return settings.model_copy(update={"listeners": tuple(listeners)})
