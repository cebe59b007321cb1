"""An operator of a simulated broker who makes, changes and removes users and tokens, one change after the other.

The records of a change are those that the operations make (`vibemq.operations.users` and `tokens`): a user that is
removed goes after its tokens, and the last use of many tokens is noted in one change.
"""

import random
from dataclasses import replace

from tests.proof.sim_world import World
from vibemq.model.access import ResourceKind, Rule
from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.commands import ChangeAccounts
from vibemq.model.records import AccountRecord, TokenRemoved, TokenStored, UserRemoved, UserStored

ACCOUNTANT = 6
"""The session that asks for the changes."""
NAMES = ("ann", "bob", "eve")
CHANGE_SHARE = 0.15
"""Of the steps of a life."""


class AccountOperator:
    """Knows users and tokens as they will be when all it has asked for is done. Dead with its world."""

    def __init__(self, world: World) -> None:
        self._world = world
        recovered = world.ledger.naive[world.ledger.last_lsn]
        self._users = dict(recovered.users)
        self._tokens = dict(recovered.tokens)

    def step(self, rng: random.Random) -> None:
        if rng.random() >= CHANGE_SHARE:
            return
        records = self._change(rng, rng.choice(NAMES))
        for record in records:
            self._note(record)
        self._world.ask(ChangeAccounts(ACCOUNTANT, f"t{next(self._world.tokens)}", records))

    def _change(self, rng: random.Random, name: str) -> list[AccountRecord]:
        now, user = self._world.clock.now(), self._users.get(name)
        if user is None:
            return [UserStored(StoredUser(name, self._text(rng), False, (), now, now))]
        own = [token for token in self._tokens.values() if token.user == name]
        match rng.randrange(8):
            case 0:
                granted = Rule(ResourceKind.QUEUE, f"{rng.randrange(3)}.*", frozenset(("publish",)))
                others = (rule for rule in user.rules if rule.pattern != granted.pattern)
                return [UserStored(replace(user, rules=(*others, granted), changed_at=now))]
            case 1:
                return [UserStored(replace(user, rules=user.rules[1:], changed_at=now))]
            case 2:
                return [UserStored(replace(user, password_hash=self._text(rng), changed_at=now))]
            case 3:
                return [UserStored(replace(user, superuser=not user.superuser, changed_at=now))]
            case 4 if own:
                return [TokenRemoved(rng.choice(own).token_id)]
            case 5 if self._tokens:
                return [TokenStored(replace(token, used_at=now)) for token in self._tokens.values()]
            case 6:
                return [*(TokenRemoved(token.token_id) for token in own), UserRemoved(name)]
            case _:
                narrower = rng.choice((None, user.rules))
                made = StoredToken(
                    rng.randbytes(6).hex(), name, rng.randbytes(16), rng.randbytes(32), "", now, 0, 0, narrower
                )
                return [TokenStored(made)]

    def _note(self, record: AccountRecord) -> None:
        match record:
            case UserStored(user):
                self._users[user.name] = user
            case UserRemoved(name):
                del self._users[name]
            case TokenStored(token):
                self._tokens[token.token_id] = token
            case TokenRemoved(token_id):
                del self._tokens[token_id]

    @staticmethod
    def _text(rng: random.Random) -> str:
        """In place of a password hash: nobody logs in here."""
        return rng.randbytes(rng.choice((8, 60))).hex()
