"""Options of the memory provider: none so far."""

from pydantic import BaseModel, ConfigDict


class MemorySettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
