"""How many letters in a second: of jobs, and of previews of them."""

from typing import Annotated

from pydantic import AfterValidator, Field

RATE_MIN = 0.1
RATE_MAX = 1_000_000


def _rate(value: float) -> float:
    if 0 < value < RATE_MIN:
        raise ValueError(f"must be {RATE_MIN} or more, or 0: as many as possible")
    return value


Rate = Annotated[float, Field(ge=0, le=RATE_MAX, allow_inf_nan=False), AfterValidator(_rate)]
