"""Groups that another query has now, and queries that make no progress."""

from collections.abc import Callable

import pytest

pytest.importorskip("pyspark")
from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import Query, options_of
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import Refused
from vibemq.spark.options import parse

pytestmark = pytest.mark.slow
Publish = Callable[..., None]


def test_the_older_query_of_a_group_is_fenced(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    publish(queue, 0, 10)
    older = Query(broker, queue=queue)
    end, _ = older.batch(older.live.initialOffset())
    newer = Query(broker, queue=queue)
    start = newer.live.initialOffset()
    older.live.commit(end)  # Says nothing, but in the log.
    with pytest.raises(Refused, match=r"group 'etl' of queue .* is another query's now.* load\(\) .* a group for each"):
        older.latest(end)
    assert newer.batch(start)[1] == list(range(10)), "the newer one goes on"


@pytest.mark.parametrize("ack_on", ["commit", "never"])
def test_a_query_that_does_not_acknowledge_is_fenced_too(broker: BrokerProcess, queue: str, ack_on: str) -> None:
    older = Query(broker, queue=queue, ackOn=ack_on)
    start = older.live.initialOffset()
    assert older.latest(start) == start
    Query(broker, queue=queue).live.initialOffset()
    with pytest.raises(Refused, match="is another query's now"):
        older.latest(start)


def test_who_is_fenced_is_told_so_and_not_what_it_found(broker: BrokerProcess, queue: str, publish: Publish) -> None:
    """The look does not wait for the refusal of the acknowledgement; here it finds that the messages are gone."""
    publish(queue, 0, 6)
    older = Query(broker, queue=queue, maxMessagesPerTrigger=2)
    start, _ = older.batch(older.live.initialOffset())
    newer = Query(broker, queue=queue)
    end, numbers = newer.batch(start)
    assert numbers == [2, 3, 4, 5]
    newer.latest(end)
    with pytest.raises(Refused) as refused:
        older.latest(start)
    assert refused.value.code == "GROUP_FENCED"


def test_a_standstill_is_told_and_names_no_messages(
    broker: BrokerProcess, queue: str, publish: Publish, capfd: pytest.CaptureFixture[str]
) -> None:
    publish(queue, 0, 10)
    for _ in range(3):
        query = Query(broker, queue=queue)
        query.batch(query.live.initialOffset())
    said = capfd.readouterr().err
    assert said.count("no progress: group 'etl'") == 1
    assert "If drivers were killed, nothing is wrong" in said
    assert "1-10" not in said
    BrokerClient(parse(options_of(broker))).call("group.quarantine", queue, {"group": "etl", "runs": [[3, 5]]})
    query = Query(broker, queue=queue)
    assert query.batch(query.live.initialOffset())[1] == [0, 1, 5, 6, 7, 8, 9]
