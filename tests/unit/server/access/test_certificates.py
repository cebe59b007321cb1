import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from vibemq.config import Tls
from vibemq.server.access.certificates import users_in, validity

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


@pytest.mark.parametrize(
    "subject",
    [
        ((("commonName", "nobody"),), (("commonName", "root"),)),
        ((("commonName", "nobody"), ("commonName", "root")),),
    ],
)
def test_several_common_names_stand_for_nobody(subject: Any) -> None:
    assert users_in({"subject": subject}, tls("cn")) == ()
    assert users_in({"subject": (subject[0][:1],) * 2}, tls("cn")) == ("nobody",)


def test_nobody_without_a_certificate_or_tls() -> None:
    assert users_in(None, tls("cn")) == users_in({}, tls("cn")) == users_in(CERTIFICATE, None) == ()


@pytest.mark.parametrize("pattern", ["", "fixed", "{}{}"])
def test_a_pattern_has_one_place_for_the_user(pattern: str) -> None:
    with pytest.raises(ValidationError, match="once"):
        tls("cn", pattern)


def test_no_identity_without_an_authority() -> None:
    with pytest.raises(ValidationError, match="client_ca"):
        Tls(certificate=Path("x.pem"), identity="cn")


# -- until when one is valid ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [10, 3_000, 30_000])
def test_the_first_and_the_last_instant_are_those_of_openssl(tmp_path: Path, days: int) -> None:
    """A validity beyond 2049 has another form."""
    file = tmp_path / "c.pem"
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(tmp_path / "key"))
    made = ("openssl", "req", "-x509", *new, "-subj", "/CN=a", "-days", str(days), "-out", str(file))
    subprocess.run(made, check=True, capture_output=True)
    said = subprocess.run(
        ("openssl", "x509", "-in", str(file), "-noout", "-dates"), check=True, capture_output=True, text=True
    ).stdout
    assert validity(file) == tuple(
        datetime.strptime(line.partition("=")[2], "%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
        for line in said.splitlines()
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-----BEGIN CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\nnot base64\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_certificate_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.pem").write_text(text)
    with pytest.raises(ValueError):  # whatever is wrong with it
        validity(tmp_path / "c.pem")
