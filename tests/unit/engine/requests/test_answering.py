"""Replies, from whichever connection."""

from tests.simulation.engine_driver import Driver, rows_of
from vibemq.errors import RequesterGone
from vibemq.model.commands import Respond
from vibemq.model.effects import Reply, Responded
from vibemq.model.options import Durability


def test_a_reply_goes_to_the_session_that_asked_from_any_session() -> None:
    driver = Driver()
    driver.request("a", session=5)
    driver.request("b", session=6)
    assert driver.respond("b", session=77) is None
    told = [effect for effect in driver.effects if isinstance(effect, Responded)]
    assert [(effect.session, effect.token) for effect in told] == [(6, "request b")]


def test_nobody_is_at_an_unknown_address() -> None:
    driver = Driver()
    error = driver.respond("a")
    assert isinstance(error, RequesterGone)
    assert "do not send the reply again" in str(error)


def test_a_reply_without_a_token_is_carried_out_too() -> None:
    driver = Driver()
    driver.request("a")
    before = len([effect for effect in driver.effects if isinstance(effect, Reply)])
    driver.handle(Respond(1, None, "a", rows_of(1)))
    assert len(driver.outcomes()["a"]) == 1
    assert len([effect for effect in driver.effects if isinstance(effect, Reply)]) == before


def test_addresses_do_not_outlive_the_broker() -> None:
    driver = Driver()
    driver.create(durability=Durability.STRONG)
    driver.request("a")
    driver.restart()
    assert isinstance(driver.respond("a"), RequesterGone)
