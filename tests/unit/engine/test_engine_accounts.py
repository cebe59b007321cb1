"""Users and access tokens pass through the engine into the store."""

from dataclasses import replace

import pytest

from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine.failures.answers import NOTHING_DONE
from vibemq.engine.pacing import Batch
from vibemq.errors import StorageFull
from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.commands import ChangeAccounts, Publish
from vibemq.model.effects import AccountsChanged, Reply
from vibemq.model.records import AccountRecord, TokenRemoved, TokenStored, UserRemoved, UserStored
from vibemq.operations.tokens import TOKENS_MAX

ANN = StoredUser("ann", "hash", False, (), 5, 5)
TOKEN = StoredToken("t1", "ann", b"key", b"digest", "nightly", 5, 0, 0)


def test_changes_are_stored_in_order_and_answered() -> None:
    driver = Driver()
    changes: list[AccountRecord] = [UserStored(ANN), TokenStored(TOKEN), TokenRemoved("t1"), UserRemoved("ann")]
    assert driver.ask(ChangeAccounts(1, None, list(changes))) == AccountsChanged(4)
    assert driver.records == changes


def test_very_many_changes_are_one_step() -> None:
    """A user with all the tokens that it may have: it goes with them, or it stays with them."""
    driver = Driver()
    changes = [*(TokenRemoved(f"t{number}") for number in range(TOKENS_MAX)), UserRemoved("ann")]
    batch = Batch([ChangeAccounts(1, "t", [*changes])])
    outcome = driver.engine.advance(batch, driver.now)
    assert batch.done
    assert outcome.records == changes
    assert [effect.result for effect in outcome.gated if isinstance(effect, Reply)] == [AccountsChanged(len(changes))]


CHANGES = [UserStored(ANN), UserRemoved("bob"), TokenStored(TOKEN), TokenRemoved("t2")]
BOB, OTHER = replace(ANN, name="bob"), replace(TOKEN, token_id="t2", user="bob")


def driver_with_bob() -> Driver:
    driver = Driver()
    assert driver.ask(ChangeAccounts(1, None, [UserStored(BOB), TokenStored(OTHER)])) == AccountsChanged(2)
    return driver


def is_as_it_was(driver: Driver) -> bool:
    return (driver.disk.users, driver.disk.tokens) == ({"bob": BOB}, {"t2": OTHER})


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_a_full_disk_has_refused_is_not_made_later(change: AccountRecord) -> None:
    driver = driver_with_bob()
    driver.hold = True
    driver.handle(ChangeAccounts(1, "change", [change]))
    driver.refuse_for_good()
    assert isinstance(driver.answer("change"), StorageFull)
    assert str(driver.answer("change")) == f"disk is full; {NOTHING_DONE}"
    driver.hold = False
    driver.create()
    driver.advance(60_000)
    assert is_as_it_was(driver)
    assert driver.ask(ChangeAccounts(1, None, [change])) == AccountsChanged(1)
    assert not is_as_it_was(driver)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_beside_messages_that_do_not_fit_is_made_and_answered_then(change: AccountRecord) -> None:
    driver = driver_with_bob()
    driver.create()
    driver.hold = True
    driver.handle(Publish(1, "publish", "q", rows_of(1)), ChangeAccounts(1, "change", [change]))
    driver.refuse()
    assert driver.answer("change") is None
    driver.keep()
    assert driver.answer("change") == AccountsChanged(1)
    assert not is_as_it_was(driver)
