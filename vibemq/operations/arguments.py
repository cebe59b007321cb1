"""What the arguments of operations are made of, and the sentences that refuse them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from vibemq.errors import InvalidPayload
from vibemq.model.arguments import SHORT_CHARACTERS, short
from vibemq.model.options import check_queue_name
from vibemq.model.runs import Run

A = TypeVar("A", bound="Arguments")

INSTANT_MAX = (1 << 63) - 1
TEXT_MAX = 4096
LIST_MAX = 100_000
PAIRS_MAX = 10_000
"""So many are read, and put in order, in a few milliseconds."""
HEADERS_MAX = 1000
OPTIONS_MAX = 100
"""More than there are: what is unknown among them is told by name."""
LIMIT_MAX = 1000
"""Most items of a page."""
GUARDS = {
    "at_most": "which would guard nothing; give a value, or leave it out",
    "dry_run": "which would guard nothing; give a value, or leave it out",
}
"""Arguments that keep any request from doing more than was meant, and why one that a program has left empty is refused
and does not count as not given."""
_UNGUARDED = {
    "at_most": "without it the request is carried out, however much it concerns",
    "dry_run": "without it the request is carried out, and not only tried",
}


class Arguments(BaseModel):
    """Base of every operation's arguments. JSON values as they are: no text counts as a number, null as not given."""

    # The validator is made when the operation is asked for the first time: a broker's start does not wait for all.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True, defer_build=True)

    never_null: ClassVar[Collection[str]] = ()
    """Names whose null is refused, and does not count as not given."""
    preview: ClassVar[str] = ""
    """Of an operation without dry run: the one that says what it would do."""

    @model_validator(mode="before")
    @classmethod
    def _one_unknown(cls, values: Any) -> Any:
        return _with_one_unknown(cls, values) if isinstance(values, dict) else values


class CanBeTried(Arguments):
    """Of an operation that changes something: a dry run checks all that the real one does, at the same place, and its
    answer, where `Call.run` adds `dry_run`, is the one that the real one would have."""

    dry_run: bool = Field(False, description="Check everything, say what would be done, and change nothing.")


def _runs(value: Any) -> list[Run]:
    if not isinstance(value, list) or len(value) > PAIRS_MAX:
        raise ValueError(f"must be a list of at most {PAIRS_MAX} pairs [first, last]")
    if not all(_is_pair(pair) and type(pair[1]) is int for pair in value):
        raise ValueError("must be a list of pairs [first, last] of whole numbers")
    if any(not 0 <= first <= last <= INSTANT_MAX for first, last in value):
        raise ValueError("must be a list of pairs [first, last] that go from 0 or more to something as large")
    return [(first, last) for first, last in value]


def _rejects(value: Any) -> list[tuple[int, str]]:
    if not isinstance(value, list) or len(value) > PAIRS_MAX:
        raise ValueError(f"must be a list of at most {PAIRS_MAX} pairs [sequence, error text]")
    if not all(_is_pair(pair) and isinstance(pair[1], str) for pair in value):
        raise ValueError("must be a list of pairs [sequence, error text]")
    return [(sequence, error) for sequence, error in value]


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and type(pair[0]) is int


def _first_wrong(value: Any) -> Any:
    """Only the first value that is no text, if there is one: that is told, and of no other. So are too many."""
    if isinstance(value, dict):
        if len(value) > HEADERS_MAX:
            return dict(islice(value.items(), HEADERS_MAX + 1))
        return next(({name: text} for name, text in value.items() if not isinstance(text, str)), value)
    return value


Text = Annotated[str, Field(min_length=1, max_length=TEXT_MAX)]
Whole = Annotated[int, Field(ge=0, le=INSTANT_MAX)]
QueueName = Annotated[str, Field(min_length=1), AfterValidator(check_queue_name)]
Runs = Annotated[
    list[Run],
    BeforeValidator(_runs, json_schema_input_type=list[list[int]]),
]
Rejects = Annotated[
    list[tuple[int, str]],
    BeforeValidator(_rejects, json_schema_input_type=list[list[int | str]]),
]
# Of very many wrong items the first one is told, and no other is looked at.
Numbers = Annotated[list[Whole], Field(max_length=LIST_MAX, fail_fast=True)]
Texts = Annotated[list[str], Field(max_length=LIST_MAX, fail_fast=True)]
Headers = Annotated[dict[str, str], Field(max_length=HEADERS_MAX), BeforeValidator(_first_wrong)]
Options = Annotated[dict[str, Any], Field(max_length=OPTIONS_MAX)]
"""Of a queue."""


def limit_of(most: int) -> Any:
    """The field of a `Limit` of an operation whose pages have at most `most` items."""
    return Field(None, description=_limit_text(most))


def _limit_text(most: int) -> str:
    return f"Most items of the answer, 1 or more; more than {most} count as that."


Limit = Annotated[Annotated[int, Field(ge=1, le=INSTANT_MAX)] | None, Field(description=_limit_text(LIMIT_MAX))]
"""Of every operation that answers with a list."""


def page_size(limit: int | None, default: int, most: int = LIMIT_MAX) -> int:
    """How many items a page may have."""
    return min(default if limit is None else limit, most)


def read(model: type[A], operation: str, values: Mapping[str, Any]) -> A:
    """The arguments of one request.

    Raises:
        InvalidPayload: the sentence names the argument, the rule and what the argument is for.
        InvalidQueueName
    """
    try:
        return model.model_validate(_given(model, operation, values))
    except ValidationError as error:
        first = error.errors()[0]
        place = _place_of(model, first["loc"])
        raise InvalidPayload(_sentence(model, place, operation, first), place.pointer) from None


def unguarded(name: str, preview: str = "") -> str:
    """What becomes of a request that does not have this guard; "" for what is no guard.

    Args:
        preview: what says what the request would do.
    """
    told = _UNGUARDED.get(name, "")
    return f"{told}; {preview} says what it would do" if told and preview else told


def _given(model: type[Arguments], operation: str, values: Mapping[str, Any]) -> dict[str, Any]:
    for name, why in GUARDS.items():
        if values.get(name, ...) is None:
            raise InvalidPayload(f"argument {name} of {operation} is null, {why}", name)
    given = _with_one_unknown(model, values, lambda value: value is not None)
    return {name: value for name, value in given.items() if value is not None or name in model.never_null}


def _with_one_unknown(
    model: type[Arguments], values: Mapping[str, Any], counts: Callable[[Any], bool] = lambda value: True
) -> Mapping[str, Any]:
    """Of very many names that are unknown the first that counts: it is told, and of no other."""
    names = _names_of(model)
    if len(values) <= len(names):
        return values
    unknown = next((name for name, value in values.items() if name not in names and counts(value)), None)
    known = {name: values[name] for name in names if name in values}
    return known if unknown is None else {**known, unknown: values[unknown]}


@lru_cache(maxsize=256)
def _names_of(model: type[Arguments]) -> dict[str, None]:
    fields = model.model_fields
    return dict.fromkeys([*(field.alias for field in fields.values() if field.alias is not None), *fields])


class _Place(NamedTuple):
    """Where in the arguments something is wrong."""

    name: str
    """`filter.ids[3]`"""
    pointer: str
    """`filter/ids/3`"""
    field: FieldInfo | None
    """The innermost that is known."""
    beside: tuple[str, ...]
    """Names of the fields that there are in the same object."""


def _place_of(model: type[BaseModel], location: Sequence[str | int]) -> _Place:
    names, pointer = "", []
    within: type[BaseModel] | None = model
    field: FieldInfo | None = None
    beside: tuple[str, ...] = ()
    for part in location:
        if isinstance(part, int):
            names += f"[{part}]"
        elif within is None:
            # Which form of a type was tried, or the name of a value: no argument of ours.
            continue
        else:
            names += ("." if names else "") + part[:SHORT_CHARACTERS]
            fields = {field.alias or name: field for name, field in within.model_fields.items()}
            beside, field = tuple(fields), fields.get(part)
            inner = field.annotation if field is not None else None
            within = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None
        pointer.append(str(part)[:SHORT_CHARACTERS])
    return _Place(names or "arguments", "/".join(pointer), field, beside)


def _sentence(model: type[Arguments], place: _Place, operation: str, error: ErrorDetails) -> str:
    name, field = place.name, place.field
    if error["type"] == "extra_forbidden":
        takes = ", ".join(place.beside) or "none"
        around, dot, inner = name.rpartition(".")
        where = f"{operation}, whose {around} takes" if dot else f"{operation}, whose arguments are"
        remedy = unguarded(inner, model.preview) or "leave it out"
        if dot and inner in _names_of(model):
            remedy = f"it stands beside {around}: give it there"
        return f"argument {name} is unknown to {where} {takes}; {remedy}"
    means = f"; it means: {field.description}" if field is not None and field.description else ""
    if error["type"] == "missing":
        return f"argument {name} of {operation} is missing{means or '; add it'}"
    # What is secret has `repr=False`, and is not repeated.
    is_told = error["input"] is not None and (field is None or field.repr)
    value = f", not {short(error['input'])}" if is_told else ""
    return f"argument {name} of {operation} {_rule(error)}{value}{means}"


def _rule(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "int_type":
            return "must be a whole number"
        case "float_type" | "finite_number":
            return "must be a number"
        case "bool_type":
            return "must be true or false"
        case "string_type":
            return "must be text"
        case "list_type":
            return "must be a list"
        case "dict_type" | "model_type" | "model_attributes_type":
            return "must be an object"
        case "greater_than_equal":
            return f"must be a {_bound(context['ge'])} or more"
        case "less_than_equal":
            return f"must be a {_bound(context['le'])} or less"
        case "string_too_short":
            return f"must be text of at least {context['min_length']} character"
        case "string_too_long":
            return f"must be text of at most {context['max_length']} characters"
        case "too_short":
            return f"must have at least {context['min_length']} item"
        case "too_long":
            return f"must have at most {context['max_length']} items"
        case "literal_error":
            return f"must be {context['expected']}"
        case "string_pattern_mismatch":
            return "must be the number of a job, such as '17'"
        case "value_error":
            return str(context["error"])
        case _:
            return error["msg"]


def _bound(bound: float) -> str:
    return f"number, {bound:.15g}" if isinstance(bound, float) else f"whole number, {bound}"
