"""Whether something that is measured again and again grows, other than at the beginning."""

import statistics


def thirds_of(samples: list[float]) -> list[float]:
    """The median of each third; none of a run that was too short."""
    third = len(samples) // 3
    parts = (samples[:third], samples[third : 2 * third], samples[2 * third :]) if third else ()
    return [statistics.median(part) for part in parts]


def judge_growth(what: str, samples: list[float], grown_mib_max: float) -> list[str]:
    """A sentence if the last third is above the second: in the first it fills with what is kept."""
    if not (thirds := thirds_of(samples)):
        return []
    _, middle, last = thirds
    return [f"{what} has grown from {middle:.1f} to {last:.1f} MiB"] if last > middle + grown_mib_max else []
