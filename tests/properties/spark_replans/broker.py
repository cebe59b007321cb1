"""A broker that a query is driven against: the engine with the real operations, over a disk of the simulation."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from tests.simulation.engine_driver import Driver
from tests.simulation.test_range_reads import Disk, finished
from vibemq.errors import VibeMQError
from vibemq.model.commands import DeleteQueue
from vibemq.model.options import Retention
from vibemq.operations.arguments import read
from vibemq.operations.groups import OPERATIONS, Groups
from vibemq.operations.range_reads import FetchArguments, RangeReads
from vibemq.spark.errors import Refused, explained
from vibemq.spark.options import STREAM, parse
from vibemq.spark.read.fetching import LOSSES, Task, check_losses

QUEUES = ("a", "b", "c")
HOLD_MS = 10_000
BEGIN_MS = 1_000_000_000
Row = tuple[str, int, int]
"""Queue, which one of its name, sequence."""
Result = dict[str, Any] | Refused
_VERBS = {operation.name: operation for operation in OPERATIONS}


class Broker:
    """The engine, asked by verb as the wire would."""

    def __init__(self, queues: Sequence[str]) -> None:
        self.driver = Driver()
        self.driver.now = BEGIN_MS
        self.queues: list[str] = []
        self._generations: dict[str, int] = {}
        """By incarnation."""
        for queue in queues:
            self.create(queue)
        self._local = SimpleNamespace(ask=self._ask)
        self._caller = SimpleNamespace(owned=lambda command: command)
        self._polls = SimpleNamespace(wait=self._wait)

    async def _ask(self, make: Callable[[int, Any], Any]) -> Any:
        answer = self.driver.ask(make(1, None))
        if isinstance(answer, VibeMQError):
            raise answer
        return answer

    async def _wait(self, *_: object) -> None:
        return

    def create(self, queue: str) -> None:
        self.driver.create(queue, retention=Retention.LOG)
        self.queues = sorted({*self.queues, queue})

    def delete(self, queue: str) -> None:
        self.driver.ask(DeleteQueue(1, None, queue))
        self.queues.remove(queue)

    def verb(self, name: str, queue: str, arguments: dict[str, Any]) -> Result:
        self.driver.advance(1)
        engine, disk = self.driver.engine, cast(Any, Disk(self.driver))
        groups = Groups(engine, disk, cast(Any, self._local), cast(Any, self._polls))
        operation = _VERBS[name]
        try:
            wanted = read(operation.arguments, name, {**arguments, "queue": queue})
            return dict(finished(cast(Any, operation.task)(groups, cast(Any, self._caller), wanted)))
        except VibeMQError as error:
            return Refused(error.code, str(error))

    def generation(self, incarnation: str) -> int:
        """Which queue of its name it is; numbers are given as they are asked for."""
        return self._generations.setdefault(incarnation, len(self._generations))

    def tail(self, queue: str) -> int:
        found = self.driver.engine.readers.queue(queue)
        return int(found.tail)

    def generation_now(self, queue: str) -> int:
        answer = self.verb("group.offsets", queue, {})
        assert not isinstance(answer, Refused), answer
        return self.generation(str(answer["incarnation"]))

    def rows(self, task: Task, *, fails_on_loss: bool = True) -> list[Row]:
        """As `fetching.read_task` reads them, which has a socket in between."""
        reads = RangeReads(self.driver.engine, cast(Any, Disk(self.driver)), cast(Any, None), cast(Any, None))
        found: list[Row] = []
        queue, incarnation, first = task["queue"], task["incarnation"], task["first"]
        while first < task["end"]:
            named = {"group": task["group"], "queue": queue, "from": first, "to": task["end"], "max_bytes": 500}
            try:
                wanted = read(FetchArguments, "group.fetch", {**named, "incarnation": incarnation})
                answer = finished(reads.fetch(cast(Any, None), wanted))
            except VibeMQError as error:
                if fails_on_loss or error.code not in LOSSES:
                    raise explained(Refused(error.code, str(error)), queue, task["group"]) from None
                if error.code != "OFFSET_GONE":
                    break
                head = int(cast(Any, self.verb("group.offsets", queue, {"group": task["group"]}))["head"])
                first = max(head, first + 1)
                continue
            lost = [(low, high) for low, high, why in answer.gaps if why == "lost"]
            check_losses(queue, lost, _STRICT if fails_on_loss else _CARELESS)
            found += [(queue, self.generation(incarnation), part.first_sequence) for part in answer.slices]
            first = answer.next
        return found


_STRICT = parse({"endpoint": "x:1", "queue": "q", "group": "g"}, STREAM)
_CARELESS = parse({"endpoint": "x:1", "queue": "q", "group": "g", "failOnDataLoss": "false"}, STREAM)


class Client:
    """In the place of the connector's own, which speaks over a socket."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def ask_verb(self, verb: str, queue: str, arguments: dict[str, Any], **_: object) -> Result:
        return self._broker.verb(verb, queue, arguments)

    def json(self, answer: Result, **_: object) -> dict[str, Any]:
        if isinstance(answer, Refused):
            raise answer
        return answer

    def call(self, verb: str, queue: str, arguments: dict[str, Any], **_: object) -> dict[str, Any]:
        return self.json(self.ask_verb(verb, queue, arguments))

    def list_queues(self, prefix: str = "") -> list[str]:
        return [name for name in self._broker.queues if name.startswith(prefix)]

    def forget(self, answer: Result) -> None:
        return

    def close(self) -> None:
        return
