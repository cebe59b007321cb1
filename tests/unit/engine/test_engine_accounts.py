"""Users and access tokens pass through the engine into the store."""

from dataclasses import replace

import pytest

from tests.simulation.engine_driver import Driver
from vibemq.engine.pacing import Batch
from vibemq.errors import StorageFull
from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.commands import ChangeAccounts
from vibemq.model.effects import Counted, Reply
from vibemq.model.records import AccountRecord, TokenRemoved, TokenStored, UserRemoved, UserStored
from vibemq.operations.tokens import TOKENS_MAX

ANN = StoredUser("ann", "hash", False, (), 5, 5)
TOKEN = StoredToken("t1", "ann", b"key", b"digest", "nightly", 5, 0, 0)


def test_changes_are_stored_in_order_and_answered() -> None:
    driver = Driver()
    changes: list[AccountRecord] = [UserStored(ANN), TokenStored(TOKEN), TokenRemoved("t1"), UserRemoved("ann")]
    assert driver.ask(ChangeAccounts(1, None, list(changes))) == Counted(4)
    assert driver.records == changes


def test_very_many_changes_are_one_step() -> None:
    """A user with all the tokens that it may have: it goes with them, or it stays with them."""
    driver = Driver()
    changes = [*(TokenRemoved(f"t{number}") for number in range(TOKENS_MAX)), UserRemoved("ann")]
    batch = Batch([ChangeAccounts(1, "t", [*changes])])
    outcome = driver.engine.advance(batch, driver.now)
    assert batch.done
    assert outcome.records == changes
    assert [effect.result for effect in outcome.gated if isinstance(effect, Reply)] == [Counted(len(changes))]


@pytest.mark.parametrize("change", [UserStored(ANN), UserRemoved("bob"), TokenStored(TOKEN), TokenRemoved("t2")])
def test_a_change_that_a_full_disk_has_refused_is_not_made_later(change: AccountRecord) -> None:
    driver = Driver()
    bob, other = replace(ANN, name="bob"), replace(TOKEN, token_id="t2", user="bob")
    assert driver.ask(ChangeAccounts(1, None, [UserStored(bob), TokenStored(other)])) == Counted(2)
    driver.hold = True
    driver.handle(ChangeAccounts(1, "change", [change]))
    driver.refuse()
    assert isinstance(driver.answer("change"), StorageFull)
    driver.hold = False
    driver.create()
    driver.advance(60_000)
    assert (driver.disk.users, driver.disk.tokens) == ({"bob": bob}, {"t2": other})
    assert driver.ask(ChangeAccounts(1, None, [change])) == Counted(1)
    assert (driver.disk.users, driver.disk.tokens) != ({"bob": bob}, {"t2": other})
