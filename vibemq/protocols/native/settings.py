"""Options of a native listener."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class NativeSettings(BaseModel):
    """All have defaults; times in ms, sizes in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    compressions: tuple[Literal["brotli", "gzip"], ...] = ("brotli", "gzip")
    """What may be agreed on; the peer's order decides."""
    compression_threshold: Annotated[int, Field(ge=0)] = 1024
    """Bodies from this size on are compressed, once agreed; 0 = all."""
    prefetch: Annotated[int, Field(ge=1, le=65_535)] = 200
    """Unsettled messages of a subscription without batch/1, which cannot say itself, as no .NET client can."""
    prefetch_bytes: Annotated[int, Field(ge=0)] = 8 * 1024 * 1024
    """The same in bytes; 0 = no limit."""
    subscriptions_max: Annotated[int, Field(ge=1)] = 1_000
    """Per connection."""
    auth_attempts_max: Annotated[int, Field(ge=1)] = 5
    """Failed Connects before the connection is closed."""
