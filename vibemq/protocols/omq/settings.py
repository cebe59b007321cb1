"""Options of an omq listener."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator


class OmqSettings(BaseModel):
    """All have defaults; times in ms, sizes in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ping_interval_ms: Annotated[int, Field(ge=1_000, le=50_000)] = 25_000
    """Most time between two pings; the protocol promises one every 50 s."""
    ack_timeout_ms: Annotated[int, Field(ge=2_000)] = 100_000
    """A client that completes no command for this long is told so and closed."""
    command_bytes_max: Annotated[int, Field(ge=64)] = 65_536
    """From the first byte of a command to its closing parenthesis."""
    nesting_max: Annotated[int, Field(ge=2)] = 64
    """Parentheses that may be open at a time."""
    subscriptions_max: Annotated[int, Field(ge=1)] = 1_000
    """Per connection."""
    unsettled_messages_max: Annotated[int, Field(ge=1)] = 10_000
    """Round-robin messages that a subscription may have before an Ack settles them."""
    unsettled_bytes_max: Annotated[int, Field(ge=0)] = 16 * 1024 * 1024
    """The same in bytes; 0 = no limit."""

    @field_validator("ack_timeout_ms")
    @classmethod
    def _longer_than_the_pings_interval(cls, ack_timeout_ms: int, others: ValidationInfo) -> int:
        # The default is longer than any interval.
        interval_ms = others.data.get("ping_interval_ms", 0)
        if ack_timeout_ms <= interval_ms:
            raise ValueError(
                f"clients answer pings, so it must be more than ping_interval_ms ({interval_ms}), not {ack_timeout_ms}"
            )
        return ack_timeout_ms
