"""Every error has an exit code, a code word and one line on stderr."""

import errno
import io
import json
import os
import tempfile
from pathlib import Path

import pytest

from vibemq import errors
from vibemq.cli.exits import CommandFailed, ExitCode, NotFound, PartlyDone, Usage, copying, exit_code_of, root_of, tell
from vibemq.errors import VibeMQError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Usage("so not"), 2),
        (errors.ConfigInvalid("bad url"), 2),
        (errors.InvalidOptions("bad option"), 2),
        (errors.InvalidQueueName("bad name"), 2),
        (NotFound("gone"), 3),
        (errors.QueueNotFound("orders"), 3),
        (errors.MessageNotFound("gone"), 3),
        (errors.AuthFailed("wrong password"), 4),
        (errors.NotAuthorized("not yours"), 4),
        (errors.NotConnected("nobody there"), 5),
        (errors.RequestTimeout("too slow"), 5),
        (errors.ShuttingDown("bye"), 5),
        (PartlyDone("half"), 6),
        (errors.QueueFull("orders", "10 messages"), 1),
        (errors.StorageLocked("in use"), 1),
        (KeyboardInterrupt(), 130),
        (OSError("disk"), 1),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_for_a_copy_names_the_folder_and_how_to_choose_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(CommandFailed) as refused, copying("standard input"):
        raise OSError(number, os.strerror(number))
    assert str(refused.value) == (
        f"standard input is copied into {tmp_path}, where no space is left; free some, or set TMPDIR to a folder that "
        "has it"
    )


def test_what_else_keeps_a_copy_from_being_made_is_told_as_it_is() -> None:
    with pytest.raises(PermissionError), copying("standard input"):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "file")


def test_every_error_code_of_the_family_has_an_exit_code() -> None:
    for code in errors.ErrorCode:
        error = VibeMQError("x")
        error.code = code  # type: ignore[misc]
        assert exit_code_of(error) in set(ExitCode) - {ExitCode.OK}


def told(error: BaseException, *, as_json: bool) -> str:
    stream = io.StringIO()
    tell(error, json=as_json, stream=stream)
    return stream.getvalue()


def test_an_error_is_one_line() -> None:
    assert told(errors.QueueNotFound("orders"), as_json=False).startswith("error QUEUE_NOT_FOUND: queue 'orders'")
    assert told(Usage("add --yes"), as_json=False) == "error USAGE: add --yes\n"


def test_an_error_is_one_line_whatever_it_quotes() -> None:
    assert told(CommandFailed("a\nerror OK: \x1b[2J\u202eb"), as_json=False) == (
        "error FAILED: a\\nerror OK: \\x1b[2J\\u202eb\n"
    )


def test_an_error_of_the_system_names_the_file() -> None:
    for error, line in (
        (FileNotFoundError(2, "No such file", "/x/y"), "error NOT_FOUND: file or folder /x/y does not exist"),
        (
            FileExistsError(17, "File exists", "/x/y"),
            "error FILE_EXISTS: /x/y exists already and is not usable here",
        ),
        (PermissionError(13, "Permission denied", b"/x/y"), "error NO_PERMISSION: this user may not use /x/y;"),
        (NotADirectoryError(20, "Not a directory", "/x/y"), "error NOT_A_FOLDER: a part of the path /x/y is a file"),
        (OSError(28, "No space left on device", "/x/y"), "error SYSTEM: no space is left on the disk of /x/y;"),
        (OSError(5, "Input/output error"), "error SYSTEM: the operating system refuses: Input/output error\n"),
    ):
        assert told(error, as_json=False).startswith(line)


def test_an_error_is_one_object_with_json() -> None:
    told_object = json.loads(told(CommandFailed("no", code="NO"), as_json=True))
    assert told_object == {"error": {"code": "NO", "message": "no"}, "exit_code": 1}


def test_an_error_about_a_file_whose_name_is_no_utf_8_is_one_object_too() -> None:
    told_object = json.loads(told(NotFound("there is no /x/\udcff"), as_json=True))
    assert told_object["error"]["message"] == r"there is no /x/\udcff"


def test_a_code_that_only_the_broker_knows_is_passed_on() -> None:
    assert told(errors.ServerError("new", wire_code="NEW_CODE"), as_json=False) == "error NEW_CODE: new\n"


def test_of_a_group_the_error_of_the_family_counts() -> None:
    wanted = errors.NotConnected("nobody")
    group = ExceptionGroup("tasks", [ValueError("bug"), ExceptionGroup("inner", [OSError("disk"), wanted])])
    assert root_of(group) is wanted


def test_of_a_group_without_one_the_first_counts() -> None:
    bug = ValueError("bug")
    assert root_of(ExceptionGroup("tasks", [bug, TypeError("other")])) is bug
