"""The result of one check."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: Level
    text: str
    mend: str = ""
    """What to do about it; empty when nothing is to be done."""

    def as_object(self) -> dict[str, Any]:
        return {"check": self.check, "level": str(self.level), "text": self.text, "mend": self.mend}


def ok(check: str, text: str) -> Finding:
    return Finding(check, Level.OK, text)


def warn(check: str, text: str, mend: str) -> Finding:
    return Finding(check, Level.WARN, text, mend)


def fail(check: str, text: str, mend: str) -> Finding:
    return Finding(check, Level.FAIL, text, mend)
