"""What the kills share: a process to fork from, folders, and per provider a directory that lives through many kills."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.proof.account import Account, Verdict
from tests.proof.contract import Result
from tests.proof.warm import WarmBroker, WarmBrokers

SETTINGS = {
    "lmdb": "segment_bytes = 65536\nballast_bytes = 65536\ncheckpoint_lag_bytes = 131072\ncheckpoint_ms = 100\n",
    "sqlite": "wal_bytes = 131072\nballast_bytes = 65536\n",
}


@dataclass(slots=True)
class Life:
    """One data directory, and what its clients were told."""

    provider: str
    data_dir: Path
    account: Account = field(default_factory=Account)
    kills: int = 0


@dataclass(slots=True)
class Bench:
    warm: WarmBrokers
    work: Path
    rng: Random
    result: Result
    lives: dict[str, Life] = field(default_factory=dict)

    def options(self, provider: str) -> tuple[str, ...]:
        config = self.work / f"{provider}.toml"
        config.write_text(f"weak_flush_ms = 300\n[storage.settings]\n{SETTINGS[provider]}")
        return "--storage", provider, "--config", str(config)

    def broker(self, provider: str, data_dir: Path, *, port: int = 0) -> WarmBroker:
        return self.warm.start(data_dir, *self.options(provider), port=port)

    def folder(self, prefix: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=self.work))

    def count(self, verdict: Verdict) -> None:
        self.result.confirmed += verdict.confirmed
        self.result.lost += len(verdict.lost)
        self.result.resurrected += len(verdict.resurrected)

    def life(self, provider: str) -> Life:
        life = self.lives.get(provider)
        if life is None:
            life = self.lives[provider] = Life(provider, self.folder("life") / "data")
        return life
