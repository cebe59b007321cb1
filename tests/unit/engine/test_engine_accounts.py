"""Users and access tokens pass through the engine into the store."""

from tests.simulation.engine_driver import Driver
from vibemq.engine.pacing import STEP_UNITS, Batch
from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.commands import ChangeAccounts
from vibemq.model.effects import Counted, Reply
from vibemq.model.records import TokenRemoved, TokenStored, UserRemoved, UserStored


def test_changes_are_stored_in_order_and_answered() -> None:
    driver = Driver()
    ann = StoredUser("ann", "hash", False, (), 5, 5)
    token = StoredToken("t1", "ann", b"key", b"digest", "nightly", 5, 0, 0)
    changes = [UserStored(ann), TokenStored(token), TokenRemoved("t1"), UserRemoved("ann")]
    assert driver.ask(ChangeAccounts(1, None, list(changes))) == Counted(4)
    assert driver.records == changes


def test_the_answer_to_very_many_changes_follows_the_last_step() -> None:
    driver = Driver()
    changes = [TokenRemoved(f"t{number}") for number in range(3 * STEP_UNITS)]
    batch = Batch([ChangeAccounts(1, "t", [*changes])])
    for _ in range(2):
        outcome = driver.engine.advance(batch, driver.now)
        assert len(outcome.records) == STEP_UNITS
        assert outcome.gated == []
    outcome = driver.engine.advance(batch, driver.now)
    assert batch.done
    assert [effect.result for effect in outcome.gated if isinstance(effect, Reply)] == [Counted(len(changes))]
