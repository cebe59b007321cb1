"""The result of one check."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


DOCTOR, BROKER = "doctor", "broker"
"""Who has checked: the doctor on its machine, or the broker itself. Both have checks of the same names."""


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: Level
    text: str
    remedy: str = ""
    """What to do about it; empty when nothing is to be done."""
    by: str = DOCTOR

    def as_object(self) -> dict[str, Any]:
        told = {"check": self.check, "level": str(self.level), "text": self.text, "remedy": self.remedy}
        return {**told, "by": self.by}


def ok(check: str, text: str) -> Finding:
    return Finding(check, Level.OK, text)


def warn(check: str, text: str, remedy: str) -> Finding:
    return Finding(check, Level.WARN, text, remedy)


def fail(check: str, text: str, remedy: str) -> Finding:
    return Finding(check, Level.FAIL, text, remedy)
