"""`vibemq-admin reload`: a running broker reads its settings again."""

from typing import Any

from vibemq.cli.exits import plain
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, Json, Timeout, Url
from vibemq.cli.online import ask
from vibemq.cli.output import Lines, Output


def reload_settings(url: Url = DEFAULT_URL, timeout: Timeout = DEFAULT_TIMEOUT, json: Json = False) -> None:
    """Have a running broker read its settings and TLS files again, as SIGHUP does. Exit code 2 if it refuses them.

    Then nothing has changed, and the error names the file and the reason. Settings that need a restart stay as they
    were and are listed.

    Example: vibemq-admin reload
    """
    found = ask(url, timeout, "broker.reload")
    Output(json=json).emit(found, Lines("\n".join(_lines(found)) + "\n"))


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [
        *(f"changed: {name}" for name in found["changed"]),
        *(f"TLS file read again: {path}" for path in found["certificates"]),
        *(f"needs a restart: {name}" for name in found["needs_restart"]),
        *(f"user of the store hidden by the settings: {name}" for name in found["hidden_users"]),
    ]
    if not lines:
        lines.append("nothing is different")
    if found["files"] is None:
        lines.append("the program that embeds the broker made its settings: there is no file to read them from again")
    elif not found["files"]:
        lines.append("the broker has no settings file; its environment and command line cannot change while it runs")
    return list(map(plain, lines))
