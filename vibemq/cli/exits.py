"""Exit codes, and how an error is told: one sentence on stderr, or one JSON object there with `--json`."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TextIO

from vibemq.errors import ErrorCode, LocalProtocolError, VibeMQError


class ExitCode(IntEnum):
    """What a script may rely on."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    NOT_ALLOWED = 4
    UNREACHABLE = 5
    PARTLY = 6
    """Some of the work is done and stays done; the error says how much."""
    INTERRUPTED = 130


_BY_CODE: dict[ErrorCode, ExitCode] = {
    ErrorCode.CONFIG_INVALID: ExitCode.USAGE,
    ErrorCode.INVALID_OPTIONS: ExitCode.USAGE,
    ErrorCode.VERSION_SKIPPED: ExitCode.USAGE,
    ErrorCode.INVALID_QUEUE: ExitCode.USAGE,
    ErrorCode.INVALID_PAYLOAD: ExitCode.USAGE,
    ErrorCode.INVALID_SELECTOR: ExitCode.USAGE,
    ErrorCode.QUEUE_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.GROUP_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.MESSAGE_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.STAGE_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.JOB_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.USER_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.TOKEN_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.NOT_AUTHENTICATED: ExitCode.NOT_ALLOWED,
    ErrorCode.AUTH_REQUIRED: ExitCode.NOT_ALLOWED,
    ErrorCode.AUTH_FAILED: ExitCode.NOT_ALLOWED,
    ErrorCode.NOT_AUTHORIZED: ExitCode.NOT_ALLOWED,
    ErrorCode.FORBIDDEN: ExitCode.NOT_ALLOWED,
    ErrorCode.UNREACHABLE: ExitCode.UNREACHABLE,
    ErrorCode.TIMEOUT: ExitCode.UNREACHABLE,
    ErrorCode.NO_REPLY: ExitCode.UNREACHABLE,
    ErrorCode.SHUTTING_DOWN: ExitCode.UNREACHABLE,
}


LISTED = "`vibemq-admin queue ls` lists those that do"


class CommandFailed(VibeMQError):
    """The command line's own refusals, with the exit code they mean."""

    def __init__(self, sentence: str, *, code: str = "FAILED", exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(sentence)
        self.name = code
        self.exit_code = exit_code


class Usage(CommandFailed):
    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, code="USAGE", exit_code=ExitCode.USAGE)


class NotFound(CommandFailed):
    """A file, a folder, a store or a connection. Queues, groups and dead letters have codes of the broker's errors."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, code="NOT_FOUND", exit_code=ExitCode.NOT_FOUND)


class QueueMissing(CommandFailed):
    def __init__(self, queue: str, hint: str = LISTED) -> None:
        sentence = f"queue {queue!r} does not exist; {hint}"
        super().__init__(sentence, code=ErrorCode.QUEUE_NOT_FOUND, exit_code=ExitCode.NOT_FOUND)


class PartlyDone(CommandFailed):
    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, code="PARTLY_DONE", exit_code=ExitCode.PARTLY)


def how_to_install(extra: str) -> str:
    """The remedy for a missing package. VibeMQ is installed from a checkout or a wheel: its name alone tells pip
    nothing."""
    return f"install it from the checkout or wheel that you have: pip install '/path/to/vibemq[{extra}]'"


def exit_code_of(error: BaseException) -> ExitCode:
    if isinstance(error, CommandFailed):
        return error.exit_code
    if isinstance(error, VibeMQError):
        # What the client refuses before it sends anything came from the command line.
        fallback = ExitCode.USAGE if isinstance(error, LocalProtocolError) else ExitCode.FAILED
        return _BY_CODE.get(error.code, fallback)
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, FileNotFoundError):
        return ExitCode.NOT_FOUND
    return ExitCode.NOT_ALLOWED if isinstance(error, PermissionError) else ExitCode.FAILED


def code_name_of(error: BaseException) -> str:
    """The word after `error` on stderr."""
    if isinstance(error, CommandFailed):
        return error.name
    if isinstance(error, VibeMQError):
        return str(getattr(error, "wire_code", "") or error.code)
    if isinstance(error, OSError):
        return next((name for kind, name, _ in _SYSTEM if isinstance(error, kind)), "SYSTEM")
    return "FAILED"


_FULL = (errno.ENOSPC, errno.EDQUOT)
_SYSTEM: tuple[tuple[type[OSError], str, str], ...] = (
    (FileExistsError, "FILE_EXISTS", "{} exists already and is not usable here; choose another place"),
    (FileNotFoundError, "NOT_FOUND", "file or folder {} does not exist"),
    (PermissionError, "NO_PERMISSION", "this user may not use {}; change its owner or mode, or choose another place"),
    (NotADirectoryError, "NOT_A_FOLDER", "a part of the path {} is a file where a folder is needed"),
    (IsADirectoryError, "IS_A_FOLDER", "{} is a folder where a file is needed"),
)


def _shown(place: object) -> str:
    return os.fsdecode(place) if isinstance(place, bytes) else str(place)


def sentence_of(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        place = error.filename2 or error.filename
        if place is not None and error.errno in _FULL:
            return f"no space is left on the disk of {_shown(place)}; free some, or choose another"
        for kind, _, sentence in _SYSTEM:
            if place is not None and isinstance(error, kind):
                return sentence.format(_shown(place))
        return f"the operating system refuses: {error.strerror}{f' ({_shown(place)})' if place is not None else ''}"
    return str(error) or type(error).__name__


@contextmanager
def copying(what: str) -> Iterator[None]:
    """Whoever runs out of room for a temporary copy in the block hears where that is, and how to choose another place.

    Raises:
        CommandFailed: no space is left there.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        import tempfile  # Commands without a copy do without.

        raise CommandFailed(
            f"{what} is copied into {tempfile.gettempdir()}, where no space is left; free some, or set TMPDIR to a "
            "folder that has it"
        ) from error


_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """On one line, with escapes in the place of what a terminal would obey: parts of it come from elsewhere."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def tell(error: BaseException, *, json: bool, stream: TextIO) -> None:
    """Write the one line that every failure ends with."""
    name, sentence, code = code_name_of(error), sentence_of(error), exit_code_of(error)
    if json:
        import orjson  # Help and usage errors do without.

        # The name of a file may be no UTF-8.
        message = sentence.encode(errors="backslashreplace").decode()
        line = orjson.dumps({"error": {"code": name, "message": message}, "exit_code": int(code)}).decode()
    else:
        line = f"error {name}: {plain(sentence)}"
    print(line, file=stream, flush=True)


def root_of(error: BaseException) -> BaseException:
    """What a person wants to hear of an exception group: the family's error in it, else the first one."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [root_of(part) for part in error.exceptions]
    for wanted in (VibeMQError, KeyboardInterrupt, OSError):
        for leaf in leaves:
            if isinstance(leaf, wanted):
                return leaf
    return leaves[0]
