"""Who acts for a user that has left work to be done."""

from vibemq.auth.passwords import hash_password
from vibemq.auth.users import ANONYMOUS, TOKEN_BEARER, Account, Accounts
from vibemq.model.access import Principal


def accounts(*names: str, token: str | None = None) -> Accounts:
    return Accounts([Account(name, hash_password("secret")) for name in names], token=token)


def test_without_authentication_everybody_acts() -> None:
    assert Accounts().acting("ann", "", 0) is ANONYMOUS


def test_a_user_acts_until_it_is_removed_and_its_login_counts_like_one_with_the_password() -> None:
    known = accounts("ann", "bob")
    acting = known.acting("ann", "", 0)
    assert isinstance(acting, Principal)
    assert (acting.name, acting.superuser, acting.rules) == ("ann", False, None)
    assert known.ended(acting, 0) == ""
    known.replace([Account("bob", hash_password("secret"))], token=None)
    assert "removed" in known.ended(acting, 0)
    assert known.acting("ann", "", 0) is None


def test_a_changed_password_ends_the_old_login_and_not_the_next() -> None:
    known = accounts("ann")
    before = known.acting("ann", "", 0)
    assert before is not None
    known.replace([Account("ann", hash_password("other"))], token=None)
    assert "changed" in known.ended(before, 0)
    after = known.acting("ann", "", 0)
    assert after is not None
    assert known.ended(after, 0) == ""


def test_the_shared_token_acts_while_it_is_there_and_an_unknown_access_token_never() -> None:
    known = accounts("ann", token="shared")  # a test's
    bearer = known.acting(TOKEN_BEARER, "", 0)
    assert bearer is not None
    assert bearer.superuser
    assert known.ended(bearer, 0) == ""
    assert known.acting("ann", "0123456789abcdef", 0) is None
    known.replace([Account("ann", hash_password("secret"))], token=None)
    assert known.acting(TOKEN_BEARER, "", 0) is None
