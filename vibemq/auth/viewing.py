"""Which of very many queues somebody may see: all rules are compared to a name at once."""

from collections.abc import Callable, Iterable
from typing import Final


def fits(pattern: str, name: str) -> bool:
    """Names come from peers, and no pattern makes a long one expensive, as a regular expression would."""
    if "*" not in pattern:
        return name == pattern
    if not name:
        return not pattern.strip("*")
    first, *middle, last = pattern.split("*")
    at, end = len(first), len(name) - len(last)
    if at > end or not name.startswith(first) or not name.endswith(last):
        return False
    for piece in middle:
        found = name.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


class Patterns:
    """Many patterns, of which one is to fit."""

    def __init__(self, patterns: Iterable[str]) -> None:
        exact, first, last, others = set[str](), set[str](), set[str](), set[tuple[str, str]]()
        for pattern in patterns:
            stars = pattern.count("*")
            if not stars:
                exact.add(pattern)
            elif stars == 1 and pattern.endswith("*"):
                first.add(pattern[:-1])
            elif stars == 1 and pattern.startswith("*"):
                last.add(pattern[1:])
            else:
                others.add((max(pattern.split("*"), key=len), pattern))
        self._exact: Final = exact
        self._first: Final = tuple(first)
        self._last: Final = tuple(last)
        self._others: Final = tuple(others)
        """The longest piece of each, which most names do not have."""

    def __len__(self) -> int:
        return len(self._exact) + len(self._first) + len(self._last) + len(self._others)

    def fit(self, name: str) -> bool:
        if name in self._exact or name.startswith(self._first) or name.endswith(self._last):
            return True
        return any(fits(pattern, name) for pattern in [pattern for piece, pattern in self._others if piece in name])


class Viewer:
    """Answers for one name after the other, also when the rules change in between."""

    __slots__ = ("_needed", "_read", "_version", "_version_now")

    def __init__(self, read: Callable[[], tuple[Patterns, ...] | None], version: Callable[[], int]) -> None:
        """
        Args:
            read: the patterns of which each is to fit; none: every name does. None: no name does.
            version: another one: they are to be read again.
        """
        self._read = read
        self._version_now = version
        self._version = -1
        """Nothing is read before the first name."""
        self._needed: tuple[Patterns, ...] | None = None

    def __call__(self, name: str) -> bool:
        needed = self._current()
        return needed is not None and all(patterns.fit(name) for patterns in needed)

    @property
    def patterns(self) -> int:
        """To which a name may be compared."""
        return sum(map(len, self._current() or ()))

    def _current(self) -> tuple[Patterns, ...] | None:
        if self._version != (version := self._version_now()):
            self._needed, self._version = self._read(), version
        return self._needed
