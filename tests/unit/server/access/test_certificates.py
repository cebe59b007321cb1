from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from vibemq.config import Tls
from vibemq.server.access.certificates import users_in

CERTIFICATE: dict[str, Any] = {
    "subject": ((("organizationName", "o"),), (("commonName", "ann"),)),
    "subjectAltName": (
        ("DNS", "spark.workers.example.com"),
        ("DNS", "workers.example.com"),
        ("DNS", ".workers.example.com"),
        ("URI", "spiffe://example.com/jobs/nightly"),
        ("email", "bob@example.com"),
        ("IP Address", "127.0.0.1"),
    ),
}


def tls(identity: Any, pattern: str = "{}") -> Tls:
    here = Path("x.pem")
    return Tls(certificate=here, client_ca=here, identity=identity, identity_pattern=pattern)


@pytest.mark.parametrize(
    ("identity", "pattern", "users"),
    [
        ("cn", "{}", ("ann",)),
        ("cn", "{}.example.com", ()),
        ("dns", "{}.workers.example.com", ("spark",)),
        ("uri", "spiffe://example.com/jobs/{}", ("nightly",)),
        ("email", "{}@example.com", ("bob",)),
        ("email", "{}@example.org", ()),
        (None, "{}", ()),
    ],
)
def test_the_rule_names_the_user(identity: Any, pattern: str, users: tuple[str, ...]) -> None:
    assert users_in(CERTIFICATE, tls(identity, pattern)) == users


def test_nobody_without_a_certificate_or_tls() -> None:
    assert users_in(None, tls("cn")) == users_in({}, tls("cn")) == users_in(CERTIFICATE, None) == ()


@pytest.mark.parametrize("pattern", ["", "fixed", "{}{}"])
def test_a_pattern_has_one_place_for_the_user(pattern: str) -> None:
    with pytest.raises(ValidationError, match="once"):
        tls("cn", pattern)


def test_no_identity_without_an_authority() -> None:
    with pytest.raises(ValidationError, match="client_ca"):
        Tls(certificate=Path("x.pem"), identity="cn")
