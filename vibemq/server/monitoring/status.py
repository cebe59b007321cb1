"""What is known about the broker as a whole, apart from its queues."""

import os
from dataclasses import dataclass

from vibemq.model.commands import Pressure
from vibemq.storage.interface import StorageStats

CHECKPOINT_PATIENCE_S = 20.0
"""A change that has waited so much longer than the provider's interval says that no checkpoint gets through."""
CLOCK_APART_MS_MAX = 5_000

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * PAGE_BYTES


@dataclass(slots=True)
class BrokerStatus:
    """What housekeeping found out last, about every second."""

    started: bool = False
    draining: bool = False
    failed: bool = False
    pressure: Pressure = Pressure.NONE
    pressure_why: str = ""
    memory_bytes: int = 0
    storage: StorageStats | None = None
    checkpoint_age_s: float = 0.0
    """How long the oldest change has waited for a checkpoint."""
    loop_lag_s: float = 0.0
    clock_ahead_ms: int = 0
    """How far the broker's time is ahead of the wall clock; negative when it is behind."""
    store_ahead_ms: int = 0
    """How far the store's latest instant was ahead of the wall clock at the start; 0 when it was not."""
    audit_trouble: str = ""
    """Why audit records cannot be written, and what to do."""

    def clock_trouble(self) -> str:
        """A sentence; empty when the clock is all right."""
        ahead = self.clock_ahead_ms
        if abs(ahead) <= CLOCK_APART_MS_MAX:
            return ""
        return (
            f"the wall clock was set while the broker ran: the broker's time is {abs(ahead) / 1000:,.0f} s "
            f"{'ahead of' if ahead > 0 else 'behind'} it and follows slowly; restart the broker to take it over at once"
        )

    def store_ahead_trouble(self) -> str:
        """A sentence when the clock has gone back since the last run."""
        if not self.store_ahead_ms:
            return ""
        return (
            f"at the start the clock was {self.store_ahead_ms / 1000:,.0f} s behind the latest instant in the store: "
            "it was wrong then or is wrong now, and deadlines are judged by the present clock; correct the clock if it "
            "is wrong, and look at messages that are delayed for very long"
        )

    def checkpoint_trouble(self) -> str:
        """A sentence when checkpoints do not get through."""
        interval_s = self.storage.checkpoint_interval_s if self.storage is not None else 0.0
        if self.checkpoint_age_s <= interval_s + max(CHECKPOINT_PATIENCE_S, 2 * interval_s):
            return ""
        unapplied = self.storage.unapplied_bytes if self.storage is not None else 0
        return (
            f"no checkpoint has got through for {self.checkpoint_age_s:.0f} s and {unapplied / 1_048_576:,.0f} MiB of "
            "journal wait for one; see the log for the checkpointer's errors, and check the disk and the CPU"
        )
