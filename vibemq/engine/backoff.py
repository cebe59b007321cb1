"""When a failed delivery is tried again."""

DELAY_MS_MAX = 1 << 53
"""The instant that it leads to must fit into the 64 bits of a stored number."""


def retry_delay_ms(failed: int, *, base_ms: int, max_ms: int, jitter: float) -> int:
    """Delay after the `failed`-th failure: base x 2^(failed - 1), capped, with *equal jitter*.

    Equal jitter: half of the delay is certain, the other half is multiplied by `jitter` in [0, 1). So a message is
    never tried again at once, and a burst of failures spreads over half the delay.
    """
    # The exponent is bounded so that a message with ever so many failures does not build a huge integer.
    full = min(base_ms << min(failed - 1, 40), max_ms or DELAY_MS_MAX, DELAY_MS_MAX)
    half = full // 2
    return full - half + int(half * jitter)
