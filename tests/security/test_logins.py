"""S5: what is kept of a password."""

import pytest

from tests.integration.access import connected
from tests.security.target import Target
from vibemq.auth.passwords import hash_password, verify_password

pytestmark = pytest.mark.xdist_group("security")


def test_new_passwords_are_argon2id(target: Target) -> None:
    hashed = hash_password("secret")
    kind, version, parameters, salt, digest = hashed.lstrip("$").split("$")
    memory_kib, passes, lanes = (int(part.partition("=")[2]) for part in parameters.split(","))
    assert (kind, version) == ("argon2id", "v=19")
    # What RFC 9106 and OWASP recommend at least.
    assert memory_kib * passes >= 19 * 1024 * 2
    assert lanes >= 1
    assert min(len(salt), len(digest)) >= 22
    assert verify_password("secret", hashed)
    assert not verify_password("Secret", hashed)
    assert hash_password("secret") != hashed, "each has a salt of its own"
    with connected(target.port, "root") as root:
        root.admin("user.add", user="hashed", password="secret")
        shown = str(root.admin("user.show", user="hashed")) + str(root.admin("user.list"))
        assert "argon2" not in shown
        assert "secret" not in shown
        root.admin("user.remove", user="hashed")
