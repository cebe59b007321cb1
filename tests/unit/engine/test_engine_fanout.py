"""Fan-out queues and named groups."""

import pytest

from tests.simulation.engine_driver import Driver
from vibemq.errors import GroupFenced, GroupNotFound, InvalidOptions
from vibemq.model.commands import CreateQueue, DeleteGroup, DescribeQueue, SeekGroup, Settlement, StartAt, Unsubscribe
from vibemq.model.options import DeliveryMode, QueueOptions, Retention
from vibemq.model.records import GroupCreated, GroupDeleted, GroupMoved, GroupRenamed
from vibemq.model.shared.queue_info import GroupInfo


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    return driver


def groups(driver: Driver) -> dict[str, int]:
    """Name -> unsettled."""
    return {g.name: g.waiting + g.in_flight for g in driver.info().groups}


def test_everyone_gets_everything_and_settles_for_itself(driver: Driver) -> None:
    driver.subscribe(1)
    driver.subscribe(2)
    driver.publish(3)
    assert driver.take() == {1: [1, 2, 3], 2: [1, 2, 3]}
    driver.settle(1, 1, 2, 3)
    assert sorted(groups(driver).values()) == [0, 3]
    driver.check()


def test_a_queue_has_its_groups_from_the_beginning() -> None:
    driver = Driver()
    driver.ask(CreateQueue(1, "c", "q", QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK), groups=("foo", "bar")))
    driver.publish(3)
    assert groups(driver) == {"foo": 3, "bar": 3}
    driver.subscribe(1, group="foo")
    driver.settle(1, *driver.take()[1])
    driver.check()


def test_an_existing_queue_gets_the_groups_that_it_lacks(driver: Driver) -> None:
    driver.subscribe(1, group="foo")
    driver.publish(3)
    driver.settle(1, 1)
    driver.ask(CreateQueue(1, "c", "q", groups=("foo", "bar")))
    assert groups(driver) == {"foo": 2, "bar": 2}, "a new group gets what is kept, a known one stays where it is"
    driver.ask(CreateQueue(1, "c", "q", groups=("foo", "bar")))
    assert len(driver.records_of(GroupCreated)) == 2
    driver.check()


def test_a_group_name_that_cannot_be_is_refused_before_the_queue_is_made() -> None:
    driver = Driver()
    refused = driver.ask(CreateQueue(1, "c", "q", groups=("foo", "~bar")))
    assert isinstance(refused, InvalidOptions)
    assert driver.ask(DescribeQueue(1, "d", "q")) is None


def test_the_first_subscriber_adopts_what_waited(driver: Driver) -> None:
    driver.publish(3)
    assert groups(driver) == {"": 3}
    driver.subscribe(1)
    assert driver.take() == {1: [1, 2, 3]}
    (renamed,) = driver.records_of(GroupRenamed)
    assert not renamed.durable
    assert "" not in groups(driver)


def test_further_subscribers_begin_now(driver: Driver) -> None:
    driver.publish(3)
    driver.subscribe(1)
    driver.take()
    driver.subscribe(2)
    driver.publish(1)
    assert driver.take() == {1: [4], 2: [4]}


def test_a_passing_group_ends_with_its_consumer(driver: Driver) -> None:
    driver.subscribe(1)
    driver.subscribe(2)
    driver.publish(2)
    driver.close(2)
    assert len(groups(driver)) == 1
    assert len(driver.records_of(GroupDeleted)) == 1
    driver.check()


def test_the_last_to_leave_leaves_everything_unsettled_to_the_next(driver: Driver) -> None:
    driver.subscribe(1)
    driver.publish(3)
    driver.settle(1, 1)
    driver.close(1, clean=True)
    assert groups(driver) == {"": 2}
    driver.publish(1)
    driver.subscribe(2)
    assert driver.take()[2] == [2, 3, 4]


def test_an_unsubscribed_passing_group_lives_until_its_messages_are_settled(driver: Driver) -> None:
    driver.subscribe(1)
    driver.subscribe(2)
    driver.publish(1)
    driver.ask(Unsubscribe(2, None, 1))
    assert len(groups(driver)) == 2
    driver.settle(2, 1)
    assert len(groups(driver)) == 1


def test_named_groups_are_durable_and_shared(driver: Driver) -> None:
    driver.subscribe(1, group="billing", capacity_messages=1)
    driver.subscribe(2, group="billing", capacity_messages=1)
    driver.publish(2)
    assert driver.take() == {1: [1], 2: [2]}
    driver.close(1, clean=True)
    driver.close(2, clean=True)
    driver.publish(1)
    driver.restart()
    assert groups(driver) == {"billing": 3}
    driver.subscribe(3, group="billing")
    assert driver.take() == {3: [1, 2, 3]}


def test_passing_groups_do_not_outlive_a_crash(driver: Driver) -> None:
    driver.subscribe(1, group="durable")
    driver.subscribe(2)
    driver.publish(2)
    driver.restart()
    assert groups(driver) == {"durable": 2}
    driver.check()


def test_after_a_crash_the_passing_group_with_most_to_do_waits(driver: Driver) -> None:
    driver.subscribe(1)
    driver.subscribe(2)
    driver.publish(3)
    driver.settle(1, 1, 2)
    driver.restart()
    assert groups(driver) == {"": 3}
    driver.check()


def test_named_groups_of_a_round_robin_queue_see_every_message() -> None:
    driver = Driver()
    driver.create()
    driver.subscribe(1)
    driver.publish(2)
    driver.take()
    driver.subscribe(2, group="audit", start=StartAt.BEGINNING)
    driver.publish(1)
    assert driver.take() == {1: [3], 2: [1, 2, 3]}


def test_a_new_named_group_begins_now_when_others_wait() -> None:
    driver = Driver()
    driver.publish(2)
    driver.subscribe(2, group="audit")
    driver.publish(1)
    assert driver.take() == {2: [3]}


@pytest.mark.parametrize(
    ("start", "sequence", "expected"),
    [(StartAt.BEGINNING, 0, [1, 2, 3, 4, 5]), (StartAt.SEQUENCE, 4, [4, 5]), (StartAt.NOW, 0, [5])],
)
def test_where_a_group_of_a_log_begins(start: StartAt, sequence: int, expected: list[int]) -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=Retention.LOG)
    driver.subscribe(1)
    driver.publish(4)
    driver.settle(1, 1, 2, 3, 4)
    driver.take()
    driver.subscribe(2, group="late", start=start, start_sequence=sequence)
    driver.publish(1)
    assert driver.take()[2] == expected
    driver.check()


def test_beyond_the_end_a_group_waits_for_its_sequence() -> None:
    driver = Driver()
    driver.subscribe(1, group="g", start=StartAt.SEQUENCE, start_sequence=3)
    driver.publish(4)
    assert driver.take() == {1: [3, 4]}


@pytest.mark.parametrize("retention", Retention)
@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_published_when_a_subscriber_beyond_the_end_has_gone_waits(
    retention: Retention, restarts: bool
) -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=retention)
    driver.publish(3)
    driver.subscribe(1, start=StartAt.SEQUENCE, start_sequence=100)
    driver.restart() if restarts else driver.close(1, clean=True)
    driver.publish(2)
    driver.check()
    driver.restart()
    driver.subscribe(2)
    driver.publish(1)
    assert driver.take() == {2: [4, 5, 6]}
    driver.check()


def test_a_waiting_group_that_an_earlier_version_has_left_beyond_the_end_waits_for_what_comes(driver: Driver) -> None:
    driver.publish(3)
    (queue,) = driver.disk.queues.values()
    queue.groups[0].head = 100
    driver.restart()
    driver.publish(2)
    driver.restart()
    driver.subscribe(2)
    assert driver.take() == {2: [4, 5]}
    driver.check()


def test_without_a_log_the_beginning_is_what_others_still_need(driver: Driver) -> None:
    driver.subscribe(1)
    driver.publish(3)
    driver.settle(1, 2)
    driver.take()
    driver.subscribe(2, start=StartAt.BEGINNING)
    assert driver.take() == {2: [1, 3]}
    driver.check()


def test_a_subscriber_from_now_leaves_the_waiting_messages_behind(driver: Driver) -> None:
    driver.publish(3)
    driver.subscribe(1, start=StartAt.NOW)
    driver.publish(1)
    assert driver.take() == {1: [4]}
    driver.check()


def test_an_existing_group_goes_on_where_it_was(driver: Driver) -> None:
    driver.subscribe(1, group="g")
    driver.publish(3)
    driver.settle(1, 1)
    driver.close(1, clean=True)
    driver.take()
    driver.subscribe(2, group="g", start=StartAt.BEGINNING)
    assert driver.take() == {2: [2, 3]}


def test_failures_are_each_groups_own(driver: Driver) -> None:
    driver.subscribe(1, group="a")
    driver.subscribe(2, group="b")
    driver.publish(1)
    driver.settle(1, 1, verb=Settlement.REJECT)
    assert groups(driver) == {"a": 0, "b": 1}
    driver.settle(2, 1)
    driver.check()


@pytest.mark.parametrize("name", ["~mine", "x" * 257])
def test_impossible_group_names_are_refused(driver: Driver, name: str) -> None:
    assert isinstance(driver.subscribe(1, group=name), InvalidOptions)


# -- SeekGroup and DeleteGroup --------------------------------------------------------------------------------------


@pytest.fixture
def log() -> Driver:
    """A log of five messages, settled by group g of session 1."""
    driver = Driver()
    driver.create(retention=Retention.LOG)
    driver.subscribe(1, group="g", start=StartAt.BEGINNING)
    driver.publish(5)
    driver.settle(1, 1, 2, 3, 4, 5)
    driver.take()
    return driver


def test_seeking_moves_the_cursor_and_fences_the_old_owner(log: Driver) -> None:
    info = log.ask(SeekGroup(2, None, "q", "g", StartAt.SEQUENCE, 4))
    assert info == GroupInfo("g", durable=True, head=4, waiting=2, in_flight=0, consumers=0, epoch=1)
    (ended,) = log.ended()
    assert (ended.session, type(ended.error)) == (1, GroupFenced)
    assert str(ended.error) == "group 'g' of queue 'q' was moved; subscribe again to go on where it is"
    log.subscribe(2, group="g")
    assert log.take() == {2: [4, 5]}
    log.check()


def test_its_own_consumers_stay_and_get_the_messages_again(log: Driver) -> None:
    log.ask(SeekGroup(1, None, "q", "g", StartAt.BEGINNING))
    assert log.take() == {1: [1, 2, 3, 4, 5]}
    assert log.ended() == []


def test_seeking_nowhere_only_takes_over(log: Driver) -> None:
    log.publish(2)
    log.settle(1, 6)
    info = log.ask(SeekGroup(2, None, "q", "g", StartAt.DEFAULT))
    assert (info.head, info.waiting, info.epoch) == (7, 1, 1)
    log.check()


def test_seeking_creates_a_missing_group(log: Driver) -> None:
    info = log.ask(SeekGroup(2, None, "q", "new", StartAt.SEQUENCE, 2))
    assert (info.waiting, info.epoch) == (4, 0)
    assert log.records_of(GroupCreated)[-1].name == "new"


def test_the_epoch_survives_a_restart(log: Driver) -> None:
    log.ask(SeekGroup(2, None, "q", "g", StartAt.NOW))
    log.restart()
    assert log.ask(SeekGroup(2, None, "q", "g", StartAt.NOW)).epoch == 2
    assert len(log.records_of(GroupMoved)) == 2


def test_deleting_a_group_ends_its_consumers(log: Driver) -> None:
    assert log.ask(DeleteGroup(2, None, "q", "g")) is None
    assert [type(ended.error) for ended in log.ended()] == [GroupNotFound]
    assert "g" not in groups(log)
    log.settle(1, 1)
    log.check()


def test_a_fan_out_queue_without_groups_waits_again(driver: Driver) -> None:
    driver.subscribe(1, group="g")
    driver.publish(2)
    driver.ask(DeleteGroup(1, None, "q", "g"))
    assert groups(driver) == {"": 0}
    driver.publish(1)
    driver.subscribe(2)
    assert driver.take()[2] == [3]
    driver.check()


def test_missing_groups_and_the_default_group_cannot_be_deleted(log: Driver) -> None:
    assert isinstance(log.ask(DeleteGroup(1, None, "q", "none")), GroupNotFound)
    assert isinstance(log.ask(DeleteGroup(1, None, "q", "")), InvalidOptions)


def test_what_nobody_waits_for_is_not_expected_by_a_later_group() -> None:
    driver = Driver()
    driver.create()
    driver.ask(SeekGroup(1, None, "q", "", StartAt.SEQUENCE, 50))
    driver.hold = True
    driver.publish(1)
    driver.subscribe(1, group="g", start=StartAt.BEGINNING)
    driver.hold = False
    driver.keep()
    assert driver.take() == {}
    driver.publish(1)
    assert driver.take() == {1: [2]}
    driver.check()


def test_groups_are_made_with_their_queue_before_anybody_publishes_or_consumes() -> None:
    driver = Driver()
    names = ("foo", "bar", "baz")
    driver.hold = True
    driver.handle(
        CreateQueue(1, "q", "q", QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK)),
        *(SeekGroup(1, name, "q", name, StartAt.BEGINNING) for name in names),
    )
    # One outcome: all of it is on the disk, or nothing.
    assert len(driver.waiting) == 1
    assert [driver.answer(name) for name in names] == [None, None, None]
    driver.hold = False
    driver.keep()
    driver.publish(2)
    driver.restart()
    for session, name in enumerate(names, 1):
        driver.subscribe(session, group=name)
        assert driver.take() == {session: [1, 2]}
    driver.check()
