"""Turns a selector's text into one closure.

or          := and ('||' and)*
and         := equality ('&&' equality)*
equality    := comparison (('=='|'!=') comparison)?
comparison  := sum (('<'|'<='|'>'|'>=') sum)?
sum         := product (('+'|'-') product)*
product     := unary (('*'|'/'|'%') unary)*
unary       := ('!'|'~'|'-') unary | '(' or ')' | 'exists' '(' name ')' | name | integer | string | 'true' | 'false'
"""

import operator
from collections.abc import Callable, Mapping

from vibemq.errors import InvalidSelector
from vibemq.model.selector.scanner import END_KIND, Token, scan
from vibemq.model.selector.values import (
    Compare,
    Unusable,
    Value,
    as_bool,
    as_integer,
    compared,
    divided,
    remainder,
    within_64_bits,
)

CHARACTERS_MAX = 128
OPERATORS_MAX = 10
PROPERTIES_MAX = 10
"""Uses of properties; one that is named twice counts twice."""

Known = Mapping[str, Value | None]
"""Property -> its value; None: it is there, and cannot be used (bytes that are no text)."""
Evaluate = Callable[[Known], Value]

_EQUALITY: dict[str, Compare] = {"==": operator.eq, "!=": operator.ne}
_COMPARISON: dict[str, Compare] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_SUM: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub}
_PRODUCT: dict[str, Callable[[int, int], int]] = {"*": operator.mul, "/": divided, "%": remainder}
_LITERALS = {"true": True, "false": False}


class Node:
    """A part of the expression; of the literals true and false it is known that it is one."""

    __slots__ = ("evaluate", "literal")

    def __init__(self, evaluate: Evaluate, literal: bool | None = None) -> None:
        self.evaluate = evaluate
        self.literal = literal


class Parser:
    """One text. `names` are the properties that it uses, in the order of their first use."""

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) > CHARACTERS_MAX:
            raise InvalidSelector(text, CHARACTERS_MAX, f"it has {len(text)} characters, {CHARACTERS_MAX} are allowed")
        self._tokens = scan(text)
        self._check_parentheses()
        self._place = 0
        self._operators = 0
        self._uses = 0
        self.names: dict[str, None] = {}

    def parse(self) -> Evaluate:
        """Raises InvalidSelector."""
        node = self._or()
        token = self._next
        if token.kind != END_KIND:
            raise self._wrong(token, _unexpected(token, self._tokens[self._place - 1]))
        if not self.names:
            raise InvalidSelector(self._text, 0, "it names no property, so it would match all messages or none")
        return node.evaluate

    # -- tokens -------------------------------------------------------------------------------------------------------

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    def _take(self) -> Token:
        token = self._next
        self._place += 1
        return token

    def _wrong(self, token: Token, why: str) -> InvalidSelector:
        return InvalidSelector(self._text, token.offset, why)

    def _check_parentheses(self) -> None:
        """Before anything else, so that no text nests deeper than half of its length."""
        opened: list[Token] = []
        for token in self._tokens:
            if token.text == "(":
                opened.append(token)
            elif token.text == ")":
                if not opened:
                    raise self._wrong(token, "this parenthesis closes nothing")
                opened.pop()
        if opened:
            raise self._wrong(opened[-1], "the parenthesis that opens here is not closed")

    def _operator(self, *symbols: str) -> str | None:
        """The next token's text when it is one of these operators, which is taken."""
        token = self._next
        if token.kind != "symbol" or token.text not in symbols:
            return None
        self._operators += 1
        if self._operators > OPERATORS_MAX:
            raise self._wrong(token, f"it has more than {OPERATORS_MAX} operators")
        return self._take().text

    def _expect(self, symbol: str, why: str) -> None:
        token = self._next
        if token.kind != "symbol" or token.text != symbol:
            raise self._wrong(token, why)
        self._take()

    def _use(self, token: Token) -> str:
        self._uses += 1
        if self._uses > PROPERTIES_MAX:
            raise self._wrong(token, f"it uses properties more than {PROPERTIES_MAX} times")
        self.names.setdefault(token.text)
        return token.text

    # -- grammar ------------------------------------------------------------------------------------------------------

    def _or(self) -> Node:
        left = self._and()
        while self._operator("||"):
            left = _either(left.evaluate, self._and().evaluate)
        return left

    def _and(self) -> Node:
        left = self._equality()
        while self._operator("&&"):
            left = _both(left.evaluate, self._equality().evaluate)
        return left

    def _equality(self) -> Node:
        left = self._comparison()
        symbol = self._operator(*_EQUALITY)
        if symbol is None:
            return left
        node = _equal(symbol, left, self._comparison())
        self._refuse_chain(_EQUALITY)
        return node

    def _comparison(self) -> Node:
        left = self._sum()
        symbol = self._operator(*_COMPARISON)
        if symbol is None:
            return left
        node = _compare(_COMPARISON[symbol], left.evaluate, self._sum().evaluate)
        self._refuse_chain(_COMPARISON)
        return node

    def _refuse_chain(self, symbols: Mapping[str, Compare]) -> None:
        token = self._next
        if token.kind == "symbol" and token.text in symbols:
            raise self._wrong(token, f"{token.text} cannot follow another comparison; use && or parentheses")

    def _sum(self) -> Node:
        left = self._product()
        while symbol := self._operator(*_SUM):
            left = _calculate(_SUM[symbol], left.evaluate, self._product().evaluate)
        return left

    def _product(self) -> Node:
        left = self._unary()
        while symbol := self._operator(*_PRODUCT):
            left = _calculate(_PRODUCT[symbol], left.evaluate, self._unary().evaluate)
        return left

    def _unary(self) -> Node:
        symbol = self._operator("!", "~", "-")
        if symbol is None:
            return self._primary()
        operand = self._unary()
        return _minus(operand.evaluate) if symbol == "-" else _not(operand)

    def _primary(self) -> Node:
        token = self._take()
        match token.kind:
            case "name" if token.text in _LITERALS:
                return _literal(_LITERALS[token.text])
            case "name" if token.text == "exists" and self._next.text == "(":
                return self._exists()
            case "name":
                return _property(self._use(token))
            case "integer":
                return _constant(token.number)
            case "string":
                return _constant(token.between_quotes)
            case "symbol" if token.text == "(":
                node = self._or()
                self._expect(")", "a closing parenthesis is missing")
                return node
        self._place -= 1
        raise self._wrong(token, _unexpected(token, self._tokens[self._place - 1] if self._place else None))

    def _exists(self) -> Node:
        self._take()
        token = self._take()
        if token.kind != "name" or token.text in _LITERALS:
            self._place -= 1
            raise self._wrong(token, "exists needs the name of a property in its parentheses")
        name = self._use(token)
        self._expect(")", "a closing parenthesis is missing behind the name of the property")
        return Node(lambda known: name in known)


def _unexpected(token: Token, before: Token | None) -> str:
    if token.kind == END_KIND:
        return "it ends where a property or a value is expected"
    if token.kind == "integer" and token.text[0] == "-" and before is not None and before.kind != "symbol":
        return f"{token.text} is read as a number; write a blank behind the minus: - {token.text[1:]}"
    return f"{token.text} is not expected here"


# -- closures ---------------------------------------------------------------------------------------------------------


def _constant(value: Value) -> Node:
    return Node(lambda known: value)


def _literal(value: bool) -> Node:  # a value, no switch
    return Node(lambda known: value, value)


def _property(name: str) -> Node:
    def evaluate(known: Known) -> Value:
        value = known.get(name)
        if value is None:
            raise Unusable
        return value

    return Node(evaluate)


def _either(left: Evaluate, right: Evaluate) -> Node:
    return Node(lambda known: as_bool(left(known)) or as_bool(right(known)))


def _both(left: Evaluate, right: Evaluate) -> Node:
    return Node(lambda known: as_bool(left(known)) and as_bool(right(known)))


def _not(operand: Node) -> Node:
    evaluate = operand.evaluate
    if operand.literal is not None:
        return _literal(not operand.literal)
    return Node(lambda known: not as_bool(evaluate(known)))


def _equal(symbol: str, left: Node, right: Node) -> Node:
    """With the literals true and false it means the other side, or its negation."""
    if left.literal is not None:
        return _as_literal(right, left.literal == (symbol == "=="))
    if right.literal is not None:
        return _as_literal(left, right.literal == (symbol == "=="))
    return _compare(_EQUALITY[symbol], left.evaluate, right.evaluate)


def _as_literal(side: Node, wanted: bool) -> Node:
    """Whether the side is that."""
    if side.literal is not None:
        return _literal(side.literal is wanted)
    evaluate = side.evaluate
    return Node(lambda known: as_bool(evaluate(known)) is wanted)


def _compare(compare: Compare, left: Evaluate, right: Evaluate) -> Node:
    return Node(lambda known: compared(compare, left(known), right(known)))


def _calculate(calculate: Callable[[int, int], int], left: Evaluate, right: Evaluate) -> Node:
    return Node(lambda known: within_64_bits(calculate(as_integer(left(known)), as_integer(right(known)))))


def _minus(operand: Evaluate) -> Node:
    return Node(lambda known: within_64_bits(-as_integer(operand(known))))
