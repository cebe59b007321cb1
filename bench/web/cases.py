"""What may look at a broker, and what it may cost the messages that flow meanwhile."""

from dataclasses import dataclass, field
from typing import Any

from bench.web.tailing import RATE

SHOWN_PER_S_MAX = 50
FRAMES_PER_S = 5
MEMORY_MIB_MAX = 32.0

AllSeen = dict[str, dict[str, Any]]
"""What each reader has seen, by its kind."""


@dataclass(frozen=True)
class Case:
    """Pairs of runs with and without its readers are compared.

    Attributes:
        readers: only in the runs that are watched.
        beside: in both.
    """

    about: str
    readers: tuple[str, ...]
    throughput_min: float
    processor_max: float = field(kw_only=True)
    beside: tuple[str, ...] = ()
    memory_mib_max: float | None = None


CASES = {
    "consoles": Case("three open consoles and a scrape", ("consoles",), 0.97, processor_max=1.03),
    "search": Case(
        "the consoles, and a search through the texts of all letters", ("consoles", "search"), 0.90, processor_max=1.11
    ),
    "export": Case("the consoles, and an export of all letters", ("consoles", "export"), 0.90, processor_max=1.11),
    "tail": Case(
        f"a live tail of a queue that gets {RATE:,} messages a second",
        ("tail",),
        0.97,
        processor_max=1.03,
        beside=("filler",),
    ),
    "hostile": Case(
        "500 silent connections, 200 streams that nobody reads, 300 half requests",
        ("attack",),
        0.97,
        processor_max=1.03,
        beside=("prober",),
        memory_mib_max=MEMORY_MIB_MAX,
    ),
}


def complaints(seen: AllSeen) -> list[str]:
    """What the readers should not have seen, in sentences."""
    found: list[str] = []
    if (tail := seen.get("tail")) is not None:
        told, published = tail["shown"] + tail["skipped"], seen["filler"]["published"]
        if told != published:
            found.append(f"the tail told of {told:,} messages, {published:,} were published")
        if tail["most_in_frame"] > SHOWN_PER_S_MAX // FRAMES_PER_S or (
            tail["shown"] > SHOWN_PER_S_MAX * (tail["seconds"] + 1 / FRAMES_PER_S)
        ):
            found.append(f"the tail showed {tail['shown']} messages in {tail['seconds']:.1f} s")
        found += [f"the tail has left {count} {what}" for what, count in tail["left"].items() if count]
    if (prober := seen.get("prober")) is not None:
        found += prober["failed"]
    return found
