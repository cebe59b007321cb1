"""A broker that is killed between any two requests of a query."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import Query
from vibemq.spark.connection.client import BrokerClient


def killing(broker: BrokerProcess, when: int, patch: pytest.MonkeyPatch) -> list[int]:
    """Before so many requests; the list counts down to it."""
    left = [when]
    real = BrokerClient.ask

    def ask(self: Any, *arguments: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            broker.kill()
            broker.start()
        return real(self, *arguments, **more)

    patch.setattr(BrokerClient, "ask", ask)
    return left


@pytest.mark.long(
    covered_by="tests/unit/spark/test_timeline.py::"
    "test_a_query_without_a_checkpoint_begins_though_the_broker_is_killed_before_its_first_task"
)
@pytest.mark.parametrize("durability", ["strong", "async"])
def test_a_broker_is_killed_between_any_two_requests(
    broker: BrokerProcess, mq: Any, queue: str, publish: Callable[..., None], durability: str
) -> None:
    """The query goes on, and reads every message once: also where the last thing that happened is a join."""
    queues = [f"{queue}.a", f"{queue}.b"]
    for name in queues:
        mq.create_queue(name, retention="log", durability=durability)
        publish(name, 0, 2)
    for when in count(1):
        with pytest.MonkeyPatch.context() as patch:
            left = killing(broker, when, patch)
            query = Query(broker, queues=",".join(queues), group=f"etl-{when}", columns="queue,body", hold="15m")
            offset, seen = query.live.initialOffset(), []
            while (end := query.latest(offset)) != offset:
                seen += [(row["queue"], int(row["body"])) for row in query.rows(offset, end)]
                offset = end
        assert sorted(seen) == [(name, number) for name in queues for number in (0, 1)], when
        if left[0] > 0:
            break
    assert when > 8, "requests of a batch and one that is empty"
