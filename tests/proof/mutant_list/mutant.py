"""What a mutant is, who may catch it, and what its harm is called."""

from dataclasses import dataclass
from typing import NamedTuple


class Catcher(NamedTuple):
    """A method that must notice a mutant, and where it looks first."""

    method: str
    aim: str = ""
    """See `Budget.aim`."""
    seed: int = 1
    """One that shows it soon; where time is left, others follow."""
    cases: int = 10_000_000
    seconds: float = 120.0


SIM = Catcher("sim-disk")
SIM_WEAK = Catcher("sim-disk", seed=6)
SIM_KILLS = Catcher("sim-disk", aim="kill", seed=7)
"""Brokers that are killed and leave something in the page cache for the next start to believe, until the power goes."""
SIM_ASIDE = Catcher("sim-disk", aim="aside")
"""Brokers that append beside the loop: there is an instant at which something is decided and not written."""
ENGINE_SIM = Catcher("engine-sim", seconds=30.0)
CHAOS_SIM = Catcher("engine-sim", aim="chaos", seconds=30.0)
SELECTOR_SIM = Catcher("engine-sim", aim="selectors", seconds=90.0)
LIFETIME_SIM = Catcher("engine-sim", aim="lifetimes", seconds=30.0)
RANGES_SIM = Catcher("engine-sim", aim="ranges", seconds=30.0)
BUSY = Catcher("network", aim="busy connection", cases=40, seconds=120.0)
ENDED = Catcher("network", aim="ended stream", cases=400, seconds=240.0)
ROT = Catcher("bit-rot", cases=2_000, seconds=60.0)
USERS = Catcher("users", seconds=240.0)
NO_BALLAST = Catcher("inject", aim="no ballast, lmdb", seconds=60.0)
MESSAGES_ALONE = Catcher("inject", aim="messages alone, lmdb", seconds=120.0)
OPENED_AFTER_A_DRAIN = Catcher("inject", aim="opened after a drain, sqlite", seconds=120.0)
DRAINED_IN_PART = Catcher("inject", aim="a store drained in part, lmdb", seconds=120.0)
DRAINED = Catcher("inject", aim="a store drained wholly, lmdb", seconds=120.0)
FAILED_WRITE = Catcher("inject", aim=r"sqlite from nothing: EIO BEFORE WRITE \d+ of the BROKER", seconds=400.0)
FULL_AGAIN = Catcher("inject", aim="drained and full again, lmdb", seconds=120.0)
FAILED_FLUSH = Catcher("inject", aim=r"lmdb from nothing: EIO AFTER SYNC \d+ of the BROKER", seconds=120.0)


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    file: str
    """Below `vibemq/`."""
    old: str
    new: str
    sign: str
    """What the finding must say, a regular expression: the harm that this mutant does, and no other."""
    by: tuple[Catcher, ...] = (SIM,)
    """Who must catch it, the quickest first; the first that does is named."""
    quick: bool = True
    """Caught within a few seconds, so fit for the short form."""
    also: tuple[tuple[str, str, str], ...] = ()
    """Further replacements, (file, old, new), where each alone does no harm: another one makes up for it."""

    @property
    def replacements(self) -> tuple[tuple[str, str, str], ...]:
        return ((self.file, self.old, self.new), *self.also)


LOST = r"^Lost: "
LOST_OR_BROKEN = LOST + r"|^StorageDamaged: journal record \d+ is (broken although it was durable|there twice)"
"""What was confirmed is not there, or recovery itself says that it ought to be."""
STORE_GONE = r"^StorageDamaged: (no valid LMDB header|the file is missing or empty) in /data/store/data\.mdb"
