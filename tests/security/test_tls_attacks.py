"""S10: peers that want less than TLS 1.2, never finish a handshake, or bring a certificate of yesterday."""

import socket
import ssl
import subprocess
from collections.abc import Iterator

import pytest

from tests.crash.ledger import BrokerProcess
from tests.integration.certificates import Authority, Signed
from tests.integration.conditions import broker_on, running
from tests.security.target import everything
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body

TIMEOUT_S = 60
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
CONNECT = encode_frame(encode_body(CommandType.CONNECT, "c"), body_bytes_max=1000)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.made_in(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("tls")
    server = authority.sign("server")
    toml = (
        f'[[listeners]]\nprotocol = "native"\n[listeners.tls]\ncertificate = "{server.certificate}"\n'
        f'key = "{server.key}"\nclient_ca = "{authority.ca}"\n[limits]\nhandshake_timeout_ms = 3000\n'
    )
    with running(broker_on(folder / "data", folder, toml=toml)) as broker:
        yield broker


def context(authority: Authority, mine: Signed) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority.ca))
    made.load_cert_chain(mine.certificate, mine.key)
    return made


def answer(broker: BrokerProcess, how: ssl.SSLContext) -> bytes:
    """To a Connect; b"" when there is none, or no TLS."""
    try:
        with (
            socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S) as plain,
            how.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(CONNECT)
            return secure.recv(4096)
    except (ssl.SSLError, ConnectionError):
        return b""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("version", "taken"),
    [(ssl.TLSVersion.TLSv1, False), (ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)],
)
def test_an_old_version_of_tls_is_refused(
    broker: BrokerProcess, authority: Authority, version: ssl.TLSVersion, taken: bool
) -> None:
    how = context(authority, authority.sign(f"client-{version.name}"))
    how.set_ciphers("ALL:@SECLEVEL=0")
    how.minimum_version = how.maximum_version = version
    assert bool(answer(broker, how)) == taken


@pytest.mark.parametrize("data", [b"", CLIENT_HELLO, CLIENT_HELLO[:3]], ids=["nothing", "a hello", "half a hello"])
def test_a_handshake_that_stalls_is_ended(broker: BrokerProcess, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S) as peer:
        peer.sendall(data)
        said = everything(peer)
        # Nothing, or an alert of TLS.
        assert not said or said[0] == 21


def test_an_expired_certificate_is_refused(broker: BrokerProcess, authority: Authority) -> None:
    valid = authority.sign("valid")
    assert answer(broker, context(authority, valid))
    for name, days in (("expired", "-1"), ("renewed", "1")):
        assert bool(answer(broker, context(authority, signed_for(authority, name, days)))) == (name == "renewed")
    stranger = Authority.made_in(authority.folder, "stranger").sign("theirs")
    assert not answer(broker, context(authority, stranger))


def signed_for(authority: Authority, name: str, days: str) -> Signed:
    """Valid from `days` days before now to now, when it is negative."""
    made = authority.sign(name)
    command = ["openssl", "x509", "-req", "-in", authority.folder / f"{name}.csr", "-days", days, "-CA", authority.ca]
    command += ["-CAkey", authority.ca.with_suffix(".key"), "-CAcreateserial", "-out", made.certificate]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return made
