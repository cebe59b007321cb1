"""A condition on the properties of a message, such as `region == "eu" && total > 100`."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from vibemq.model.selector.parser import Evaluate, Parser
from vibemq.model.selector.properties import Looked, Property, known_of, known_values
from vibemq.model.selector.values import Unusable, as_bool

_PARSED_MAX = 1_024


class Selector:
    """Immutable; two with the same text are equal. Made by `Selector.parse`."""

    __slots__ = ("_evaluate", "looked", "names", "text")

    def __init__(self, text: str, names: tuple[str, ...], evaluate: Evaluate) -> None:
        self.text = text
        self.names = names
        """Of the properties that it uses."""
        self.looked = Looked.of(names)
        self._evaluate = evaluate

    @staticmethod
    def parse(text: str) -> "Selector":
        """
        Raises:
            InvalidSelector: with the place of the mistake.
        """
        return _parsed(text)

    def matches(self, properties: Mapping[str, Property | bool | int | str | bytes]) -> bool:
        """Whether a message with these properties is meant. A plain `str` is a string, `Text` a header without
        a type, and `bytes` are binary. Never raises for what the properties are."""
        return self._meets(known_of(properties))

    def matches_block(self, data: bytes, offset: int) -> bool:
        """The same of a row's sound header block at `offset`: only the headers that the selector names are read."""
        return self._meets(known_values(data, offset, self.looked))

    def _meets(self, known: Mapping[str, bool | int | bytes | None]) -> bool:
        try:
            return as_bool(self._evaluate(known))
        except Unusable:
            return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


class SelectorSet:
    """Several selectors that are asked about the same rows."""

    __slots__ = ("_looked", "_selectors")

    def __init__(self, selectors: Sequence[Selector]) -> None:
        self._selectors = selectors
        self._looked = Looked.of(dict.fromkeys(name for selector in selectors for name in selector.names))

    def __len__(self) -> int:
        return len(self._selectors)

    def matching_block(self, data: bytes, offset: int) -> int:
        """A bit for each of them that matches, as `Selector.matches_block`. The headers are read once for all."""
        known = known_values(data, offset, self._looked)
        bits, bit = 0, 1
        for selector in self._selectors:
            if selector._meets(known):
                bits |= bit
            bit <<= 1
        return bits


@lru_cache(_PARSED_MAX)
def _parsed(text: str) -> Selector:
    parser = Parser(text)
    evaluate = parser.parse()
    return Selector(text, tuple(parser.names), evaluate)
