"""Creating, changing, deleting, purging, describing; dead letters; a full disk; restarts."""

import pytest

from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine import EngineSettings
from vibemq.engine.handlers.queues import QUEUE_IDS_END
from vibemq.errors import (
    InvalidOptions,
    InvalidQueueName,
    PreconditionFailed,
    QueueExists,
    QueueNotFound,
    StorageFull,
    WrongIncarnation,
)
from vibemq.model.commands import (
    ChangeQueue,
    CloseSession,
    CreateQueue,
    DeleteQueue,
    DescribeQueue,
    ListQueues,
    Publish,
    PurgeDead,
    PurgeQueue,
    RemoveListed,
    RemoveMessages,
    ReplayDead,
    SetCapacity,
    Settle,
    Settlement,
    Stage,
    Subscribe,
)
from vibemq.model.effects import Counted, Published, Removed, Replayed, Reply, Subscribed
from vibemq.model.options import (
    DeliveryMode,
    Durability,
    Overflow,
    QueueOptions,
    Retention,
    options_from_dict,
    options_tag,
)
from vibemq.model.records import DeadLettered, DeadRemoved, Dropped, GroupCreated, HandedOut, QueueCreated, Settled

STRONG = QueueOptions()

# -- queues -------------------------------------------------------------------------------------------------------


def test_creating_is_strong_and_gated() -> None:
    driver = Driver()
    driver.hold = True
    driver.handle(CreateQueue(1, "t", "q", QueueOptions(durability=Durability.TRANSIENT)))
    (outcome,) = driver.waiting
    assert outcome.durability is Durability.STRONG
    assert [reply.token for reply in outcome.gated] == ["t"]


def test_no_limit_of_age_matches_however_it_is_written() -> None:
    driver = Driver()
    assert driver.ask(CreateQueue(1, None, "q", options_from_dict({"message_ttl_ms": 0}))) is None
    for no_limit in ({}, {"message_ttl_ms": None}, {"message_ttl_ms": 0}):
        assert driver.ask(CreateQueue(1, None, "q", options_from_dict(no_limit), must_match=True)) is None
    error = driver.ask(CreateQueue(1, None, "q", QueueOptions(message_ttl_ms=1), must_match=True))
    assert isinstance(error, QueueExists)


def test_creating_an_existing_queue_succeeds_unless_it_must_match() -> None:
    driver = Driver()
    driver.create(max_attempts=3)
    assert driver.ask(CreateQueue(1, None, "q", QueueOptions(max_attempts=9))) is None
    assert driver.info().options.max_attempts == 3
    assert driver.ask(CreateQueue(1, None, "q", QueueOptions(max_attempts=3), must_match=True)) is None
    error = driver.ask(CreateQueue(1, None, "q", QueueOptions(max_attempts=9), must_match=True))
    assert isinstance(error, QueueExists)
    assert "max_attempts is 3, not 9; change them with" in str(error)


@pytest.mark.parametrize(
    "for_life", [QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK), QueueOptions(durability=Durability.TRANSIENT)]
)
def test_what_no_change_would_mend_is_not_said_to_be_changed(for_life: QueueOptions) -> None:
    driver = Driver()
    driver.create()
    error = driver.ask(CreateQueue(1, None, "q", for_life, must_match=True))
    assert isinstance(error, QueueExists)
    assert "delete the queue and create it again, or use another name" in str(error)


@pytest.mark.parametrize(
    ("mode", "same"),
    [
        (DeliveryMode.ROUND_ROBIN, True),
        (DeliveryMode.PRIORITY_BASED, True),
        (DeliveryMode.FAN_OUT_WITH_ACK, False),
        (DeliveryMode.FAN_OUT_WITHOUT_ACK, False),
    ],
)
def test_an_existing_queue_of_another_kind_can_be_refused(mode: DeliveryMode, same: bool) -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.ROUND_ROBIN)
    answer = driver.ask(CreateQueue(1, None, "q", QueueOptions(mode=mode, max_attempts=9), mode=mode))
    assert answer is None if same else isinstance(answer, QueueExists)
    assert type(driver.ask(CreateQueue(1, None, "q", mode=mode))) is type(answer), "the broker's defaults say nothing"


def test_names_are_checked() -> None:
    assert isinstance(Driver().ask(CreateQueue(1, None, "a b")), InvalidQueueName)


def test_a_store_that_keeps_nothing_takes_transient_queues_only() -> None:
    driver = Driver(EngineSettings(transient_only=True))
    assert isinstance(driver.ask(CreateQueue(1, None, "q", STRONG)), InvalidOptions)
    assert driver.ask(CreateQueue(1, None, "q")) is None
    assert driver.info().options.durability is Durability.TRANSIENT
    driver.publish(1, "auto")
    assert driver.info("auto").options.durability is Durability.TRANSIENT


def test_options_change_while_the_queue_lives() -> None:
    driver = Driver()
    driver.create(max_messages=1)
    driver.publish(1)
    assert driver.ask(ChangeQueue(1, None, "q", {"max_messages": 2, "overflow": "drop-oldest"})) is None
    assert driver.publish(1).refused is None
    driver.restart()
    assert driver.info().options.overflow is Overflow.DROP_OLDEST


def test_of_changes_for_the_same_tag_in_one_batch_the_first_wins() -> None:
    """A client that writes several requests at once: all were read before any was decided."""
    driver = Driver()
    driver.create()
    info = driver.info()
    tag = options_tag(info.incarnation, info.options)
    changes = [ChangeQueue(1, number, "q", {"max_attempts": number}, if_tag=tag) for number in (7, 8)]
    replies = [effect.result for effect in driver.handle(*changes) if isinstance(effect, Reply)]
    [refused] = [result for result in replies if isinstance(result, PreconditionFailed)]
    assert refused.details["difference"] == {"max_attempts": {"current": 7, "wanted": 8}}
    assert driver.info().options.max_attempts == 7
    assert isinstance(driver.ask(DeleteQueue(1, None, "q", if_tag=tag)), PreconditionFailed)
    assert driver.ask(DeleteQueue(1, None, "q", if_tag=refused.details["tag"])) is None
    assert driver.ask(DeleteQueue(1, None, "q", if_tag=tag)) is None, "it is gone"


def test_a_smaller_limit_holds_at_once_where_the_oldest_go() -> None:
    driver = Driver()
    driver.create(overflow=Overflow.DROP_OLDEST)
    driver.publish(10)
    driver.ask(ChangeQueue(1, None, "q", {"max_messages": 4}))
    driver.advance(1)
    assert driver.info().ready == 4


@pytest.mark.parametrize("changes", [{"mode": "fan_out_with_ack"}, {"retention": "log"}, {"durability": "transient"}])
def test_what_makes_another_queue_cannot_be_changed(changes: dict[str, str]) -> None:
    driver = Driver()
    driver.create()
    assert isinstance(driver.ask(ChangeQueue(1, None, "q", dict(changes))), InvalidOptions)
    assert driver.info().options == STRONG


def test_unknown_options_and_queues_are_errors() -> None:
    driver = Driver()
    driver.create()
    assert isinstance(driver.ask(ChangeQueue(1, None, "q", {"nonsense": 1})), InvalidOptions)
    assert isinstance(driver.ask(ChangeQueue(1, None, "none", {})), QueueNotFound)


def test_deleting_ends_consumers_and_forgets_what_they_hold() -> None:
    driver = Driver()
    driver.subscribe(1)
    driver.publish(3)
    assert driver.ask(DeleteQueue(2, None, "q")) is None
    (ended,) = driver.ended()
    assert isinstance(ended.error, QueueNotFound)
    driver.settle(1, 1)
    assert driver.engine.queue_info("q") is None
    assert driver.engine.in_flight_count == 0
    assert driver.ask(DeleteQueue(2, None, "q")) is None
    driver.check()


def test_a_queue_of_the_same_name_is_another_one() -> None:
    driver = Driver()
    driver.publish(3)
    before = driver.info()
    driver.ask(DeleteQueue(2, None, "q"))
    driver.publish(1)
    after = driver.info()
    assert after.next_sequence == 2
    assert (before.queue_id, before.incarnation) != (after.queue_id, after.incarnation)


def test_deleting_while_messages_are_on_their_way() -> None:
    driver = Driver()
    driver.create()
    driver.hold = True
    driver.publish(1)
    driver.handle(DeleteQueue(2, None, "q"))
    driver.keep()
    assert driver.answer("token-2") == Published("q", 1, 1)
    driver.check()


def test_purging_drops_what_waits_and_not_what_is_in_flight() -> None:
    driver = Driver()
    driver.subscribe(1, capacity_messages=2)
    driver.publish(5)
    driver.publish(1, deliver_at=driver.now + 1_000)
    assert driver.ask(PurgeQueue(1, None, "q")) == Counted(4)
    assert driver.info().in_flight == 2
    driver.advance(2_000)
    driver.settle(1, 1, 2)
    driver.check()


def test_removing_drops_single_messages() -> None:
    driver = Driver()
    driver.publish(5)
    assert driver.ask(RemoveMessages(1, None, "q", [(2, 3), (9, 12), (5, 4)])) == Counted(2)
    driver.subscribe(1)
    assert driver.take() == {1: [1, 4, 5]}


def test_removing_listed_messages_says_which_they_were() -> None:
    driver = Driver()
    driver.subscribe(1, capacity_messages=2)
    driver.publish(6)
    driver.publish(1, deliver_at=driver.now + 1_000)
    listed = [2, 4, 4, 7, 9]
    looked = driver.ask(RemoveListed(1, None, "q", listed, dry_run=True))
    assert driver.info().ready == 4
    assert driver.ask(RemoveListed(1, None, "q", listed)) == looked == Removed([(4, 4), (7, 7)], [(2, 2)])
    driver.settle(1, 1, 2)
    driver.advance(2_000)
    assert driver.take() == {1: [1, 2, 3, 5]}
    driver.check()


def test_ids_of_letters_that_are_not_kept_are_never_given_again() -> None:
    driver = Driver()
    driver.create("t", durability=Durability.TRANSIENT)
    driver.create("s")

    for queue, count in (("t", 900), ("s", 150), ("t", 1), ("s", 1_500), ("t", 1)):
        done = driver.publish(count, queue=queue)
        driver.subscribe(1, queue, capacity_messages=count)
        driver.settle(1, *range(done.first_sequence, done.first_sequence + count), verb=Settlement.REJECT)
        driver.close(1)
        driver.advance(1)
    given = [letter.dead_id for record in driver.records_of(DeadLettered) for letter in record.letters]
    assert len(given) == 2_552
    assert given == sorted(set(given))
    named = [record.dead_ids[0] for record in driver.records_of(DeadRemoved)]
    assert len(named) == 2, "a record for many letters"
    assert named[0] < given[-1]
    assert not set(named) & set(given), "the disk was told that there is no such letter"
    assert driver.disk.next_dead_id > given[-1]


def test_a_full_disk_takes_back_no_transient_message_for_the_id_of_a_letter() -> None:
    driver = Driver()
    driver.create("t", durability=Durability.TRANSIENT)
    driver.subscribe(1, "t", capacity_messages=1)
    driver.publish(1, queue="t")
    driver.hold = True
    reject = Settle(1, None, 1, Settlement.REJECT, [(1, 1)])
    driver.handle(reject, Publish(9, "confirmed", "t", rows_of(1)))
    assert driver.answer("confirmed").refused is None
    driver.advance(1)
    assert [outcome.durability for outcome in driver.waiting] == [Durability.TRANSIENT, Durability.ASYNC]
    driver.keep(1)
    driver.refuse()
    assert (driver.info("t").ready + driver.info("t").in_flight, driver.info("t").dead) == (1, 1)
    # The disk has room again, and then the broker is killed.
    driver.hold = False
    driver.advance(2_000)
    driver.restart()
    driver.create("s")
    driver.publish(1, queue="s")
    driver.subscribe(1, "s")
    driver.settle(1, 1, verb=Settlement.REJECT)
    *_, first, second = [letter.dead_id for record in driver.records_of(DeadLettered) for letter in record.letters]
    assert second > first
    driver.check()


def test_messages_that_were_found_in_another_queue_of_that_name_are_not_removed() -> None:
    driver = Driver()
    driver.publish(2)
    found_in = driver.info().incarnation
    driver.ask(DeleteQueue(1, None, "q"))
    driver.publish(2)
    assert isinstance(driver.ask(RemoveListed(1, None, "q", [1, 2], incarnation=found_in)), WrongIncarnation)
    assert driver.info().ready == 2
    assert driver.ask(RemoveListed(1, None, "q", [1], incarnation=driver.info().incarnation)).removed == [(1, 1)]


def test_a_listed_message_that_one_subscriber_holds_leaves_the_others() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.subscribe(1, group="a", capacity_messages=1)
    driver.subscribe(2, group="b", capacity_messages=0)
    driver.handle(SetCapacity(2, None, 1, 0))
    driver.publish(3)
    assert driver.ask(RemoveListed(9, None, "q", [1, 2])) == Removed([(1, 2)], [(1, 1)])
    driver.settle(1, 1)
    driver.handle(SetCapacity(2, None, 1, 5))
    assert driver.take() == {1: [1, 3], 2: [3]}
    driver.check()


def test_what_is_on_its_way_to_the_disk_is_not_removed() -> None:
    driver = Driver()
    driver.publish(2)
    driver.hold = True
    driver.publish(2)
    driver.handle(RemoveListed(9, "removal", "q", [2, 3]))
    driver.hold = False
    driver.keep()
    assert driver.answer("removal") == Removed([(2, 2)], [])
    driver.check()


def test_purging_a_log_empties_it() -> None:
    driver = Driver()
    driver.create(retention=Retention.LOG)
    driver.subscribe(1)
    driver.publish(2)
    driver.settle(1, 1)
    assert driver.ask(PurgeQueue(1, None, "q")) == Counted(1)
    driver.check()


def test_descriptions() -> None:
    driver = Driver()
    driver.create("b", durability=Durability.ASYNC)
    driver.subscribe(1, "b", capacity_messages=1)
    driver.publish(3, "b", size=100)
    driver.publish(1, "a")
    info = driver.ask(DescribeQueue(1, None, "b"))
    assert (info.ready, info.in_flight, info.consumers, info.size) == (2, 1, 1, 200)
    assert (info.first_sequence, info.next_sequence, info.oldest_at) == (1, 4, driver.now)
    assert info.counters["published"] == 3
    assert [g.name for g in info.groups] == [""]
    assert driver.ask(DescribeQueue(1, None, "none")) is None
    assert driver.ask(ListQueues(1, None)).names == ["a", "b"]
    assert [queue.name for queue in driver.engine.queue_infos()] == ["a", "b"]


def test_peeking_shows_what_comes_next() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.PRIORITY_BASED)
    driver.publish(3)
    driver.publish(1, priority=3)
    driver.publish(1, deliver_at=driver.now + 100)
    assert driver.engine.waiting_runs("q", 3) == [(4, 4), (1, 2)]
    assert driver.engine.waiting_runs("q", 10) == [(4, 4), (1, 3), (5, 5)]
    assert driver.engine.waiting_runs("none", 10) == []
    assert driver.engine.waiting_runs("q", 10, 3) == [(4, 4), (3, 3), (5, 5)]
    assert driver.engine.waiting_runs("q", 1, 5) == [(5, 5)]
    assert driver.engine.waiting_runs("q", 2, 2) == [(4, 4), (2, 2)]
    assert driver.engine.waiting_runs("q", 10, 6) == []


# -- dead letters -------------------------------------------------------------------------------------------------


def with_letters(number: int) -> Driver:
    driver = Driver()
    driver.subscribe(1)
    driver.publish(number)
    driver.settle(1, *range(1, number + 1), verb=Settlement.REJECT)
    driver.take()
    return driver


def test_a_replay_is_one_batch() -> None:
    driver = with_letters(2)
    driver.hold = True
    driver.handle(ReplayDead(1, "t", "q", [1, 2], rows_of(2)))
    (outcome,) = driver.waiting
    assert [type(record).__name__ for record in outcome.records] == ["MessagesAdded", "DeadRemoved"]
    assert driver.take() == {}
    driver.keep()
    assert driver.answer("t") == Replayed(2, 0)
    assert driver.take() == {1: [3, 4]}
    assert driver.info().dead == 0
    driver.check()


def test_what_was_replayed_or_purged_cannot_be_replayed_again() -> None:
    driver = with_letters(3)
    assert driver.ask(PurgeDead(1, None, [1, 1, 77])) == Counted(1)
    assert driver.ask(ReplayDead(1, None, "q", [1, 77], rows_of(2))) == Replayed(0, 0)
    assert isinstance(driver.ask(ReplayDead(1, None, "none", [2], rows_of(1))), QueueNotFound)
    assert driver.info().dead == 2
    assert driver.ask(ReplayDead(1, None, "q", [1, 2, 2], rows_of(3))) == Replayed(1, 0)
    assert (driver.info().dead, driver.info().ready + driver.info().in_flight) == (1, 1)
    assert [record.dead_ids for record in driver.records_of(DeadRemoved)] == [[1], [2]]
    driver.check()


def test_a_replay_drops_nothing_for_the_letters() -> None:
    driver = with_letters(5)
    driver.handle(CloseSession(1, False))
    driver.ask(ChangeQueue(1, None, "q", {"overflow": "drop_oldest", "max_messages": 3}))
    driver.publish(1)
    assert driver.ask(ReplayDead(1, None, "q", [1, 2, 3, 4], rows_of(4))) == Replayed(2, 2)
    assert driver.ask(ReplayDead(1, None, "q", [3, 4], rows_of(2))) == Replayed(0, 2)
    assert (driver.info().dead, driver.info().ready) == (3, 3)
    assert driver.records_of(Dropped) == []
    driver.ask(ChangeQueue(1, None, "q", {"overflow": "drop_newest"}))
    assert driver.ask(ReplayDead(1, None, "q", [3, 4], rows_of(2))) == Replayed(2, 0)
    driver.check()


def test_letters_outlive_their_queue_and_restarts() -> None:
    driver = with_letters(2)
    queue_id = driver.info().queue_id
    driver.ask(DeleteQueue(1, None, "q"))
    driver.restart()
    assert driver.engine.dead_count == 2
    assert driver.ask(PurgeDead(1, None, [1, 2], origins=dict.fromkeys([1, 2], queue_id))) == Counted(2)
    assert driver.engine.dead_count == 0
    driver.check()


def test_ids_of_letters_go_on_after_a_restart() -> None:
    driver = with_letters(2)
    driver.restart()
    driver.subscribe(1)
    driver.publish(1)
    driver.settle(1, 3, verb=Settlement.REJECT)
    assert sorted(driver.dead.entries) == [1, 2, 3]
    assert driver.info().dead == 3


def test_a_replay_that_cannot_be_stored_did_not_happen() -> None:
    driver = with_letters(2)
    driver.hold = True
    driver.handle(ReplayDead(1, "t", "q", [1, 2], rows_of(2)))
    driver.refuse()
    driver.hold = False
    assert isinstance(driver.answer("t"), StorageFull)
    assert driver.info().dead == 2
    assert driver.ask(ReplayDead(1, None, "q", [1, 2], rows_of(2))) == Replayed(2, 0)
    driver.check()


# -- a full disk --------------------------------------------------------------------------------------------------


@pytest.fixture
def full() -> Driver:
    """Messages 1 to 3 are held by session 1; from now on, outcomes are held back."""
    driver = Driver()
    driver.create()
    driver.subscribe(1, capacity_messages=100)
    driver.publish(3)
    driver.take()
    driver.hold = True
    return driver


def test_messages_that_could_not_be_stored_vanish_and_their_publisher_knows(full: Driver) -> None:
    full.handle(Publish(5, "t", "q", rows_of(2)))
    full.refuse()
    answer = full.answer("t")
    assert (answer.first_sequence, sorted(answer.refused)) == (0, [0, 1])
    assert isinstance(answer.refused[0], StorageFull)
    assert full.info().counters["published"] == 3


def test_sequences_are_not_used_again_while_the_broker_runs(full: Driver) -> None:
    full.publish(2)
    full.refuse()
    full.hold = False
    assert full.publish(1).first_sequence == 6
    assert full.take() == {1: [6]}
    assert full.records_of(Dropped)[-1].runs == [(4, 5)]
    full.check()
    full.restart()
    full.subscribe(2)
    assert full.take() == {2: [1, 2, 3, 6]}


def test_what_else_the_outcome_said_is_owed_and_written_later(full: Driver) -> None:
    full.settle(1, 1, 2)
    full.publish(1)
    full.refuse()
    assert full.records_of(Settled) == []
    full.hold = False
    full.advance(1_000)
    assert full.records_of(Settled)[-1].runs == [(1, 2)]
    full.check()
    full.restart()
    assert full.info().ready == 1


def test_debts_go_before_the_next_records(full: Driver) -> None:
    full.handle(Subscribe(2, "s", 1, "q", group="g"))
    full.refuse_for_good()
    assert isinstance(full.answer("s"), StorageFull)
    full.hold = False
    full.publish(1)
    kinds = [type(record) for record in full.records]
    assert kinds.index(GroupCreated) < len(kinds) - 2
    assert full.disk.queues[1].groups[1].name == "g"
    full.check()


def test_a_refused_subscriber_has_no_subscription(full: Driver) -> None:
    full.handle(Subscribe(2, "s", 1, "q", group="g"))
    full.refuse_for_good()
    full.hold = False
    full.publish(1)
    assert full.take() == {1: [4]}
    assert isinstance(full.subscribe(2, group="g"), Subscribed)
    assert full.take() == {2: [4]}
    full.check()


def test_a_queue_whose_creation_failed_is_confirmed_only_when_it_is_stored() -> None:
    driver = Driver()
    driver.hold = True
    driver.handle(CreateQueue(1, "first", "q", STRONG))
    driver.refuse_for_good()
    assert isinstance(driver.answer("first"), StorageFull)
    driver.handle(CreateQueue(1, "second", "q", STRONG))
    assert driver.answer("second") is None
    driver.keep()
    assert driver.answer("second") is None
    assert [type(record) for record in driver.records] == [QueueCreated, GroupCreated]
    driver.check()


def test_async_messages_that_vanish_are_taken_from_their_consumers() -> None:
    driver = Driver()
    driver.create(durability=Durability.ASYNC)
    driver.subscribe(1, capacity_messages=1)
    driver.hold = True
    driver.publish(3)
    assert driver.take() == {1: [1]}
    driver.refuse()
    info = driver.info()
    assert (info.ready, info.in_flight) == (0, 0)
    driver.hold = False
    driver.publish(1)
    driver.advance(1_000)
    assert driver.take() == {1: [4]}
    assert all(record.runs == [(4, 4)] for record in driver.records_of(HandedOut))
    driver.check()


def test_nothing_new_is_decided_between_two_failures(full: Driver) -> None:
    full.publish(1)
    full.publish(1)
    first, second = full.waiting
    error = StorageFull("disk is full")
    assert full.engine.failed(first.ticket, full.now, error).records == []
    assert full.engine.failed(second.ticket, full.now, error).records == []


# -- restarts -----------------------------------------------------------------------------------------------------


def test_a_deep_backlog_costs_nothing_to_take_over() -> None:
    driver = Driver()
    driver.create()
    for _ in range(50):
        driver.publish(1_000)
        driver.effects.clear()
    driver.restart()
    queue = driver.engine._state.queues["q"]
    assert queue.groups[""].ready.runs() == [(1, 50_000)]
    assert driver.info().size == 500_000


def test_sequences_go_on_after_a_restart() -> None:
    driver = Driver()
    driver.publish(2)
    driver.restart()
    assert driver.publish(1).first_sequence == 3
    driver.check()


def test_messages_that_were_not_kept_are_not_there_after_a_crash() -> None:
    driver = Driver()
    driver.publish(1)
    driver.hold = True
    driver.publish(5)
    driver.restart()
    driver.hold = False
    driver.keep()
    assert driver.info().ready == 1
    assert driver.publish(1).first_sequence == 2
    driver.check()


def test_transient_messages_are_gone_and_their_queue_is_there() -> None:
    driver = Driver()
    driver.create(durability=Durability.TRANSIENT, retention=Retention.LOG)
    driver.publish(5)
    driver.restart()
    assert driver.info().ready == 0
    assert driver.publish(1).first_sequence > 5
    driver.subscribe(1)
    assert len(driver.take()[1]) == 1
    driver.check()


def test_priorities_and_order_survive() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.PRIORITY_BASED)
    driver.publish(2)
    driver.publish(2, priority=3)
    driver.restart()
    driver.subscribe(1)
    assert driver.take() == {1: [3, 4, 1, 2]}


def test_a_chunk_holds_nothing_that_was_published_before_its_beginning() -> None:
    """The caller's clock goes on from what is stored unless that was wrong; then the next messages are a new chunk."""
    driver = Driver()
    driver.publish(1)
    driver.now -= 500
    driver.restart()
    driver.publish(1)
    assert [chunk.published_at for chunk in driver.disk.queues[1].chunks] == [1_000_000, 999_500]
    assert driver.info().oldest_at == 999_500


def test_limits_of_a_log_that_is_none_are_refused() -> None:
    driver = Driver()
    driver.create()
    error = driver.ask(ChangeQueue(1, None, "q", {"retain_bytes": 5}))
    assert isinstance(error, InvalidOptions)
    assert "choose retention log" in str(error)
    assert isinstance(driver.ask(CreateQueue(1, None, "new", QueueOptions(retain_ms=5))), InvalidOptions)
    assert driver.engine.queue_info("new") is None
    log = QueueOptions(retention=Retention.LOG, retain_messages=5)
    assert driver.ask(CreateQueue(1, None, "log", log)) is None
    assert driver.ask(ChangeQueue(1, None, "log", {"retain_bytes": 5})) is None


def test_letters_that_are_gone_leave_nothing_behind_in_memory() -> None:
    driver = Driver()
    driver.create(max_attempts=1)
    for name in ("q", "r"):
        driver.publish(50, name)
        driver.subscribe(1, name, consumer=1 if name == "q" else 2, capacity_messages=100)
        driver.settle(1, *range(1, 51), verb=Settlement.REJECT, consumer=1 if name == "q" else 2)
    assert driver.engine.dead_count == 100
    assert driver.ask(PurgeDead(1, None, list(range(1, 51)))) == Counted(50)
    driver.hold = True
    driver.handle(ReplayDead(1, "t", "q", [51, 52], rows_of(2)))
    driver.refuse()
    driver.hold = False
    assert driver.info("r").dead == 50
    assert driver.ask(ReplayDead(1, None, "q", [51, 52], rows_of(2))) == Replayed(2, 0)
    assert driver.info("r").dead == 48
    assert driver.ask(PurgeDead(1, None, list(range(53, 101)))) == Counted(48)
    assert driver.info("r").dead == 0
    assert driver.engine._state.dead_origins == {}
    driver.check()


def test_transient_queues_that_nobody_publishes_to_are_not_remembered_as_being_created() -> None:
    driver = Driver()
    being_created = driver.engine._state.being_created
    for number in range(100):
        driver.create(f"t{number}", durability=Durability.TRANSIENT)
        assert len(being_created) == 1
    driver.hold = True
    for number in range(100, 130):
        driver.handle(CreateQueue(1, None, f"t{number}", QueueOptions(durability=Durability.TRANSIENT)))
    assert len(being_created) == 30, "their outcomes are not stored"
    driver.hold = False
    driver.keep()
    for number in range(130, 133):
        driver.create(f"t{number}", durability=Durability.TRANSIENT)
    assert len(being_created) == 1


@pytest.mark.parametrize(("retention", "limit"), [("settled", "message_ttl_ms"), ("log", "retain_ms")])
def test_nothing_goes_before_its_time_after_a_restart_where_age_decides_since_later(retention: str, limit: str) -> None:
    """Of a queue without a limit of age, the store tells how old a minute of messages is, together."""
    driver = Driver()
    driver.create(retention=Retention[retention.upper()], dead_letter=False)
    for pause_ms in (50_000, 1_000, 0):
        driver.publish(1)
        driver.advance(pause_ms)
    driver.ask(ChangeQueue(9, None, "q", {limit: 30_000}))
    driver.restart()
    driver.advance(10)
    assert [chunk.last for chunk in driver.disk.queues[1].chunks] == [3]
    assert driver.info().first_sequence <= 2
    driver.advance(31_000)
    assert driver.info().first_sequence == 4


def test_the_last_number_of_a_queue_is_not_passed() -> None:
    """Stores keep it in 32 bits; stages of transactions take numbers, too."""
    driver = Driver()
    driver.create()
    driver.disk.next_queue_id = QUEUE_IDS_END - 1
    driver.restart()
    driver.create("last")
    for command in (
        CreateQueue(1, None, "more"),
        Publish(1, None, "more", rows_of(1)),
        Stage(1, None, "q", "job", 0, "u1", 0, rows_of(1)),
    ):
        refused = driver.ask(command)
        assert isinstance(refused, InvalidOptions)
        assert "4,294,967,287" in str(refused)
    assert driver.publish(1).first_sequence
    assert max(queue.queue_id for queue in driver.disk.queues.values()) < 2**32 - 1
