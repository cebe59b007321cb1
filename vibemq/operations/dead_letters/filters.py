"""Which dead letters are meant: one language for lists, previews, replays, purges and jobs."""

from collections.abc import Callable, Collection
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator

from vibemq.model.dead.fingerprint import fingerprint, fingerprint_number
from vibemq.model.dead.groups import DeadGroupsWanted, LetterChoice
from vibemq.model.options import enum_of
from vibemq.model.records import DeadFacts, Reason
from vibemq.model.rows import RowView
from vibemq.model.stored import DeadLetter
from vibemq.operations.arguments import INSTANT_MAX, Arguments, Headers, Limit, Numbers, QueueName, Text, Whole
from vibemq.operations.dead_letters.stretches import IdStretches
from vibemq.operations.messages import replay_count

OLDEST, NEWEST = "oldest", "newest"


def _fingerprint(text: str) -> str:
    fingerprint_number(text)
    return text


def _order(text: str) -> str:
    if text not in (OLDEST, NEWEST):
        raise ValueError(f"must be {OLDEST!r} or {NEWEST!r}")
    return text


class LetterFilters(Arguments):
    """Every part that is given must fit."""

    queue: QueueName | None = Field(None, description="The queue they died in.")
    reason: str | None = Field(None, description="Why they died: " + ", ".join(r.name.lower() for r in Reason) + ".")
    fingerprint: Annotated[str, AfterValidator(_fingerprint)] | None = Field(
        None, description="Fingerprint of the error, 16 hex digits as `dlq.groups` shows them."
    )
    error: Text | None = Field(None, description="Text that the error contains.")
    older_than_ms: Whole | None = Field(None, description="Dead for at least so long.")
    newer_than_ms: Whole | None = Field(None, description="Dead for at most so long.")
    since: Whole | None = Field(None, description="Dead at this instant or later (Unix time in ms).")
    until: Whole | None = Field(None, description="Dead at this instant or earlier (Unix time in ms).")
    header: Headers = Field(default_factory=dict, description="Headers that the message has.")
    ids: Numbers | None = Field(None, description="Ids of dead letters.")
    from_id: Whole | None = Field(None, description="The first id that is meant.")
    to_id: Whole | None = Field(None, description="The last id that is meant.")
    message_id: Text | None = Field(None, description="Id of the message.")
    replayed: bool | None = Field(None, description="Whether the message has been replayed before.")

    @property
    def need_facts(self) -> bool:
        """Whether more than the id decides."""
        return self.need_rows or any(
            part is not None
            for part in (
                self.queue,
                self.reason,
                self.fingerprint,
                self.error,
                self.older_than_ms,
                self.newer_than_ms,
                self.since,
                self.until,
            )
        )

    @property
    def need_rows(self) -> bool:
        """Whether the messages have to be read."""
        return self.message_id is not None or bool(self.header) or self.replayed is not None

    @property
    def need_scan(self) -> bool:
        """Whether letters have to be looked at one by one: the index does not decide."""
        return self.need_rows or self.error is not None

    @property
    def means_groups(self) -> bool:
        """Whether whole groups are meant, so that their rows have the count."""
        given = {name for name in LetterFilters.model_fields if getattr(self, name) not in (None, {})}
        return given <= {"queue", "reason", "fingerprint"}

    def absolute(self, now: int, last_id: int | None = None) -> Self:
        """The same filters, as they are meant at this instant, whenever they are used: ages become instants.

        `last_id`: what dies later is not meant.
        """
        since, until = _since(self, now), _until(self, now)
        given: dict[str, Any] = {"older_than_ms": None, "newer_than_ms": None, "since": since or None}
        if until < INSTANT_MAX:
            given["until"] = until
        if last_id is not None:
            given["to_id"] = last_id if self.to_id is None else min(self.to_id, last_id)
        return self.model_copy(update=given)


FILTERS = frozenset(LetterFilters.model_fields)


def _without_null(schema: dict[str, Any]) -> None:
    for name in FILTERS & schema["properties"].keys():
        about = schema["properties"][name]
        choices = [choice for choice in about.pop("anyOf", ()) if choice.get("type") != "null"]
        for choice in choices:
            about.update(choice)
        if about.get("default", "") is None:
            del about["default"]


class GivenFilters(LetterFilters):
    """Of what changes letters, or says what a change would do: a part that a program has left empty is refused,
    because without it more letters would be meant."""

    model_config = ConfigDict(json_schema_extra=_without_null)
    never_null: ClassVar[Collection[str]] = FILTERS

    @field_validator("*", mode="before")
    @classmethod
    def _is_given(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and info.field_name in FILTERS:
            raise ValueError("is null, which would mean letters with any value; give a value, or leave it out")
        return value


class LetterListArguments(LetterFilters):
    after: Whole = Field(0, description="Go on behind this id: `next` of the page before.")
    limit: Limit = None
    order: Annotated[str, AfterValidator(_order)] = Field(
        OLDEST, description="`oldest` or `newest`: which letters come first."
    )


class LetterPageArguments(LetterListArguments):
    payloads: bool = Field(False, description="With the bodies; then a page holds fewer letters if they are large.")


class LetterFilter:
    """`LetterFilters` as a test of letters, at one instant."""

    def __init__(self, wanted: LetterFilters, now: int, *, may_see: Callable[[str], bool] | None = None) -> None:
        """`may_see`: only letters of queues for which it answers True.

        Raises:
            InvalidOptions: an unknown reason.
        """
        self._wanted = wanted
        self._may_see = may_see
        self.reason = None if wanted.reason is None else Reason(enum_of(Reason, wanted.reason, "reason"))
        self.fingerprint = None if wanted.fingerprint is None else fingerprint_number(wanted.fingerprint)
        self.since, self.until = _since(wanted, now), _until(wanted, now)
        """Instants of death that are meant, inclusive."""
        self.after = max((wanted.from_id or 1) - 1, 0 if wanted.ids is None else min(wanted.ids, default=1) - 1, 0)
        """Ids above this one are meant, ..."""
        last = INSTANT_MAX - 1 if wanted.ids is None else max(wanted.ids, default=0)
        self.below = min(last, INSTANT_MAX - 1 if wanted.to_id is None else wanted.to_id) + 1
        """... and below this one."""
        self._ids = None if wanted.ids is None else frozenset(wanted.ids)
        self.stretches = IdStretches(self._ids)
        """Where the ids that are named are."""

    def choice(self, queue_ids: frozenset[int] | None) -> LetterChoice:
        """What the index decides. `queue_ids`: see `DeadLetterReader.queue_ids`."""
        return LetterChoice(
            queue_ids=queue_ids,
            reason=None if self.reason is None else int(self.reason),
            fingerprint=self.fingerprint,
            since=self.since,
            until=self.until,
        )

    def groups(self, queue_ids: frozenset[int] | None) -> DeadGroupsWanted:
        """The same of groups, where whole ones are meant; see `DeadLetterReader.may_be_others`."""
        return DeadGroupsWanted(
            queue_ids=queue_ids,
            reason=None if self.reason is None else int(self.reason),
            fingerprint=self.fingerprint,
        )

    def fits(self, facts: DeadFacts, queue: str) -> bool:
        """Whether what is known without the message fits. Of the group of all others only the index knows."""
        wanted = self._wanted
        return (
            (wanted.queue is None or queue == wanted.queue)
            and (self.reason is None or facts.reason is self.reason)
            and (self._ids is None or facts.dead_id in self._ids)
            and self.after < facts.dead_id < self.below
            and self.since <= facts.dead_at <= self.until
            and (wanted.error is None or wanted.error in facts.error)
            and (not self.fingerprint or fingerprint(facts.error) == self.fingerprint)
            and (self._may_see is None or self._may_see(queue))
        )

    def row_fits(self, letter: DeadLetter) -> bool:
        """Whether the message fits as well."""
        wanted = self._wanted
        if not wanted.need_rows:
            return True
        view = RowView(letter.row)
        if wanted.message_id is not None and view.message_id != wanted.message_id:
            return False
        headers = view.headers if wanted.header or wanted.replayed is not None else {}
        if wanted.replayed is not None and wanted.replayed is not (replay_count(headers) > 0):
            return False
        return all(headers.get(key) == value for key, value in wanted.header.items())


def _since(wanted: LetterFilters, now: int) -> int:
    given = [] if wanted.since is None else [wanted.since]
    given += [] if wanted.newer_than_ms is None else [now - wanted.newer_than_ms]
    return max([0, *given])


def _until(wanted: LetterFilters, now: int) -> int:
    given = [] if wanted.until is None else [wanted.until]
    given += [] if wanted.older_than_ms is None else [now - wanted.older_than_ms]
    # Before the epoch no instant is, and nothing has died in its first millisecond: 0 would mean that there is no end.
    return max(1, min([INSTANT_MAX, *given]))
