"""`vibemq console`: opens the console of a broker in a browser, logged in where that is possible."""

import base64
import errno
import ipaddress
import json as json_text
import ssl
import urllib.error
import urllib.request
import webbrowser
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import Annotated
from urllib.parse import urlsplit

import typer

from vibemq.cli.exits import CommandFailed, ExitCode
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, Json, Timeout, Url
from vibemq.cli.online import settings_of
from vibemq.cli.output import Output
from vibemq.client.address import ClientSettings
from vibemq.client.connecting.tls import tls_context
from vibemq.errors import ErrorCode

DEFAULT_HTTP = "http://localhost:2926"
ANSWER_BYTES_MAX = 65_536
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
"""OpenSSL's words for an answer that is no TLS."""


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
    # `vibemq serve` prints the address of the console itself.
    base = http.rstrip("/").removesuffix("/console")
    if not is_http_url(base):
        raise CommandFailed(f"--http is {http}; give the URL of the broker's HTTP port, such as {DEFAULT_HTTP}")
    address = f"{base}/console/"
    settings = settings_of(url)
    ask = ConsoleAsking(timeout, tls_context(settings) if base.startswith("https:") else None)
    untrusted = require_console(address, ask)
    authorization = authorization_of(settings)
    if authorization is not None and is_here(base) and not untrusted:
        code = login_code(f"{base}/api/v1/session/codes", authorization, ask)
        # Behind # nothing goes to the broker, to its logs or to a proxy.
        address = f"{base}/console/login#code={code}"
    elif authorization is not None and is_here(base):
        out.note(
            f"the certificate of {base} is not accepted here ({untrusted}), so it is given no password or token, and "
            "the console asks for the login; --tls-ca names the authority that has signed it"
        )
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


def is_http_url(text: str) -> bool:
    """Whether it has a scheme of HTTP, a host, and a port if any; and nothing that no URL may have."""
    if not text.isprintable() or " " in text:
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class ConsoleAnswer:
    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class ConsoleAsking:
    """How the HTTP port is asked."""

    timeout: float
    tls: ssl.SSLContext | None


def fetched(request: urllib.request.Request, ask: ConsoleAsking) -> ConsoleAnswer:
    """A refusal is an answer.

    Raises:
        OSError: nobody answers, or not to the end.
        HTTPException: what answers does not speak HTTP.
    """
    # A proxy would look for a port of its own machine, and be given the password.
    handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=ask.tls)]
    handlers += [urllib.request.ProxyHandler({})] if is_here(request.full_url) else []
    try:
        answer = urllib.request.build_opener(*handlers).open(request, timeout=ask.timeout)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return ConsoleAnswer(answer.status, answer.headers.get_content_type(), answer.read(ANSWER_BYTES_MAX))


def require_console(address: str, ask: ConsoleAsking) -> str:
    """Why its certificate is not accepted; "" when it is, or there is none.

    Raises:
        CommandFailed: nobody answers there, the broker serves no console, or refuses it.
    """
    try:
        # The front page is there for everybody who may see the log-in page.
        answer = fetched(urllib.request.Request(address), ask)  # noqa: S310
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None)
        if isinstance(reason, ssl.SSLCertVerificationError):
            # The browser may know an authority that this machine's Python does not.
            return reason.verify_message
        raise _no_answer(address, error) from None
    if answer.status == HTTPStatus.OK:
        return ""
    told = _sentence(answer)
    if answer.status == HTTPStatus.NOT_FOUND:
        told = "the broker serves no console there; set http.console and http.api to true, or correct --http"
    raise CommandFailed(f"{address} answers {answer.status}" + (f": {told}" if told else ""))


def _sentence(answer: ConsoleAnswer) -> str:
    """The console refuses in plain text."""
    if answer.content_type == "text/plain":
        return answer.body.decode(errors="replace").strip()
    return _text_in(answer.body, "detail")


def _no_answer(url: str, error: Exception) -> CommandFailed:
    if isinstance(error, HTTPException) and not isinstance(error, OSError):
        return CommandFailed(
            f"what answers at {url} is not the HTTP port of a broker; give that port with --http, such as "
            f"{DEFAULT_HTTP}"
        )
    # That of an error of TLS is a word of OpenSSL's.
    reason = error if isinstance(error, ssl.SSLError) else getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLError):
        return CommandFailed(_of_tls(url, reason.reason or str(reason)))
    hint = ""
    if url.startswith("https:") and isinstance(reason, ConnectionError) and reason.errno != errno.ECONNREFUSED:
        # With TLS 1.3 the end may come before the reason.
        hint = ", or, if it asks for a client certificate, one with --tls-cert and --tls-key"
    return CommandFailed(
        f"no broker answers at {url}: {reason}; give its HTTP port with --http{hint}",
        code=ErrorCode.UNREACHABLE,
        exit_code=ExitCode.UNREACHABLE,
    )


def _of_tls(url: str, reason: str) -> str:
    if reason in NO_TLS:
        return f"what answers at {url} does not speak TLS ({reason}); write http:// in --http"
    if "CERTIFICATE_REQUIRED" in reason:
        return f"{url} asks for a client certificate; give one with --tls-cert and --tls-key, and one to the browser"
    return f"TLS with {url} failed ({reason})"


def login_code(url: str, authorization: str, ask: ConsoleAsking) -> str:
    """
    Raises:
        CommandFailed: nobody answers there, or the answer is a refusal.
    """
    request = urllib.request.Request(url, headers={"Authorization": authorization}, method="POST")  # noqa: S310
    try:
        answer = fetched(request, ask)
    except (OSError, HTTPException) as error:
        raise _no_answer(url, error) from None
    if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES and (code := _text_in(answer.body, "code")):
        return code
    told = _text_in(answer.body, "detail")
    sentence = told or f"{url} answered {answer.status}; it may be another program, or a broker without its console"
    raise CommandFailed(sentence, code=ErrorCode.AUTH_FAILED, exit_code=ExitCode.NOT_ALLOWED)


def _text_in(body: bytes, name: str) -> str:
    """A member of an answer in JSON; empty when there is none."""
    try:
        told = json_text.loads(body)
    except ValueError:
        return ""
    return str(told.get(name, "")) if isinstance(told, dict) else ""
