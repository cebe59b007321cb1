"""What the proof of users finds, and what it lets pass."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof.user_kills import Life, State, complaints
from vibemq.auth.rules import make_rule
from vibemq.auth.tokens import make_token
from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.stored import StoredState

RULES = (make_rule({"queues": "a.*", "actions": ["publish"]}),)
USER = StoredUser("user-0", "hash", False, RULES, 1, 1)
TOKEN = StoredToken("id", "user-0", b"", b"", "label", 1, 0, 0)
STATE = State("hash", False, frozenset({("a.*", ("publish",))}), frozenset({("label", "")}))


def found(known: State | None, under_way: tuple[State | None, ...], *stored: StoredUser | StoredToken) -> list[str]:
    life = Life("lmdb", Path("nowhere"))
    life.people[0].known, life.people[0].under_way = known, under_way
    state = StoredState()
    for one in stored:
        if isinstance(one, StoredUser):
            state.users[one.name] = one
        else:
            state.tokens[one.token_id] = one
    return list(complaints(life, state))


def test_what_was_answered_holds() -> None:
    assert found(STATE, (), USER, TOKEN) == []
    assert found(None, ()) == []


@pytest.mark.parametrize("stored", [(USER, TOKEN), ()])
def test_what_was_not_answered_is_whole_or_absent(stored: tuple[StoredUser | StoredToken, ...]) -> None:
    assert found(STATE, (None,), *stored) == []


@pytest.mark.parametrize(
    "stored",
    [(), (USER,), (TOKEN,), (replace(USER, rules=()), TOKEN), (replace(USER, superuser=True), TOKEN)],
)
def test_a_loss_is_found(stored: tuple[StoredUser | StoredToken, ...]) -> None:
    assert len(found(STATE, (), *stored)) == 1


def test_half_of_a_removal_is_found() -> None:
    assert len(found(STATE, (None,), USER)) == 1
    assert len(found(STATE, (None,), TOKEN)) == 1


def test_a_token_that_is_another_one_is_found() -> None:
    life = Life("lmdb", Path("nowhere"))
    text, kept = make_token("user-0", label="label", now=1, expires_at=0, rules=None)
    other = make_token("user-0", label="label", now=1, expires_at=0, rules=None)[1]
    for stored, count in ((kept, 0), (other, 1), (replace(kept, rules=RULES), 1)):
        person = life.people[0]
        person.known, person.texts = STATE, {"label": text}
        assert (
            len(list(complaints(life, StoredState(users={"user-0": USER}, tokens={stored.token_id: stored})))) == count
        )
