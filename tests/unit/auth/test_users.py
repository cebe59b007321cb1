from dataclasses import replace

import bcrypt
import pytest
from pydantic import SecretStr, ValidationError

from tests.integration.access import cheap_hash
from vibemq.auth.matrix import CREATE, DELETE, INSPECT, LIST, MANAGE, NEVER, OWN, PUBLISH, PURGE, SUBSCRIBE, TRANSACT
from vibemq.auth.passwords import check_hash, decoy_of, hash_password, is_outdated, verify_password
from vibemq.auth.policy import Policy
from vibemq.auth.tokens import make_token
from vibemq.auth.users import ANONYMOUS, TOKEN_BEARER, Account, Accounts
from vibemq.config import Auth, Permission, User
from vibemq.errors import AuthFailed, AuthRequired, ConfigInvalid, NotAuthorized, VibeMQError
from vibemq.model.access import NeededPermission as Needed
from vibemq.model.access import Principal
from vibemq.model.accounts import StoredUser
from vibemq.model.records import TokenRemoved, TokenStored, UserRemoved, UserStored

NOW = 1_000
HASH = SecretStr(hash_password("secret"))
ANN = Principal("ann")
ROOT = Principal("root", superuser=True)
ALL = (PUBLISH, SUBSCRIBE, CREATE, DELETE, PURGE, INSPECT)


def accounts() -> Accounts:
    permissions = (
        Permission(queues="orders.*", actions=("publish", "inspect")),
        Permission(queues="jobs", actions=("*",)),
        Permission(groups="shared/team-*", actions=("manage",)),
        Permission(transactions="nightly*", actions=("transact",)),
    )
    users = {
        "ann": User(password_hash=HASH, permissions=permissions),
        "root": User(password_hash=HASH, superuser=True),
    }
    auth = Auth(users=users, token=SecretStr("t0ken"))
    return Accounts(auth.accounts(), token=auth.shared_token)


@pytest.mark.parametrize("needed", ALL, ids=lambda needed: needed.action)
def test_who_may_do_what(needed: Needed) -> None:
    policy = accounts().policy
    expected = {"orders.eu": needed in (PUBLISH, INSPECT), "orders": False, "jobs": True, "jobs2": False, "": False}
    assert {queue: policy.allows(ANN, needed, queue) for queue in expected} == expected
    assert policy.allows(ROOT, needed, "anything")
    assert not policy.allows(None, needed, "jobs")
    assert not policy.allows(Principal("stranger"), needed, "jobs")


def test_rules_of_groups_and_transactions() -> None:
    policy = accounts().policy
    groups = ("shared/team-a", "shared/other", "jobs/any", "orders.eu/x")
    assert [policy.allows(ANN, MANAGE, group) for group in groups] == [True, False, True, False]
    apps = ("nightly", "nightly-2", "other", "jobs")
    assert [policy.allows(ANN, TRANSACT, app) for app in apps] == [True, True, False, False]


def test_nobody_speaks_the_servers_words() -> None:
    policy = accounts().policy
    assert not any(policy.allows(who, NEVER, "") for who in (None, ANN, ROOT))
    assert all(policy.allows(who, free, "") for who in (ANN, ROOT) for free in (OWN, LIST))


def test_without_authentication_everything_but_the_servers_own_words_is_allowed() -> None:
    everybody = Accounts()
    assert not everybody.enabled
    assert everybody.authenticate("who", "ever", "", NOW) is ANONYMOUS
    assert all(everybody.policy.allows(ANONYMOUS, needed, "q") for needed in (*ALL, MANAGE, TRANSACT))
    assert not everybody.policy.allows(ANONYMOUS, NEVER, "q")


def test_a_principal_is_a_superuser_only_as_long_as_the_policy_says_so() -> None:
    known = accounts()
    known.replace([Account("root", HASH.get_secret_value())], token=None)
    assert not known.policy.allows(ROOT, DELETE, "q")
    assert not known.policy.allows(Principal("token", superuser=True), DELETE, "q")


def test_the_refusal_is_the_same_whether_the_queue_exists_or_not() -> None:
    with pytest.raises(NotAuthorized, match=r"user 'ann' does not have the permission 'delete' on queue 'other'; ask"):
        accounts().policy.authorize(ANN, DELETE, "other")


def test_lists_show_what_the_principal_has_something_to_do_with() -> None:
    policy = accounts().policy
    sees = policy.viewer(ANN)
    assert [queue for queue in ("orders.eu", "secret", "jobs") if sees(queue)] == ["orders.eu", "jobs"]
    assert policy.viewer(ROOT)("secret")
    assert not policy.viewer(None)("jobs")
    assert not Policy({}).viewer(ANN)("jobs")
    policy.put("ann", [], superuser=False)
    assert not sees("jobs"), "what was taken is gone at once"


def test_passwords_and_tokens() -> None:
    known = accounts()
    assert known.authenticate("ann", "secret", "", NOW) == ANN
    assert known.authenticate("root", "secret", "", NOW) == ROOT
    assert known.authenticate("", "", "t0ken", NOW).superuser
    for wrong in (("ann", "Secret", ""), ("nobody", "secret", ""), ("", "", "t0ke"), ("", "", "\udcff")):
        with pytest.raises(AuthFailed):
            known.authenticate(*wrong, NOW)
    with pytest.raises(AuthRequired):
        known.authenticate("ann", "", "", NOW)


def test_a_superuser_given_in_clear() -> None:
    auth = Auth(superuser="vibemq", superuser_password=SecretStr("pw"))
    known = Accounts(auth.accounts(), token=auth.shared_token)
    assert known.authenticate("vibemq", "pw", "", NOW) == Principal("vibemq", superuser=True)
    with pytest.raises(AuthFailed):
        known.authenticate("vibemq", "PW", "", NOW)


def test_hashes_are_salted_and_checked() -> None:
    assert hash_password("x") != hash_password("x")
    assert verify_password("secret", HASH.get_secret_value())
    assert not verify_password("secreT", HASH.get_secret_value())


SALT, DIGEST = "c2FsdHNhbHRzYWx0", "A" * 43 + "="


@pytest.mark.parametrize(
    "stored",
    [
        f"$argon2id$v=19$m=8,t=1,p=1${SALT}${DIGEST[:-1]}",
        f"$argon2id$v=19$m=128,t=10,p=16${SALT}${DIGEST[:-1]}",
        *("$2" + letter + "$04$" + "." * 21 + last + "." * 31 for letter in "aby" for last in ".Oeu"),
    ],
)
@pytest.mark.parametrize("password", ["secret", "\0", "x" * 2000, "\udcff"])
def test_every_argon2_and_bcrypt_hash_that_is_accepted_can_be_checked(stored: str, password: str) -> None:
    check_hash(stored)
    assert not verify_password(password, stored)
    assert not verify_password(password, decoy_of(stored))


@pytest.mark.parametrize(("size", "again"), [(72, True), (73, False)])
def test_what_bcrypt_does_not_look_at_is_not_hashed_again(size: int, again: bool) -> None:
    stored = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    assert verify_password("x" * size, stored)
    assert is_outdated(stored, "x" * size) is again
    assert is_outdated(cheap_hash(), "x" * size)
    assert not is_outdated(hash_password("pw"), "pw")


@pytest.mark.parametrize("wrong", ["pw\0", "pw\0\0", "pw\0pw", "\0pw", "pw\n", "pw "])
def test_no_other_password_fits_whatever_the_hash(wrong: str) -> None:
    hashes = [hash_password("pw"), cheap_hash("pw"), bcrypt.hashpw(b"pw", bcrypt.gensalt(4)).decode()]
    assert [verify_password("pw", stored) for stored in hashes] == [True] * 3
    assert [verify_password(wrong, stored) for stored in hashes] == [False] * 3


@pytest.mark.parametrize("broken", ["", "md5$x", "$2b$04$" + "a" * 53])
def test_a_broken_hash_in_the_store_keeps_its_user_out_and_nobody_else(broken: str) -> None:
    known, others = Accounts(), Accounts()
    token, kept = make_token("ann", label="", now=1, expires_at=0, rules=None)
    users = [StoredUser("ann", broken, False, (), 1, 1), StoredUser("bob", hash_password("pw"), False, (), 1, 1)]
    assert known.load(users, [kept]) == ["ann"]
    assert others.load(users[:1], []) == ["ann"]
    for name in ("ann", "nobody"):
        for accounts_ in (known, others):
            with pytest.raises(AuthFailed):
                accounts_.authenticate(name, "pw", "", NOW)
    assert known.authenticate("bob", "pw", "", NOW).name == "bob"
    assert known.authenticate("", "", token, NOW).name == "ann"
    known.replace([], token=None)
    known.apply([UserStored(replace(users[0], password_hash=hash_password("new")))])
    assert known.authenticate("ann", "new", "", NOW).name == "ann"
    known.apply([UserRemoved("ann"), UserRemoved("bob")])


@pytest.mark.parametrize("parameters", ["1$1$1", "16$8$2", "15$8$3", "14$8$5", "10$8$1", "14$8$16"])
def test_every_hash_that_is_accepted_can_be_checked(parameters: str) -> None:
    assert not verify_password("secret", f"scrypt${parameters}${SALT}${DIGEST}")


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "plain",
        "scrypt$14$8$0$",
        "scrypt$14$8$1$!$AA==",
        "md5$1$1$1$AA==$AA==",
        f"scrypt$14$8$0${SALT}${DIGEST}",
        f"scrypt$14$0$1${SALT}${DIGEST}",
        f"scrypt$0$8$1${SALT}${DIGEST}",
        f"scrypt$-1$8$1${SALT}${DIGEST}",
        f"scrypt$14$8$-1${SALT}${DIGEST}",
        f"scrypt$1_4$8$1${SALT}${DIGEST}",
        f"scrypt$ 14$8$1${SALT}${DIGEST}",
        f"scrypt$99$8$1${SALT}${DIGEST}",
        f"scrypt$16$1$1${SALT}${DIGEST}",
        f"scrypt$17$8$1${SALT}${DIGEST}",
        f"scrypt$14$8$17${SALT}${DIGEST}",
        f"scrypt$1$999$999${SALT}${DIGEST}",
        f"scrypt$14$8$1$AA==${DIGEST}",
        f"scrypt$14$8$1${SALT}$AAAA",
        f"scrypt$14$8$1${SALT}${DIGEST}$",
        f"scrypt$14$8$1${SALT}${DIGEST}\n",
        f"$argon2id$v=19$m=0019456,t=2,p=1${SALT}${DIGEST[:-1]}",
        f"$argon2id$v=19$m=19456,t=02,p=1${SALT}${DIGEST[:-1]}",
        f"$argon2id$v=19$m=\u0661\u0669\u0664\u0665\u0666,t=2,p=1${SALT}${DIGEST[:-1]}",
        f"$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbB${DIGEST[:-1]}",
        f"$argon2id$v=19$m=19456,t=2,p=1${SALT}${DIGEST[:-2]}B",
        f"$argon2i$v=19$m=19456,t=2,p=1${SALT}${DIGEST[:-1]}",
        "$2b$04$" + "a" * 53,
        "$2b$\u0660\u0664$" + "." * 53,
        "$2x$04$" + "." * 53,
    ],
)
def test_a_hash_that_cannot_be_checked_is_refused_without_repeating_it(stored: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        check_hash(stored)
    assert not stored or stored not in str(refused.value)
    with pytest.raises(ConfigInvalid, match="user 'ann'"):
        Accounts([Account("ann", stored)])
    with pytest.raises(ValidationError, match="password_hash"):
        User(password_hash=SecretStr(stored))


@pytest.mark.parametrize("password", ["\udcff", "\0", "x" * 100_000])
def test_a_login_raises_nothing_but_the_family(password: str) -> None:
    with pytest.raises(VibeMQError):
        accounts().authenticate("ann", password, "", NOW)


@pytest.mark.parametrize(
    "wrong",
    [
        {"actions": ["publish"]},
        {"queues": "q", "groups": "q/g", "actions": ["manage"]},
        {"queues": "q", "actions": ["transact"]},
        {"groups": "q/g", "actions": ["subscribe"]},
        {"transactions": "app", "actions": ["publish"]},
    ],
)
def test_a_permission_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Permission.model_validate(wrong)


def test_a_principal_counts_as_long_as_its_credential() -> None:
    known = accounts()
    ann, bearer = known.authenticate("ann", "secret", "", NOW), known.authenticate("", "", "t0ken", NOW)
    assert [known.ended(each, NOW) for each in (ann, bearer)] == ["", ""]
    assert ann.credential not in repr(ann).encode()
    same = Account("ann", HASH.get_secret_value())
    known.replace([same], token="t0ken")
    assert [known.ended(each, NOW) for each in (ann, bearer)] == ["", ""]
    known.replace([Account("ann", hash_password("other"))], token="other")
    assert "password of user 'ann' was changed" in known.ended(ann, NOW)
    assert "token was changed" in known.ended(bearer, NOW)
    known.replace([Account("token", HASH.get_secret_value())], token=None)
    assert "user 'ann' was removed" in known.ended(ann, NOW)
    assert known.ended(bearer, NOW), "a user of the same name is somebody else"
    known.replace([same], token="t0ken")
    assert [known.ended(each, NOW) for each in (ann, bearer)] == ["", ""]


def test_a_login_does_not_count_for_a_user_made_anew_with_the_same_password() -> None:
    known = accounts_of("root")

    def add(now: int) -> None:
        known.apply([UserStored(StoredUser("ann", HASH.get_secret_value(), False, (), now, now))])

    add(1)
    before = known.authenticate("ann", "secret", "", NOW)
    add(1)
    assert known.ended(before, NOW) == ""
    known.apply([UserRemoved("ann")])
    add(2)
    assert known.ended(before, NOW)
    assert known.ended(known.authenticate("ann", "secret", "", NOW), NOW) == ""


def test_a_password_in_clear_is_the_same_credential_however_often_it_is_hashed() -> None:
    auth = Auth(superuser="vibemq", superuser_password=SecretStr("pw"))
    known = Accounts(auth.accounts())
    root = known.authenticate("vibemq", "pw", "", NOW)
    known.replace(auth.accounts(), token=None)
    assert known.ended(root, NOW) == ""
    other = Auth(superuser="vibemq", superuser_password=SecretStr("other"))
    known.replace(other.accounts(), token=None)
    assert "was changed" in known.ended(root, NOW)


def test_a_token_for_a_broker_without_one_is_told_what_to_use() -> None:
    auth = Auth(users={"ann": User(password_hash=HASH)})
    known = Accounts(auth.accounts(), token=None)
    with pytest.raises(AuthFailed, match="and this broker has no shared token; correct it"):
        known.authenticate("", "", "t0ken", NOW)


@pytest.mark.parametrize("name", ["token", "superuser_password"])
def test_a_secret_that_would_be_taken_for_an_access_token_is_refused(name: str) -> None:
    superuser = {"superuser": "root", "superuser_password": "pw"}
    with pytest.raises(ValidationError, match=rf"auth\.{name} has the form of an access token"):
        Auth.model_validate({**superuser, name: f"vmq_{'0' * 12}_{'0' * 64}"})
    assert Auth.model_validate({**superuser, name: "vmq_"}).enabled


def test_pages_of_names_and_tokens_follow_every_change() -> None:
    accounts = Accounts([Account("root", cheap_hash(), superuser=True)])
    for name in ("bob", "ann", "eve"):
        accounts.apply([UserStored(StoredUser(name, cheap_hash(), False, (), 1, 1))])
        accounts.apply([UserStored(StoredUser(name, cheap_hash(), True, (), 1, 2))])
    made = [make_token(user, label="", now=1, expires_at=0, rules=None)[1] for user in ("ann", "bob", "ann", "ann")]
    accounts.apply(TokenStored(token) for token in (*made, *made))
    assert accounts.names() == ["ann", "bob", "eve", "root"]
    assert accounts.names("ann", 2) == ["bob", "eve"]
    assert accounts.names("b") == ["bob", "eve", "root"]
    ids = sorted(token.token_id for token in made)
    assert accounts.token_ids() == ids
    assert accounts.token_ids(ids[0], 2) == ids[1:3]
    assert accounts.tokens_of("ann") == sorted(token.token_id for token in made if token.user == "ann")
    accounts.apply([TokenRemoved(token.token_id) for token in made if token.user == "ann"])
    accounts.apply([UserRemoved("ann"), UserRemoved("ann"), TokenRemoved(made[0].token_id)])
    accounts.replace([], token=None)
    assert (accounts.names(), accounts.token_ids()) == (["bob", "eve"], [made[1].token_id])
    assert accounts.tokens_of("ann") == []


def test_what_was_used_is_taken_some_at_a_time() -> None:
    accounts = Accounts([Account("ann", cheap_hash())])
    made = [make_token("ann", label="", now=1, expires_at=0, rules=None) for _ in range(5)]
    accounts.apply(TokenStored(token) for _, token in made)
    for text, _ in made:
        accounts.authenticate("", "", text, 7)
    accounts.apply([TokenRemoved(made[0][1].token_id)])
    assert accounts.used_count == 5
    taken = [accounts.take_used(2), accounts.take_used(2), accounts.take_used(2)]
    assert sorted(map(len, taken)) == [0, 2, 2]
    assert {token.used_at for part in taken for token in part} == {7}


def test_a_use_counts_although_one_under_a_clock_that_was_ahead_is_known() -> None:
    accounts = Accounts([Account("ann", cheap_hash())])
    text, token = make_token("ann", label="", now=1, expires_at=0, rules=None)
    accounts.apply([TokenStored(replace(token, used_at=1_000_000))])
    accounts.authenticate("", "", text, 7)
    shown = accounts.token(token.token_id)
    assert shown is not None
    assert shown.used_at == 7
    assert [kept.used_at for kept in accounts.take_used(1)] == [7]


def test_names_follow_users_that_are_replaced() -> None:
    accounts = Accounts([Account("zoe", HASH.get_secret_value())])
    accounts.replace([Account(name, HASH.get_secret_value()) for name in ("bob", "ann")], token=None)
    assert accounts.names() == ["ann", "bob"]


# -- users that have left work to be done ---------------------------------------------------------------------------


def accounts_of(*names: str, token: str | None = None) -> Accounts:
    return Accounts([Account(name, hash_password("secret")) for name in names], token=token)


def test_without_authentication_everybody_acts() -> None:
    assert Accounts().acting("ann", "", 0) is ANONYMOUS


def test_a_user_acts_until_it_is_removed_and_its_login_counts_like_one_with_the_password() -> None:
    known = accounts_of("ann", "bob")
    acting = known.acting("ann", "", 0)
    assert isinstance(acting, Principal)
    assert (acting.name, acting.superuser, acting.rules) == ("ann", False, None)
    assert known.ended(acting, 0) == ""
    known.replace([Account("bob", hash_password("secret"))], token=None)
    assert "removed" in known.ended(acting, 0)
    assert known.acting("ann", "", 0) is None


def test_a_changed_password_ends_the_old_login_and_not_the_next() -> None:
    known = accounts_of("ann")
    before = known.acting("ann", "", 0)
    assert before is not None
    known.replace([Account("ann", hash_password("other"))], token=None)
    assert "changed" in known.ended(before, 0)
    after = known.acting("ann", "", 0)
    assert after is not None
    assert known.ended(after, 0) == ""


def test_the_shared_token_acts_while_it_is_there_and_an_unknown_access_token_never() -> None:
    known = accounts_of("ann", token="shared")  # a test's
    bearer = known.acting(TOKEN_BEARER, "", 0)
    assert bearer is not None
    assert bearer.superuser
    assert known.ended(bearer, 0) == ""
    assert known.acting("ann", "0123456789abcdef", 0) is None
    known.replace([Account("ann", hash_password("secret"))], token=None)
    assert known.acting(TOKEN_BEARER, "", 0) is None
