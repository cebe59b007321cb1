"""Which queues have series of their own, and what the rest adds up to."""

import re
from array import array
from collections import Counter

from vibemq.model.effects import COUNTERS
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.monitoring.prometheus import METRICS, Scrape, SeriesChoice, exposition
from vibemq.server.monitoring.snapshot import COLUMNS, CursorRow, Snapshot
from vibemq.server.monitoring.status import BrokerStatus

PUBLISHED = "vibemq_messages_published_total"


def snapshot(*queues: tuple[int, int, int], oldest_at: int = 0) -> Snapshot:
    """(queue_id, ready, published) of each."""
    columns: dict[str, array[int]] = {name: array("q", [0] * len(queues)) for name in COLUMNS}
    columns["queue_id"] = array("q", [queue[0] for queue in queues])
    columns["ready"] = array("q", [queue[1] for queue in queues])
    columns["published"] = array("q", [queue[2] for queue in queues])
    columns["oldest_at"] = array("q", [oldest_at] * len(queues))
    return Snapshot([f"q{queue[0]}" for queue in queues], dict(columns), [], Counter())


def samples(choice: SeriesChoice, taken: Snapshot, metric: str = PUBLISHED) -> dict[str, float]:
    page = exposition(Scrape(taken, BrokerStatus(), Metrics(), 1_000_000, 5.0), choice).decode()
    return {label: float(value) for label, value in re.findall(rf'^{metric}{{queue="(.*?)"}} (\S+)$', page, re.M)}


def test_few_queues_have_a_series_each_and_there_are_no_others() -> None:
    assert samples(SeriesChoice(2), snapshot((1, 0, 5), (2, 0, 6))) == {"q1": 5, "q2": 6}


def test_a_queue_with_the_name_of_the_others_is_one_of_them() -> None:
    taken = snapshot((1, 0, 5), (2, 9, 6), (3, 1, 7))
    taken.names[1] = "_other"
    page = exposition(Scrape(taken, BrokerStatus(), Metrics(), 1_000_000, 5.0), SeriesChoice(1)).decode()
    found = re.findall(rf'^{PUBLISHED}{{queue="(.*?)"}} (\S+)$', page, re.M)
    assert found == [("q3", "7"), ("_other", "11")]


def test_a_protocol_that_nobody_uses_has_no_connections() -> None:
    taken = snapshot()
    taken.connections = {"native": 2}
    scrape = Scrape(taken, BrokerStatus(), Metrics(), 1_000_000, 5.0, ("native", "eventmesh"))
    page = exposition(scrape, SeriesChoice(1)).decode()
    found = re.findall(r'^vibemq_connections{protocol="(.*?)"} (\S+)$', page, re.M)
    assert found == [("native", "2"), ("eventmesh", "0")]


def test_of_many_the_deepest_have_one_and_the_others_are_summed() -> None:
    assert samples(SeriesChoice(1), snapshot((1, 0, 5), (2, 9, 6), (3, 1, 7))) == {"q2": 6, "_other": 12}


def test_who_has_a_series_keeps_it() -> None:
    choice = SeriesChoice(1)
    samples(choice, snapshot((1, 5, 1), (2, 0, 1)))
    assert samples(choice, snapshot((1, 0, 2), (2, 50, 2))) == {"q1": 2, "_other": 2}


def test_the_others_never_fall() -> None:
    choice = SeriesChoice(1)
    assert samples(choice, snapshot((1, 5, 100), (2, 4, 10), (3, 0, 20)))["_other"] == 30
    # The first is deleted and the second gets its place: what it had counted among the others stays there.
    assert samples(choice, snapshot((2, 4, 11), (3, 0, 21))) == {"q2": 11, "_other": 31}
    # The third is deleted: what it had counted stays, too.
    assert samples(choice, snapshot((2, 4, 11))) == {"q2": 11, "_other": 31}
    assert samples(choice, snapshot((2, 4, 11), (5, 0, 2))) == {"q2": 11, "_other": 33}


def test_none_means_one_sum_of_all() -> None:
    assert samples(SeriesChoice(0), snapshot((1, 0, 5), (2, 9, 6))) == {"_other": 11}


def test_the_age_of_the_others_is_that_of_the_oldest_of_them() -> None:
    choice = SeriesChoice(1)
    taken = snapshot((1, 9, 5), (2, 1, 6), oldest_at=990_500)
    assert samples(choice, taken, "vibemq_queue_oldest_message_age_seconds") == {"q1": 9.5, "_other": 9.5}


def test_a_name_is_escaped() -> None:
    taken = snapshot((1, 0, 5))
    taken.names[0] = 'a"b\\c\n'
    page = exposition(Scrape(taken, BrokerStatus(), Metrics(), 1_000_000, 5.0), SeriesChoice(1)).decode()
    assert 'queue="a\\"b\\\\c\\n"' in page


def test_cursors_are_bounded_by_their_lag() -> None:
    taken = snapshot((1, 0, 5))
    taken.cursors = [CursorRow("q1", f"g{number}", number, 0, 1) for number in range(10)]
    page = exposition(Scrape(taken, BrokerStatus(), Metrics(), 1_000_000, 5.0), SeriesChoice(2)).decode()
    assert re.findall(r'^vibemq_group_backlog{queue="q1",group="(\w+)"}', page, re.M) == ["g9", "g8"]


def test_counters_are_called_total_and_each_metric_is_declared_once() -> None:
    assert all(metric.name.endswith("_total") == (metric.kind == "counter") for metric in METRICS)
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert set(COUNTERS) <= set(COLUMNS)
