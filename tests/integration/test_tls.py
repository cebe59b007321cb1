"""TLS between the client and the broker: certificates of both sides, and what each side says when the other speaks
something else."""

import logging
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from pydantic import SecretStr

import vibemq
import vibemq.sync
from tests.integration.certificates import Authority, Signed
from tests.waiting import until
from vibemq.cli.admin.main import app as admin_app
from vibemq.cli.entry import run_app
from vibemq.cli.main import app
from vibemq.config import Auth, Http, Limits, Listener, Settings, StorageChoice, Tls
from vibemq.errors import ConfigInvalid, VibeMQError
from vibemq.server.net.tls import NewerTls, ServerTls

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.made_in(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Signed:
    return authority.sign("server")


@pytest.fixture(scope="module")
def mine(authority: Authority) -> Signed:
    return authority.sign("client")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "vibemq"):
        yield caplog


@asynccontextmanager
async def broker(folder: Path, tls: Tls | None) -> AsyncIterator[vibemq.Broker]:
    settings = Settings(
        data_dir=folder / "data",
        storage=StorageChoice(provider="memory"),
        listeners=(Listener(port=0, tls=tls),),
        http=Http(port=0),
    )
    async with vibemq.Broker(settings=settings) as running:
        yield running


async def refusal(address: str, **options: object) -> str:
    with pytest.raises(VibeMQError) as caught:
        async with vibemq.connect(address, **options):  # type: ignore[arg-type]
            raise AssertionError("it connected")
    return f"{type(caught.value).__name__}: {caught.value}"


async def heard(log: pytest.LogCaptureFixture, words: str) -> None:
    """Wait until the broker has logged it."""
    await until(lambda: words in log.text)


async def test_a_broker_that_asks_for_certificates(
    tmp_path: Path, authority: Authority, server: Signed, mine: Signed, log: pytest.LogCaptureFixture
) -> None:
    tls = Tls(certificate=server.certificate, key=server.key, client_ca=authority.ca)
    ca, certificate, key = str(authority.ca), str(mine.certificate), str(mine.key)
    async with broker(tmp_path, tls) as running:
        address = f"127.0.0.1:{running.port}"
        async with vibemq.connect(f"vibemq://{address}", tls_ca=ca, tls_certificate=certificate, tls_key=key) as mq:
            await mq.publish("orders", 1)
        url = f"vibemqs://{address}?tlsCa={ca}&tlsCertificate={certificate}&tlsKey={key}"
        async with vibemq.connect(url) as mq:
            await mq.publish("orders", 1)

        def blocking() -> None:
            with vibemq.sync.connect(f"host=127.0.0.1;port={running.port}", tls_ca=ca, **pair) as face:
                face.publish("orders", 1)

        pair = {"tls_certificate": certificate, "tls_key": key}
        await anyio.to_thread.run_sync(blocking)

        assert "client certificate" in await refusal(f"vibemqs://{address}", tls_ca=ca)
        await heard(log, "the client presented no certificate")
        stranger = Authority.made_in(tmp_path, "other").sign("stranger")
        theirs = {"tls_certificate": str(stranger.certificate), "tls_key": str(stranger.key)}
        said = await refusal(f"vibemqs://{address}", tls_ca=ca, **theirs)
        assert "our client certificate" in said or "during the handshake" in said, said


async def test_a_certificate_that_is_not_accepted(tmp_path: Path, authority: Authority, server: Signed) -> None:
    async with broker(tmp_path, Tls(certificate=server.certificate, key=server.key)) as running:
        where = f"127.0.0.1:{running.port}"
        said = await refusal(f"vibemqs://{where}")
        assert said.startswith(f"NotConnected: the certificate of {where} is not accepted")
        assert "--tls-ca" in said
        said = await refusal(f"vibemqs://{where}", tls_ca=str(authority.ca), tls_server_name="broker.example")
        assert "tlsServerName" in said
        assert running.url == f"vibemqs://{where}"
        async with vibemq.connect(running.url, verify_certificate=False) as mq:
            await mq.ping()
        async with vibemq.connect(f"vibemq://{where}", tls_ca=str(authority.ca), tls_server_name="localhost") as mq:
            await mq.ping()


async def test_files_that_cannot_be_used(tmp_path: Path, authority: Authority, server: Signed, mine: Signed) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate\n")
    for options, words in (
        (
            {"tls_ca": str(tmp_path / "none.pem")},
            "tlsCa: the file {}/none.pem cannot be read (No such file",
        ),
        ({"tls_ca": str(nonsense)}, "nonsense.pem cannot be used: it is not a PEM file"),
        ({"tls_certificate": str(mine.certificate), "tls_key": str(server.key)}, "its key does not belong to it"),
        ({"tls_certificate": str(mine.certificate)}, "it holds no key; name the file of its key in tlsKey"),
        (
            {"tls_certificate": str(mine.certificate), "tls_key": str(tmp_path / "none.key")},
            "tlsKey: the file {}/none.key cannot be read (No such file or directory); correct the path",
        ),
        (
            {"tls_certificate": str(tmp_path / "none.pem")},
            "tlsCertificate: the file {}/none.pem cannot be read (No such file or directory); correct the path",
        ),
    ):
        said = await refusal("vibemqs://127.0.0.1:1", **options)
        assert said.startswith("ConfigInvalid: "), said
        assert words.format(tmp_path) in said
    with pytest.raises(ConfigInvalid, match="give both"):
        vibemq.connect(tls_key=str(mine.key))


async def test_files_that_a_listener_cannot_use(
    tmp_path: Path, authority: Authority, server: Signed, mine: Signed
) -> None:
    nonsense, none = tmp_path / "nonsense.pem", tmp_path / "none.pem"
    nonsense.write_text("no certificate\n")
    wrong_order = tmp_path / "chain.pem"
    wrong_order.write_text(authority.ca.read_text() + server.certificate.read_text())
    of_another_kind = tmp_path / "rsa.key"
    subprocess.run(["openssl", "genrsa", "-out", of_another_kind, "2048"], check=True, capture_output=True)
    foreign = "does not belong to the first certificate in {}; give the key of that certificate, or put its own"
    for files, key, words in (
        ({"certificate": none}, "certificate", f"the file {none} cannot be read (No such file or directory)"),
        ({"certificate": nonsense}, "certificate", f"the file {nonsense} is not a PEM file of this kind"),
        ({"certificate": server.certificate}, "key", f"the file {server.certificate} holds no key that can be used"),
        ({"certificate": server.certificate, "key": none}, "key", f"the file {none} cannot be read"),
        ({"certificate": server.certificate, "key": nonsense}, "key", f"the file {nonsense} is not a PEM file"),
        (
            {"certificate": server.certificate, "key": mine.key},
            "key",
            f"the key in {mine.key} {foreign.format(server.certificate)}",
        ),
        (
            {"certificate": server.certificate, "key": of_another_kind},
            "key",
            f"the key in {of_another_kind} {foreign.format(server.certificate)}",
        ),
        (
            {"certificate": wrong_order, "key": server.key},
            "key",
            f"the key in {server.key} {foreign.format(wrong_order)}",
        ),
        (
            {"certificate": server.certificate, "key": server.key, "client_ca": nonsense},
            "client_ca",
            f"the file {nonsense} is not a PEM file of this kind",
        ),
    ):
        with pytest.raises(ConfigInvalid) as refused:
            ServerTls(Tls.model_validate(files), "listeners[0].tls")
        assert str(refused.value).startswith(f"setting listeners[0].tls.{key} is not valid: {words}"), files


async def test_a_file_that_is_replaced_while_it_is_read_is_told_as_a_setting(
    server: Signed, mine: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key of the new certificate is there before the certificate is, or the other way round."""
    tls = ServerTls(Tls(certificate=server.certificate, key=server.key), "http.tls")
    load, loads = ssl.SSLContext.load_cert_chain, iter([server.key, mine.key])

    def half_replaced(context: ssl.SSLContext, certificate: Path, key: Path, **more: Any) -> None:
        load(context, certificate, next(loads), **more)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", half_replaced)
    assert isinstance(tls.newer(Tls(certificate=server.certificate, key=server.key, identity_pattern="a{}")), NewerTls)
    with pytest.raises(ConfigInvalid, match=r"http\.tls\.key is not valid: the key in"):
        tls.newer(Tls(certificate=server.certificate, key=server.key, identity_pattern="b{}"))


async def test_a_client_without_tls_on_a_tls_port(
    tmp_path: Path, server: Signed, log: pytest.LogCaptureFixture
) -> None:
    async with broker(tmp_path, Tls(certificate=server.certificate, key=server.key)) as running:
        assert "write vibemqs://" in await refusal(f"vibemq://127.0.0.1:{running.port}")
        await heard(log, "a client without TLS came to a TLS listener")
        with pytest.raises(httpx.HTTPError):
            async with httpx.AsyncClient() as http:
                await http.get(f"http://127.0.0.1:{running.port}/")
        await heard(log, "an HTTP request came to a TLS listener")


async def heard_of_its_end(stranger: anyio.abc.ByteStream) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            await stranger.receive()


async def test_a_listener_counts_the_handshakes_that_came_to_nothing(
    tmp_path: Path, authority: Authority, server: Signed
) -> None:
    async with broker(tmp_path, Tls(certificate=server.certificate, key=server.key)) as running:
        for _ in range(2):
            async with await anyio.connect_tcp("127.0.0.1", running.port) as stranger:
                await stranger.send(b"no handshake at all\r\n\r\n")
                await heard_of_its_end(stranger)
        async with vibemq.connect(f"vibemqs://127.0.0.1:{running.port}", tls_ca=str(authority.ca)) as mq:
            native, http = (await mq.admin("listeners.list"))["listeners"]
        assert (native["handshakes_failed"], native["refused"]) == (2, 0)
        assert (http["handshakes_failed"], http["refused"]) == (None, 0)
        assert b"\nvibemq_tls_handshakes_failed_total 2\n" in await running.report.prometheus()


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": False}), ("asyncio", {"use_uvloop": True})])
async def test_the_http_port_counts_them_too(tmp_path: Path, authority: Authority, server: Signed) -> None:
    tls = Tls(certificate=server.certificate, key=server.key)
    wanted = Settings(
        data_dir=tmp_path / "data",
        storage=StorageChoice(provider="memory"),
        listeners=(Listener(port=0),),
        http=Http(port=0, tls=tls),
        limits=Limits(handshake_timeout_ms=3_000),
    )
    async with vibemq.Broker(settings=wanted) as running, vibemq.connect(running.url) as mq:

        async def http() -> dict[str, Any]:
            (found,) = [one for one in (await mq.admin("listeners.list"))["listeners"] if one["protocol"] == "http"]
            return dict(found)

        port = (await http())["port"]
        async with await anyio.connect_tcp("127.0.0.1", port) as stranger:
            await stranger.send(b"no handshake at all\r\n\r\n")
            await heard_of_its_end(stranger)

        def distrust() -> None:
            """It does not know the authority, and says so."""
            with (
                socket.create_connection(("127.0.0.1", port)) as plain,
                pytest.raises(ssl.SSLCertVerificationError),
            ):
                ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")

        await anyio.to_thread.run_sync(distrust)
        trusting = ssl.create_default_context(cafile=str(authority.ca))
        async with httpx.AsyncClient(verify=trusting) as welcome:
            assert (await welcome.get(f"https://127.0.0.1:{port}/livez")).status_code == 200
        told = await http()
        assert (told["handshakes_failed"], told["refused"]) == (2, 0)
        assert running.report.metrics.handshakes_failed == 2

        async def counted(failed: int) -> None:
            async def enough() -> bool:
                return bool((await http())["handshakes_failed"] >= failed)

            await until(enough)
            assert (await http())["handshakes_failed"] == failed

        def leave(said: bytes, *, reset: bool = False) -> None:
            with socket.create_connection(("127.0.0.1", port)) as plain:
                plain.sendall(said)
                if reset:
                    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        half = b"\x16\x03\x01\x02\x00\x01\x00"
        leave(b"")
        await counted(3)
        leave(half)
        await counted(4)
        leave(half, reset=True)
        await counted(5)
        # And one that says no more until its time is over.
        async with await anyio.connect_tcp("127.0.0.1", port) as silent:
            await silent.send(half)
            await heard_of_its_end(silent)
        await counted(6)


async def test_a_client_with_tls_on_a_port_without(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    async with broker(tmp_path, None) as running:
        assert "this port does not speak TLS" in await refusal(f"vibemqs://127.0.0.1:{running.port}")
        await heard(log, "a TLS handshake came to a listener without TLS")


async def test_http_and_the_native_protocol_meet(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    async with broker(tmp_path, None) as running:
        assert running.http_address is not None
        host, port = running.http_address
        said = await refusal(f"vibemq://{host}:{port}")
        assert said.startswith(f"NotABroker: {host}:{port} does not speak the native protocol")
        assert "this is a port for HTTP; use the port of the native protocol" in said
        assert "this port does not speak TLS" in await refusal(f"vibemqs://{host}:{port}")
        with pytest.raises(httpx.HTTPError):
            async with httpx.AsyncClient() as http:
                await http.get(f"http://127.0.0.1:{running.port}/metrics")
        await heard(log, "an HTTP request came to the native protocol's port")


async def test_the_command_line_presents_certificates(
    tmp_path: Path,
    authority: Authority,
    server: Signed,
    mine: Signed,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tls = Tls(certificate=server.certificate, key=server.key, client_ca=authority.ca)
    files = ("--tls-ca", str(authority.ca), "--tls-cert", str(mine.certificate), "--tls-key", str(mine.key))
    async with broker(tmp_path, tls) as running:
        url = f"vibemq://127.0.0.1:{running.port}"

        async def cli(*words: str) -> int:
            if words[0] == "admin":
                return await anyio.to_thread.run_sync(run_app, admin_app, "vibemq-admin", words[1:])
            return await anyio.to_thread.run_sync(run_app, app, "vibemq", words)

        assert await cli("ping", "--count", "1", "--url", url, *files) == 0
        assert await cli("ping", "--count", "1", "--url", f"host=127.0.0.1;port={running.port}", *files) == 0
        assert await cli("admin", "queue", "ls", "--url", url, *files) == 0
        assert await cli("ping", "--count", "1", "--url", url, "--tls-insecure", *files[2:]) == 0
        capfd.readouterr()
        assert await cli("ping", "--count", "1", "--url", url, *files[:2]) == 5
        assert "--tls-cert" in capfd.readouterr().err
        assert await cli("ping", "--count", "1", "--url", url, *files[2:]) == 5
        assert "--tls-ca" in capfd.readouterr().err
        for option, value in zip(files[::2], files[1::2], strict=True):
            monkeypatch.setenv("VIBEMQ_" + option.removeprefix("--").replace("-", "_").upper(), value)
        assert await cli("pub", "orders", "1", "--url", url) == 0


async def test_credentials_are_asked_for_in_words_of_the_command_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(
        data_dir=tmp_path / "data",
        storage=StorageChoice(provider="memory"),
        listeners=(Listener(port=0),),
        http=Http(enabled=False),
        auth=Auth(token=SecretStr("secret")),
    )
    async with vibemq.Broker(settings=settings) as running:
        words = ("ping", "--url", f"vibemq://127.0.0.1:{running.port}")
        assert await anyio.to_thread.run_sync(run_app, app, "vibemq", words) == 4
    said = capfd.readouterr().err
    assert "vibemq://user:password@host" in said
    assert "header" not in said


async def test_the_reason_of_a_refused_connection_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = await refusal(f"vibemq://127.0.0.1:{port}")
    assert "connection refused; check the address and the port" in said
    async with broker(tmp_path, None) as running:
        said = await refusal(f"vibemqs://127.0.0.1:{running.port}")
        assert "that a broker listens there" not in said


async def test_handshakes_and_connections_together_take_no_more_files_than_connections_may_have(
    tmp_path: Path, server: Signed, authority: Authority
) -> None:
    settings = Settings(
        data_dir=tmp_path / "data",
        storage=StorageChoice(provider="memory"),
        listeners=(Listener(port=0), Listener(port=0, tls=Tls(certificate=server.certificate, key=server.key))),
        http=Http(enabled=False),
    )
    async with vibemq.Broker(settings=settings) as running:
        table = running._running().connection_table
        table._files_max = 4
        plain, tls = (listening.port for listening in running.listening)
        peers: list[socket.socket] = []

        def dial(port: int, source: str) -> socket.socket:
            peers.append(socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(source, 0)))
            return peers[-1]

        async def said(peer: socket.socket) -> bytes:
            return await anyio.to_thread.run_sync(peer.recv, 1_000)

        silent = [dial(tls, "127.0.0.1") for _ in range(4)]
        await until(lambda: len(table.handshakes) == 4)
        assert b"may open no more files for connections than 4" in await said(dial(plain, "127.0.0.1"))
        assert len(table.handshakes) == 4
        # An address that has few gets the place of one that has the most, with TLS or without.
        dial(plain, "127.0.0.2")
        assert await said(silent[0]) == b""
        await until(lambda: len(table) == 1)
        dial(tls, "127.0.0.2")
        assert await said(silent[1]) == b""
        await until(lambda: (len(table), len(table.handshakes)) == (1, 3))
        assert b"no more files" in await said(dial(plain, "127.0.0.1"))
        for peer in peers:
            peer.close()
        await until(lambda: (len(table), len(table.handshakes)) == (0, 0))
        table._files_max = 1
        async with vibemq.connect(f"vibemqs://localhost:{tls}", tls_ca=str(authority.ca)) as client:
            await client.create_queue("q", durability="transient")


async def test_silent_handshakes_take_no_more_files_than_connections_may_have(
    tmp_path: Path, server: Signed, authority: Authority, log: pytest.LogCaptureFixture
) -> None:
    async with broker(tmp_path, Tls(certificate=server.certificate, key=server.key)) as running:
        running._running().connection_table._files_max = 3
        port = running.listening[0].port
        silent = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(4)]
        assert await anyio.to_thread.run_sync(silent[-1].recv, 10) == b""
        await heard(log, "may open no more files for connections than 3")
        for peer in silent:
            peer.close()
        address = f"vibemqs://localhost:{port}"

        async def connects() -> bool:
            with suppress(VibeMQError):
                async with vibemq.connect(address, tls_ca=str(authority.ca)):
                    return True
            return False

        await until(connects)
