"""Secrets from a prompt or from standard input.

Never from an argument or a variable: lists of processes show both.
"""

import getpass
import sys
import warnings
from typing import Annotated

import typer

from vibemq.auth.passwords import PASSWORD_BYTES_MAX
from vibemq.auth.tokens import looks_like_token
from vibemq.cli.exits import Usage

PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input in place of a prompt.")
]
HASH_BYTES_MAX = 1024


def new_password(user: str, *, from_stdin: bool) -> str:
    """Typed twice, or the one line of standard input.

    Raises:
        Usage: nobody to ask, two that differ, or none that can be used.
    """
    if from_stdin:
        return _usable(line_of_stdin("password", PASSWORD_BYTES_MAX))
    first = _prompt(f"New password{f' of {user}' if user else ''}: ")
    if first != _prompt("The same again: "):
        raise Usage("the two passwords differ; nothing was changed")
    if not first:
        raise Usage("an empty password cannot be used; nothing was changed")
    return _usable(first)


def _usable(password: str) -> str:
    if len(password.encode(errors="surrogatepass")) > PASSWORD_BYTES_MAX:
        raise Usage(f"the password is longer than {PASSWORD_BYTES_MAX} bytes; choose a shorter one")
    if looks_like_token(password):
        raise Usage("the password has the form of an access token and would be taken for one; choose another")
    return password


def line_of_stdin(what: str, bytes_max: int) -> str:
    """The one line there is, without its end. No more than is allowed is read.

    Raises:
        Usage: it is empty, too long, no text, or there is more behind it.
    """
    if sys.stdin is None or sys.stdin.closed:
        raise Usage(f"standard input is closed; give the {what} there")
    data = sys.stdin.buffer.read(bytes_max + len(b"\r\n") + 1)
    line = data.removesuffix(b"\n").removesuffix(b"\r")
    if not line:
        raise Usage(f"standard input is empty; give the {what} there")
    if len(line) > bytes_max:
        raise Usage(f"the {what} on standard input is longer than {bytes_max} bytes; give a shorter one")
    if b"\n" in line:
        raise Usage(f"standard input has several lines; give the {what} there and nothing else")
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise Usage(f"the {what} on standard input is not UTF-8; give it as text") from None


def _prompt(question: str) -> str:
    if sys.stdin is None or sys.stdin.closed or not sys.stdin.isatty():
        raise Usage("there is no terminal to ask for the password; give it on standard input with --password-stdin")
    with warnings.catch_warnings():
        # Otherwise it would be typed where it can be read.
        warnings.simplefilter("error", getpass.GetPassWarning)
        try:
            return getpass.getpass(question)
        except (EOFError, getpass.GetPassWarning):
            raise Usage(
                "this terminal cannot take a password; give it on standard input with --password-stdin"
            ) from None
