"""A broker's refusal of an argument names the option of the command line."""

import inspect

import pytest

from vibemq.cli.admin.dlq.commands import purge
from vibemq.cli.admin.jobs.commands import list_jobs, show
from vibemq.cli.flags import refused_option
from vibemq.errors import InvalidPayload


def test_the_option_stands_in_place_of_the_argument_and_the_operation() -> None:
    error = InvalidPayload("argument state of job.list must be 'queued' or 'done', not 'x'; it means: Only those.")
    told = refused_option(error, inspect.signature(list_jobs))
    assert str(told) == "--state must be 'queued' or 'done', not 'x'"
    error = InvalidPayload("argument older_than_ms of dlq.list must be a whole number, 0 or more")
    told = refused_option(error, inspect.signature(purge))
    assert str(told) == "--older-than must be a whole number, 0 or more"


def test_the_argument_of_the_command_line_stands_in_place_of_that_of_the_operation() -> None:
    error = InvalidPayload("argument job of job.show must be the number of a job, not 'abc'; it means: Its number.")
    assert str(refused_option(error, inspect.signature(show))) == "JOB must be the number of a job, not 'abc'"


@pytest.mark.parametrize(
    "error",
    [
        InvalidPayload("argument rows of job.list must be a list"),
        InvalidPayload("the body is no JSON"),
        ValueError("argument state of job.list must be text"),
    ],
)
def test_other_refusals_stay_as_they_are(error: Exception) -> None:
    assert refused_option(error, inspect.signature(list_jobs)) is None
