"""Options of the memory provider."""

from pydantic import BaseModel, ConfigDict


class MemorySettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    allow_durable_queues: bool = False
    """Accept queues of every durability, although nothing outlives the process: for tests of programs that declare
    durable queues. Their confirms come as those of a durable provider do."""
