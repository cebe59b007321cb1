"""Exit codes, and how an error is told: one sentence on stderr, or one JSON object there with `--json`."""

from enum import IntEnum
from typing import TextIO

import orjson

from vibemq.errors import ErrorCode, VibeMQError


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
    ErrorCode.INVALID_QUEUE: ExitCode.USAGE,
    ErrorCode.QUEUE_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.GROUP_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.MESSAGE_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.STAGE_NOT_FOUND: ExitCode.NOT_FOUND,
    ErrorCode.NOT_AUTHENTICATED: ExitCode.NOT_ALLOWED,
    ErrorCode.AUTH_REQUIRED: ExitCode.NOT_ALLOWED,
    ErrorCode.AUTH_FAILED: ExitCode.NOT_ALLOWED,
    ErrorCode.NOT_AUTHORIZED: ExitCode.NOT_ALLOWED,
    ErrorCode.UNREACHABLE: ExitCode.UNREACHABLE,
    ErrorCode.TIMEOUT: ExitCode.UNREACHABLE,
    ErrorCode.SHUTTING_DOWN: ExitCode.UNREACHABLE,
}


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
    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, code="NOT_FOUND", exit_code=ExitCode.NOT_FOUND)


class PartlyDone(CommandFailed):
    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, code="PARTLY_DONE", exit_code=ExitCode.PARTLY)


def exit_code_of(error: BaseException) -> ExitCode:
    if isinstance(error, CommandFailed):
        return error.exit_code
    if isinstance(error, VibeMQError):
        return _BY_CODE.get(error.code, ExitCode.FAILED)
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED


def code_name_of(error: BaseException) -> str:
    """The word after `error` on stderr."""
    if isinstance(error, CommandFailed):
        return error.name
    if isinstance(error, VibeMQError):
        return str(getattr(error, "wire_code", "") or error.code)
    if isinstance(error, OSError):
        return "SYSTEM"
    return "FAILED"


def sentence_of(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        place = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{place}"
    return str(error) or type(error).__name__


def tell(error: BaseException, *, json: bool, stream: TextIO) -> None:
    """Write the one line that every failure ends with."""
    name, sentence, code = code_name_of(error), sentence_of(error), exit_code_of(error)
    if json:
        line = orjson.dumps({"error": {"code": name, "message": sentence}, "exit_code": int(code)}).decode()
    else:
        line = f"error {name}: {sentence}"
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
