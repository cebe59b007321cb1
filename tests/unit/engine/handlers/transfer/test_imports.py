"""Messages of a file enter their queue once each, whatever is sent again, refused by the disk, or lost by a kill."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.engine_driver import Driver
from vibemq.engine.handlers.transactions import REMEMBERED_MS
from vibemq.engine.handlers.transfer import imports
from vibemq.errors import Blocked, InvalidOptions, StorageFull
from vibemq.model.commands import (
    DecideTransaction,
    DeleteQueue,
    ForgetApplication,
    ImportMessages,
    Pressure,
    PurgeQueue,
    SetPressure,
)
from vibemq.model.effects import Imported
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode, Durability, Overflow
from vibemq.model.records import MessagesAdded
from vibemq.model.rows import Rows

FILE = [b"row %d" % number for number in range(30)]


def command(first: int, stop: int, *, file: str = "file", user: str = "", **extra: Any) -> ImportMessages:
    rows = FILE[first:stop]
    extras = {index: MessageExtra(**extra) for index in range(len(rows))} if extra else None
    return ImportMessages(1, None, "q", file, first, Rows.of(rows), extras, user)


def position(driver: Driver) -> int:
    answer = driver.ask(command(0, 0))
    return int(answer.position)


def stored(driver: Driver) -> list[bytes]:
    return [row for record in driver.records_of(MessagesAdded) for row in record.rows]


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.create()
    return driver


def test_what_is_sent_again_enters_once(driver: Driver) -> None:
    assert driver.ask(command(0, 4)) == Imported(4, 4, 0, 0)
    assert driver.ask(command(0, 4)) == Imported(4, 0, 0, 0)
    assert driver.ask(command(2, 7)) == Imported(7, 3, 0, 0)
    assert stored(driver) == FILE[:7]
    assert driver.info().ready == 7
    driver.check()


def test_nothing_is_left_out(driver: Driver) -> None:
    driver.ask(command(0, 4))
    refused = driver.ask(command(5, 8))
    assert isinstance(refused, InvalidOptions)
    assert "at message 4 of its file, not at 5" in str(refused)


def test_an_import_goes_on_after_a_kill(driver: Driver) -> None:
    driver.ask(command(0, 4))
    driver.hold = True
    driver.handle(command(4, 8))
    driver.hold = False
    driver.restart()
    assert position(driver) == 4
    assert driver.ask(command(0, 8)) == Imported(8, 4, 0, 0)
    assert stored(driver) == FILE[:8]


def test_every_file_user_and_queue_has_a_position_of_its_own(driver: Driver) -> None:
    driver.ask(command(0, 4))
    assert driver.ask(command(0, 2, file="other")) == Imported(2, 2, 0, 0)
    assert driver.ask(command(0, 2, user="ann")) == Imported(2, 2, 0, 0)
    driver.ask(DeleteQueue(1, None, "q"))
    driver.create()
    assert position(driver) == 0


def test_expired_messages_are_counted_and_left_out(driver: Driver) -> None:
    past = driver.now - 1
    assert driver.ask(command(0, 3, expires_at=past)) == Imported(3, 0, 3, 0)
    assert driver.ask(command(3, 5, expires_at=driver.now + 50)) == Imported(5, 2, 0, 0)
    driver.restart()
    assert position(driver) == 5
    driver.advance(100)
    assert (driver.info().ready, driver.info().dead) == (0, 2)
    driver.check()


def test_priorities_and_delays_are_kept() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.PRIORITY_BASED)
    driver.ask(command(0, 1))
    driver.ask(command(1, 2, priority=3))
    driver.ask(command(2, 3, deliver_at=driver.now + 1_000))
    driver.subscribe(1)
    assert driver.take() == {1: [2, 1]}
    driver.advance(1_000)
    assert driver.take() == {1: [3]}


@pytest.mark.parametrize("overflow", [Overflow.DROP_NEWEST, Overflow.DROP_OLDEST, Overflow.BLOCK_PUBLISHER])
def test_a_full_queue_takes_what_fits_and_drops_nothing(overflow: Overflow) -> None:
    driver = Driver()
    driver.create(max_messages=3, overflow=overflow)
    assert driver.ask(command(0, 5)) == Imported(3, 3, 0, 2)
    assert driver.ask(command(3, 5)) == Imported(3, 0, 0, 2)
    driver.ask(PurgeQueue(1, None, "q"))
    assert driver.ask(command(3, 5)) == Imported(5, 2, 0, 0)
    assert stored(driver) == FILE[:5]


def test_a_broker_short_of_memory_takes_nothing(driver: Driver) -> None:
    driver.handle(SetPressure(Pressure.BLOCKING))
    assert isinstance(driver.ask(command(0, 2)), Blocked)
    driver.handle(SetPressure(Pressure.NONE))
    assert driver.ask(command(0, 2)) == Imported(2, 2, 0, 0)


def test_what_a_transient_queue_loses_is_imported_again() -> None:
    driver = Driver()
    driver.create(durability=Durability.TRANSIENT)
    driver.ask(command(0, 4))
    assert position(driver) == 4
    driver.restart()
    assert position(driver) == 0


def test_batches_that_the_disk_refuses_were_not_imported(driver: Driver) -> None:
    driver.ask(command(0, 2))
    driver.hold = True
    tokens = []
    for first in (2, 4, 6):
        batch = command(first, first + 2)
        batch.token = f"batch {first}"
        tokens.append(batch.token)
        driver.handle(batch)
    driver.hold = False
    driver.refuse()
    assert all(isinstance(driver.answer(token), StorageFull) for token in tokens)
    driver.tick()
    assert position(driver) == 2
    driver.restart()
    assert driver.ask(command(2, 8)) == Imported(8, 6, 0, 0)
    assert stored(driver) == FILE[:8]
    driver.check()


def test_the_names_of_imports_are_not_for_transactions(driver: Driver) -> None:
    driver.ask(command(0, 4))
    (app,) = driver.disk.transactions
    assert isinstance(driver.ask(DecideTransaction(1, None, app, 9, [], user="ann")), InvalidOptions)
    driver.ask(ForgetApplication(1, None, app))
    assert position(driver) == 0


def test_the_imports_of_a_queue_are_forgotten_with_it(driver: Driver) -> None:
    driver.create("other")
    for number in range(400):
        driver.ask(command(0, 1, file=f"f{number}", user="ann/b" if number % 2 else ""))
    elsewhere = command(0, 1)
    elsewhere.queue = "other"
    driver.ask(elsewhere)
    assert len(driver.disk.transactions) == 401
    driver.ask(DeleteQueue(1, None, "q"))
    assert list(driver.disk.transactions) == list(driver.engine._state.transactions)
    assert len(driver.disk.transactions) == 1
    assert set(driver.engine._state.imports) == {driver.engine._state.queues["other"].queue_id}
    driver.check()


def test_imports_of_a_queue_that_is_gone_are_forgotten_at_the_start(driver: Driver) -> None:
    driver.ask(command(0, 4))
    (app,) = driver.disk.transactions
    kept = driver.disk.transactions[app]
    driver.ask(DeleteQueue(1, None, "q"))
    driver.disk.transactions[app] = kept
    driver.restart()
    assert (driver.disk.transactions, driver.engine._state.transactions) == ({}, {})


def test_a_user_has_a_limited_number_of_imports_into_a_queue(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "IMPORTS_MAX", 3)
    for number in range(3):
        driver.ask(command(0, 1, file=f"f{number}", user="ann"))
    refused = driver.ask(command(0, 1, file="one more", user="ann"))
    assert isinstance(refused, InvalidOptions)
    assert "user 'ann' has imported 3 files into queue 'q' within 30 days" in str(refused)
    assert driver.ask(command(1, 2, file="f0", user="ann")) == Imported(2, 1, 0, 0)
    assert driver.ask(command(0, 1, file="one more", user="bob")) == Imported(1, 1, 0, 0)
    driver.restart()
    assert isinstance(driver.ask(command(0, 1, file="one more", user="ann")), InvalidOptions)
    driver.advance(REMEMBERED_MS + 1)
    assert driver.ask(command(0, 1, file="one more", user="ann")) == Imported(1, 1, 0, 0)
    assert len(driver.disk.transactions) == 1


def test_a_user_has_a_limited_number_of_imports_into_all_queues(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "IMPORTS_OF_USER_MAX", 3)
    driver.create("other")

    def take(file: str, queue: str, user: str = "ann") -> object:
        return driver.ask(replace(command(0, 1, file=file, user=user), queue=queue))

    for file, queue in (("f0", "q"), ("f1", "other"), ("f2", "q")):
        assert take(file, queue) == Imported(1, 1, 0, 0)
    for queue in ("q", "other"):
        assert "user 'ann' has imported 3 files within 30 days" in str(take("one more", queue))
    assert take("f0", "q") == Imported(1, 0, 0, 0), "known files go on"
    assert take("one more", "other", user="bob") == Imported(1, 1, 0, 0)
    driver.restart()
    assert isinstance(take("one more", "q"), InvalidOptions)
    driver.ask(DeleteQueue(1, None, "other"))
    assert take("one more", "q") == Imported(1, 1, 0, 0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "keep", "refuse", "restart"]), st.integers(0, 4), st.integers(1, 6)
    ),
    max_size=25,
)


@settings(max_examples=150)
@given(STEPS, st.sampled_from([Durability.STRONG, Durability.WEAK, Durability.ASYNC]))
def test_whatever_happens_each_message_is_stored_once(
    steps: list[tuple[str, int, int]], durability: Durability
) -> None:
    driver = Driver()
    driver.create(durability=durability)
    driver.hold = True
    for kind, back, count in steps:
        if kind == "send":
            known = driver.engine._state.transactions
            now = max((done.version for app, done in known.items() if app.startswith("~import/")), default=0)
            first = max(0, now - back)
            driver.handle(command(first, min(len(FILE), first + count)))
        elif kind == "restart":
            driver.restart()
        else:
            getattr(driver, kind)()
    driver.hold = False
    driver.keep()
    driver.tick()
    at = position(driver)
    assert stored(driver) == FILE[:at]
    driver.ask(command(at, len(FILE)))
    driver.restart()
    assert stored(driver) == FILE
    assert driver.info().ready == len(FILE)
    driver.check()


def test_an_import_is_called_as_a_store_can_keep_it(driver: Driver) -> None:
    refused = driver.ask(command(0, 4, file="\u20ac" * 200, user="ann"))
    assert isinstance(refused, InvalidOptions)
    assert "shorter name" in str(refused)
    assert stored(driver) == []
    assert driver.ask(command(0, 4, file="\u20ac" * 160, user="ann")) == Imported(4, 4, 0, 0)
    driver.check()
