"""The arguments that name a job."""

from typing import Annotated

from pydantic import Field, StringConstraints

from vibemq.operations.arguments import Arguments

JobNumber = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,17}$")]


class OfJob(Arguments):
    job: JobNumber = Field(description="Number of the job.")
