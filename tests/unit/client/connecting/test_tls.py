"""The context is one while its files stay as they are, and a new one when they do not."""

import shutil
from pathlib import Path

import pytest

from tests.integration.certificates import Authority
from vibemq.client.address import ClientSettings
from vibemq.client.connecting.tls import tls_context
from vibemq.errors import ConfigInvalid

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.mark.parametrize("verify", [True, False])
def test_all_attempts_share_one_context(verify: bool) -> None:
    settings = ClientSettings(host="a", tls=True, verify_certificate=verify)
    assert tls_context(settings) is tls_context(settings)


def test_a_client_that_verifies_does_not_share_with_one_that_does_not() -> None:
    one, other = (
        tls_context(ClientSettings(host="a", tls=True, verify_certificate=verify)) for verify in (True, False)
    )
    assert one.check_hostname
    assert not other.check_hostname


@needs_openssl
def test_renewed_files_are_read_anew(tmp_path: Path) -> None:
    authority = Authority.made_in(tmp_path)
    mine, renewed = authority.sign("mine"), authority.sign("renewed")
    settings = ClientSettings(
        host="a", tls=True, tls_ca=str(authority.ca), tls_certificate=str(mine.certificate), tls_key=str(mine.key)
    )
    before = tls_context(settings)
    assert tls_context(settings) is before
    renewed.certificate.replace(mine.certificate)
    renewed.key.replace(mine.key)
    assert tls_context(settings) is not before


@needs_openssl
def test_a_file_that_was_refused_is_read_again_once_it_is_mended(tmp_path: Path) -> None:
    authority = Authority.made_in(tmp_path)
    file = tmp_path / "mended.pem"
    file.write_text("no certificate")
    settings = ClientSettings(host="a", tls=True, tls_ca=str(file))
    with pytest.raises(ConfigInvalid, match="not a PEM file"):
        tls_context(settings)
    shutil.copy(authority.ca, file)
    assert tls_context(settings).get_ca_certs()
