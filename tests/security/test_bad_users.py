"""Bad input about users and tokens, over the wire: a clear answer, and nothing has changed."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.access import connected
from tests.integration.cursor_peer import Peer, Refusal, rows_of
from tests.security.target import Target, heard
from vibemq.protocols.native.codec.wire import CommandType, encode_body

pytestmark = pytest.mark.xdist_group("security")

CANARY = "canary"
BIG = CANARY * 100_000
"""600 kB: fits into a frame."""
BOMBS = (
    "$argon2id$v=19$m=4194304,t=1,p=1$c2FsdHNhbHQ$YWFhYWFhYWFhYWFhYWFhYQ",
    "$argon2id$v=19$m=8,t=4294967295,p=1$c2FsdHNhbHQ$YWFhYWFhYWFhYWFhYWFhYQ",
    "scrypt$30$8$1$c2FsdHNhbHQ=$YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=",
    "$2b$31$" + "a" * 53,
    "$2b$" + "9" * 100_000,
    "md5$abc",
    "",
)


@pytest.fixture
def root(target: Target) -> Iterator[Peer]:
    with connected(target.port, "root") as root:
        yield root


@pytest.fixture
def ann(root: Peer) -> Iterator[str]:
    root.admin("user.add", user="ann", password="secret")
    yield "ann"
    if any(user["user"] == "ann" for user in root.admin("user.list")["users"]):
        root.admin("user.change", user="ann", superuser=False)
        root.admin("user.remove", user="ann")


def refusal(root: Peer, operation: str, **arguments: Any) -> str:
    with pytest.raises(Refusal) as refused:
        root.admin(operation, **arguments)
    assert len(str(refused.value)) < 1500
    assert CANARY not in str(refused.value)
    return str(refused.value)


def test_a_password_of_megabytes_is_refused(target: Target, root: Peer, ann: str) -> None:
    assert "INVALID_PAYLOAD" in refusal(root, "user.add", user="bob", password=BIG)
    assert "INVALID_PAYLOAD" in refusal(root, "user.password", user=ann, password=BIG)
    for size, code in ((4_000, "AUTH_FAILED"), (5_000, "INVALID_MESSAGE"), (60_000, "INVALID_MESSAGE")):
        assert target.refused_login({"authUsername": ann, "authPassword": "x" * size}) == code
    for size in (600_000, 10_000_000):
        with target.dial() as peer:
            peer.sendall(size.to_bytes(4, "big") + b"\0")
            [answer] = heard(peer)
            assert answer.error_code == "INVALID_MESSAGE"
    with connected(target.port, ann, password="secret") as logged_in:
        assert logged_in.admin("user.self")["user"] == ann


@pytest.mark.parametrize("stored", BOMBS, ids=lambda stored: stored[:24])
def test_a_hash_that_is_a_bomb_is_refused(root: Peer, stored: str) -> None:
    assert "INVALID_PAYLOAD" in refusal(root, "user.add", user="bob", password_hash=stored)
    assert "USER_NOT_FOUND" in refusal(root, "user.show", user="bob")


@pytest.mark.parametrize("pattern", ["", None, 5, [], "a\nb", "*" * 257, ["*"]])
def test_no_pattern_matches_everything_by_accident(target: Target, root: Peer, ann: str, pattern: Any) -> None:
    assert "INVALID_PAYLOAD" in refusal(root, "user.grant", user=ann, queues=pattern, actions=["publish"])
    fields = b'{"username": "ann", "queuePattern": "", "operations": ["Publish"]}'
    root.send(encode_body(CommandType.ADMIN_GRANT_PERMISSION, "g", payload=fields))
    with pytest.raises(Refusal, match="INVALID_PAYLOAD"):
        root.answer()
    assert root.admin("user.show", user=ann)["permissions"] == []


@pytest.mark.parametrize("pattern", ["a", "a.", ".*", "A.*", "a.\\*", "(a|b).*", "a.?", "%"])
def test_a_pattern_means_what_it_says(target: Target, root: Peer, ann: str, pattern: str) -> None:
    root.admin("user.grant", user=ann, queues=pattern, actions=["publish"])
    with connected(target.port, ann, password="secret") as peer, pytest.raises(Refusal, match="NOT_AUTHORIZED"):
        peer.publish("a.q", rows_of(1))


def test_unknown_operations_and_arguments_are_answered(root: Peer, ann: str) -> None:
    for operation in ("user.dance", "user", "", "user.add ", "USER.ADD", "x" * 10_000, "__init__"):
        assert "UNKNOWN_COMMAND" in refusal(root, operation, user=ann), operation
    for arguments in ({"user": ann, "colour": 1}, {"user": 5}, {}, {"user": None}, {"user": [ann]}):
        assert "INVALID_PAYLOAD" in refusal(root, "user.show", **arguments), arguments
    assert "INVALID_PAYLOAD" in refusal(root, "user.grant", user=ann, queues="a", actions=["dance"])
    assert "INVALID_PAYLOAD" in refusal(root, "user.grant", user=ann, queues="a", groups="a/b", actions=["manage"])


@pytest.mark.parametrize("name", ["root", "owner"])
def test_users_of_the_settings_are_not_changed_over_the_wire(target: Target, root: Peer, name: str) -> None:
    before = root.admin("user.show", user=name)
    assert "USER_EXISTS" in refusal(root, "user.add", user=name, password="x")
    for operation, arguments in {
        "user.remove": {},
        "user.change": {"superuser": False},
        "user.password": {"password": "x"},
        "user.grant": {"queues": "*", "actions": ["*"]},
        "user.revoke": {"queues": "a.*"},
    }.items():
        said = refusal(root, operation, user=name, **arguments)
        assert "FORBIDDEN" in said, operation
        assert "settings" in said, operation
    assert root.admin("user.show", user=name) == before
    with connected(target.port, name) as peer:
        assert peer.admin("user.self")["user"] == name


def test_a_token_of_a_deleted_user_is_dead_for_a_later_one_too(target: Target, root: Peer, ann: str) -> None:
    token = root.admin("token.create", user=ann)["token"]
    with connected(target.port, "", token=token) as peer:
        assert peer.admin("user.self")["user"] == ann
    root.admin("user.remove", user=ann)
    assert target.refused_login({"authToken": token}) == "AUTH_FAILED"
    root.admin("user.add", user=ann, password="other", superuser=True)
    assert target.refused_login({"authToken": token}) == "AUTH_FAILED"
    assert root.admin("token.list", user=ann)["tokens"] == []
    assert "USER_NOT_FOUND" in refusal(root, "token.create", user="nobody")
