"""`vibemq console`: opens the console of a broker in a browser, logged in where that is possible."""

import base64
import ipaddress
import json as json_text
import ssl
import urllib.error
import urllib.request
import webbrowser
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from vibemq.cli.exits import CommandFailed, ExitCode
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, Json, Timeout, Url
from vibemq.cli.online import settings_of
from vibemq.cli.output import Output
from vibemq.client.address import ClientSettings
from vibemq.errors import ErrorCode

DEFAULT_HTTP = "http://localhost:2926"


def console(
    http: Annotated[
        str, typer.Option("--http", envvar="VIBEMQ_HTTP_URL", metavar="URL", help="The broker's HTTP port.")
    ] = DEFAULT_HTTP,
    show: Annotated[bool, typer.Option("--print", help="Print the address and open nothing.")] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Open the broker's console in a browser.

    On the broker's own machine, with a user and a password in --url or a token in $VIBEMQ_ACCESS_TOKEN, the address is
    a link for one login: it works once, within a minute. Elsewhere the console asks for the login.

    Example: vibemq console --url vibemq://ada:secret@localhost
    """
    out = Output(json=json)
    base = http.rstrip("/")
    if urlsplit(base).scheme not in ("http", "https") or not urlsplit(base).hostname:
        raise CommandFailed(f"--http is {http}; give the URL of the broker's HTTP port, such as {DEFAULT_HTTP}")
    address = f"{base}/console/"
    require_console(address, timeout)
    authorization = authorization_of(settings_of(url))
    if authorization is not None and is_here(base):
        code = ask(f"{base}/api/v1/session/codes", authorization, timeout)["code"]
        # Behind # nothing goes to the broker, to its logs or to a proxy.
        address = f"{base}/console/login#code={code}"
    opened = not show and not json and webbrowser.open(address)
    out.emit({"url": address}, f"opened {base}/console/" if opened else address)


def authorization_of(settings: ClientSettings) -> str | None:
    if settings.token is not None:
        return f"Bearer {settings.token}"
    if settings.username is None:
        return None
    pair = f"{settings.username}:{settings.password or ''}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def is_here(base: str) -> bool:
    """Whether the URL leads to this machine, and to no other by a name that might."""
    host = urlsplit(base).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_console(address: str, timeout: float) -> None:
    """
    Raises:
        CommandFailed: nobody answers there, the broker serves no console, or refuses it.
    """
    # The front page is there for everybody who may see the log-in page.
    request = urllib.request.Request(address)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=timeout):  # noqa: S310
            return
    except urllib.error.HTTPError as error:
        with error:
            told = _sentence(error)
        if error.code == HTTPStatus.NOT_FOUND:
            told = "the broker serves no console there; set http.console and http.api to true, or correct --http"
        raise CommandFailed(f"{address} answers {error.code}" + (f": {told}" if told else "")) from None
    except (urllib.error.URLError, TimeoutError) as error:
        if isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
            # The browser may know an authority that this machine's Python does not.
            return
        raise _unreachable(address, error) from None


def _sentence(error: urllib.error.HTTPError) -> str:
    """The console refuses in plain text."""
    body = error.read(4096)
    if error.headers.get_content_type() == "text/plain":
        return body.decode(errors="replace").strip()
    return _problem(body)


def _unreachable(url: str, error: Exception) -> CommandFailed:
    return CommandFailed(
        f"no broker answers at {url}: {getattr(error, 'reason', error)}; give its HTTP port with --http",
        code=ErrorCode.UNREACHABLE,
        exit_code=ExitCode.UNREACHABLE,
    )


def ask(url: str, authorization: str, timeout: float) -> Any:
    """
    Raises:
        CommandFailed: nobody answers there, or the answer is a refusal.
    """
    request = urllib.request.Request(url, headers={"Authorization": authorization}, method="POST")  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
            return json_text.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            told = _problem(error.read())
        sentence = told or f"{url} answered {error.code}; it may be another program, or a broker without its console"
        raise CommandFailed(sentence, code=ErrorCode.AUTH_FAILED, exit_code=ExitCode.NOT_ALLOWED) from None
    except (urllib.error.URLError, TimeoutError) as error:
        raise _unreachable(url, error) from None


def _problem(body: bytes) -> str:
    try:
        told = json_text.loads(body)
    except ValueError:
        return ""
    return str(told.get("detail", "")) if isinstance(told, dict) else ""
