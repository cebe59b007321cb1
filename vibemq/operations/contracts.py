"""What operations need from the rooms around them; each is a small part of something larger."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from typing import Any, Protocol, TypeVar, runtime_checkable

from vibemq.model.access import Principal
from vibemq.model.commands import Command
from vibemq.model.dead.groups import DeadGroupPage, DeadGroupsWanted
from vibemq.model.effects import (
    ApplicationFigures,
    ConsumerFigures,
    CursorInfo,
    Extent,
    HeldMessage,
    Kept,
    MessageFacts,
    Movable,
    QueueDepth,
    QueueHead,
    Reach,
    Reply,
    Span,
)
from vibemq.model.jobs.job import StoredJob, Stretch
from vibemq.model.options import QueueOptions
from vibemq.model.records import Plan
from vibemq.model.rows import LargeRow
from vibemq.model.runs import Run
from vibemq.model.shared.queue_info import GroupInfo, QueueInfo
from vibemq.model.stored import DeadPage, DeadPageWanted
from vibemq.storage.interface import IStorageProvider

Result = TypeVar("Result")


class ReaderQuestions(Protocol):
    """Questions to the engine that change nothing; see `vibemq.engine.range_views`."""

    @property
    def cursors_made(self) -> int: ...

    def queue(self, name: str, incarnation: str | None = None) -> QueueHead: ...

    def options(self, name: str) -> QueueOptions: ...

    def extent(self, name: str, incarnation: str | None = None) -> Extent: ...

    def tail(self, name: str) -> int | None: ...

    def cursor(self, name: str, group: str, incarnation: str | None = None) -> CursorInfo: ...

    def groups(
        self, name: str, after: str | None, limit: int, incarnation: str | None = None, *, only: str | None = None
    ) -> list[tuple[GroupInfo, CursorInfo | None]]: ...

    def dead_tail(self) -> int: ...

    def last_dead_id(self) -> int: ...

    def first_near(self, name: str, instant: int) -> int: ...

    def reach(
        self,
        name: str,
        group: str | None,
        start: int,
        max_messages: int,
        max_bytes: int,
        incarnation: str | None,
        before: Reach | None = None,
    ) -> tuple[Reach, list[Run]]: ...

    def planned(self, name: str, group: str, tag: str, incarnation: str | None) -> Plan | None: ...

    def is_unread(self, name: str, group: str, tag: str, incarnation: str | None) -> bool: ...

    def cuts(
        self, name: str, group: str | None, start: int, end: int, parts: int, incarnation: str | None
    ) -> list[int]: ...

    def size_between(self, name: str, start: int, end: int) -> int: ...

    def span(self, name: str, group: str | None, start: int, end: int, incarnation: str | None) -> Span: ...

    def priorities(self, name: str, first: int, last: int) -> dict[int, int]: ...

    def kept(
        self, name: str, start: int, end: int, most: int, incarnation: str | None = None
    ) -> Generator[None, None, Kept]: ...

    def held(self, name: str, start: int, most: int) -> Generator[None, None, list[HeldMessage]]: ...

    def delayed(self, name: str, start: int, most: int) -> list[tuple[int, int]]: ...

    def ready(self, name: str, start: int, most: int) -> list[Run]: ...

    def is_wanted(self, name: str, sequence: int) -> Generator[None, None, bool]: ...

    def is_ordered(self, name: str) -> bool: ...

    def movable(
        self, name: str, to: str, start: int, below: int, most: int, incarnation: str | None = None
    ) -> Movable: ...

    def facts(
        self, name: str, runs: list[Run], incarnation: str | None = None
    ) -> Generator[None, None, dict[int, MessageFacts]]: ...

    def last_version(self, app: str, user: str = "") -> int | None: ...

    def unfinished_stages(self, app: str | None = None) -> list[str]: ...

    def staged_batches(self, stage: str) -> tuple[int, list[Run]]: ...

    def plain_part(self, stage: str) -> tuple[int, list[Run], bool, bool]: ...

    def old_stages(self) -> list[str]: ...

    def consumers(self, name: str) -> Generator[None, None, list[ConsumerFigures]]: ...

    def consumers_of_session(self, session: int, first: int, most: int) -> list[ConsumerFigures]: ...

    def session_consumers(self, session: int) -> list[int]: ...

    def session_load(self, session: int) -> tuple[int, int]: ...

    def applications(self) -> Iterator[ApplicationFigures]: ...


class JobQuestions(Protocol):
    """The jobs that are kept; see `vibemq.engine.jobs.job_table`."""

    @property
    def waiting(self) -> Set[int]: ...

    def has_room(self) -> bool: ...

    def get(self, job_id: int) -> StoredJob | None: ...

    def with_key(self, user: str, key: str, since: int, now: int) -> StoredJob | None: ...

    def running(self) -> list[StoredJob]: ...

    def page(self, before: int, limit: int, fits: Callable[[StoredJob], bool]) -> list[StoredJob]: ...


class EngineQuestions(Protocol):
    @property
    def readers(self) -> ReaderQuestions: ...

    @property
    def jobs(self) -> JobQuestions: ...

    def describing(self, name: str) -> Generator[None, None, QueueInfo] | None: ...

    def options_of(self, name: str) -> tuple[str, QueueOptions] | None: ...

    def check_new_queue(self, name: str, options: QueueOptions) -> None: ...

    def depth(self, name: str) -> Generator[None, None, QueueDepth] | None: ...

    def unsettled(self, job_id: int) -> Generator[None, None, bool]: ...

    def settled(self, job_id: int) -> Generator[None, None, list[Stretch]]: ...

    def waiting_runs(self, queue: str, limit: int, start: int = 0) -> list[Run]: ...


class CommandSession(Protocol):
    """The server's own session with the engine."""

    async def ask(self, make: Callable[[int, int], Command]) -> Any:
        """Have `make(session, token)` decided; the answer, when its durability holds. Raises the engine's refusal."""

    async def ask_whole(self, make: Callable[[int, int], Command]) -> Reply:
        """The same; the answer also says whether there was nothing to do."""


class StoreAccess(Protocol):
    provider: IStorageProvider

    async def call(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run one short verb of the provider."""

    async def read(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run one short verb that reads, behind the appends of everything decided so far."""

    async def read_rows(
        self, work: Callable[..., Result], queue_id: int, runs: Sequence[Run], *arguments: Any
    ) -> Result:
        """Run `work(queue_id, runs, …)`, which reads rows, behind their append."""

    async def prepared(self, make: Callable[[], bytes]) -> LargeRow:
        """A row above `LARGE_ROW_BYTES`, made in a thread, whose record is short to write."""

    async def dead_page(self, wanted: DeadPageWanted) -> DeadPage:
        """As the provider's, behind the appends of everything decided so far."""

    async def dead_groups(self, wanted: DeadGroupsWanted) -> DeadGroupPage:
        """As the provider's, in the same way."""

    async def dead_queues(self, after: int, limit: int, name: str | None = None) -> list[tuple[int, str]]:
        """As the provider's, in the same way."""

    async def aside(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run a long verb beside all others."""


class PasswordHashing(Protocol):
    @property
    def makes_hashes(self) -> bool:
        """Whether a new password is being hashed, or waits for it."""

    async def hash_password(self, password: str) -> str:
        """In a thread; few at a time."""


@runtime_checkable
class KeepsForSessions(Protocol):
    """A service that keeps something for a session between two of its requests."""

    def forget_session(self, session: int) -> None:
        """The session is gone."""


class InstantSource(Protocol):
    def now(self) -> int: ...


class BrokerReport(Protocol):
    """What monitoring knows."""

    def info(self) -> Mapping[str, Any]: ...

    async def latest_metrics(self) -> Mapping[str, Any]: ...


class ListedPeer(Protocol):
    """One connection, for a list of them."""

    number: int
    """Ascending in the order of arrival."""

    def described(self) -> dict[str, Any]: ...


class ClosablePeer(Protocol):
    number: int
    """Of its session."""
    connection_id: str

    @property
    def ending(self) -> bool: ...

    @property
    def principal(self) -> Principal | None: ...

    def dismiss(self, reason: str, *, clean: bool = True) -> None:
        """`clean`: what it holds is given to others as if it had never been handed out."""

    def redirect(self, host: str, port: int) -> bool:
        """False: its protocol has no word for that, or it is leaving."""


class HoldingPeer(Protocol):
    """Who has messages, for a list of them."""

    number: int
    """Of its session."""
    connection_id: str
    protocol: str

    @property
    def client_name(self) -> str: ...

    @property
    def principal(self) -> Principal | None: ...


class KnownPeer(ClosablePeer, HoldingPeer, Protocol):
    """Somebody who may act."""


class NamedPeer(Protocol):
    """One peer, for what names it."""

    connection_id: str
    protocol: str

    @property
    def client_name(self) -> str: ...
    @property
    def principal(self) -> Principal | None: ...


class Peers(Protocol):
    def __iter__(self) -> Iterator[ListedPeer]: ...

    def peer(self, session: int) -> NamedPeer | None:
        """Whose session has that number."""

    def peers(self) -> Sequence[KnownPeer]:
        """Those of plug-ins too, which no listener has accepted."""
