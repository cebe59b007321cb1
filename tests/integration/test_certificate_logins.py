"""Certificates of clients that stand for users, in both protocols."""

import shutil
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from pydantic import SecretStr

import vibemq
from tests.integration.access import cheap_hash
from tests.integration.certificates import Authority, Signed
from tests.integration.test_permissions import EXPECTED
from vibemq.config import Auth, Http, Listener, Permission, Settings, StorageChoice, Tls, User
from vibemq.errors import AuthFailed, AuthRequired, NotAuthorized

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]
NAMES = "DNS:localhost,IP:127.0.0.1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.made_in(tmp_path_factory.mktemp("authority"))


@asynccontextmanager
async def broker(folder: Path, authority: Authority) -> AsyncIterator[vibemq.Broker]:
    server = authority.sign("server")
    tls = Tls(
        certificate=server.certificate,
        key=server.key,
        client_ca=authority.ca,
        identity="dns",
        identity_pattern="{}.workers.example.com",
    )
    own = (Permission(queues="a.*", actions=("publish", "create", "subscribe")),)
    ann = User(password_hash=SecretStr(cheap_hash("secret")), permissions=own)
    settings = Settings(
        data_dir=folder / "data",
        storage=StorageChoice(provider="sqlite"),
        listeners=(Listener(port=0, tls=tls), Listener(protocol="omq", port=0, tls=tls)),
        http=Http(enabled=False),
        auth=Auth(users={"ann": ann, "bob": ann}, superuser="root", superuser_password=SecretStr("pw")),
    )
    async with vibemq.Broker(settings=settings) as running:
        yield running


def certificate_of(authority: Authority, *users: str) -> Signed:
    names = "".join(f",DNS:{user}.workers.example.com" for user in users)
    return authority.sign("_".join(users) or "nobody", names=NAMES + names)


def connect(running: vibemq.Broker, authority: Authority, signed: Signed, **more: str) -> vibemq.Client:
    files = {"tls_ca": str(authority.ca), "tls_certificate": str(signed.certificate), "tls_key": str(signed.key)}
    return vibemq.connect(f"vibemqs://127.0.0.1:{running.port}", **files, **more)


async def test_a_certificate_logs_its_user_in(tmp_path: Path, authority: Authority) -> None:
    ann, nobody, both = (certificate_of(authority, *users) for users in (("ann",), (), ("ann", "bob")))
    eve = certificate_of(authority, "eve")
    async with broker(tmp_path, authority) as running:
        async with connect(running, authority, ann) as mq:
            assert (await mq.admin("user.self"))["user"] == "ann"
            await mq.publish("a.q", 1)
            with pytest.raises(NotAuthorized):
                await mq.publish("b.q", 1)
        async with connect(running, authority, nobody, username="bob", password="secret") as mq:
            assert (await mq.admin("user.self"))["user"] == "bob"
        async with connect(running, authority, ann, username="root", password="pw") as mq:
            assert (await mq.admin("user.self"))["user"] == "root"
        for signed, credentials, error in (
            (nobody, {}, AuthRequired),
            (eve, {}, AuthRequired),
            (both, {}, AuthFailed),
            (ann, {"username": "ann", "password": "wrong"}, AuthFailed),
            (ann, {"token": "wrong"}, AuthFailed),
        ):
            with pytest.raises(error):
                async with connect(running, authority, signed, **credentials):
                    pass


async def test_a_certificate_is_no_password(tmp_path: Path, authority: Authority) -> None:
    """Else who has it once would have access after it was withdrawn: with a new password, or a token."""
    ann, nobody = certificate_of(authority, "ann"), certificate_of(authority)
    own = {name: each.arguments for name, each in EXPECTED.items() if each.needs == {"self"}}
    assert {"token.create", "user.password", "connections.list"} <= set(own)
    async with broker(tmp_path, authority) as running:
        async with connect(running, authority, ann) as mq:
            for name, arguments in own.items():
                with pytest.raises(NotAuthorized, match="not with a token or a certificate"):
                    await mq.admin(name, **{**arguments, "user": "ann"})
        async with connect(running, authority, nobody, username="ann", password="secret") as mq:
            assert (await mq.admin("token.create", user="ann"))["user"] == "ann"
            shown = (await mq.admin("connections.list", user="ann"))["connections"]
            assert {each["user"] for each in shown} == {"ann"}


async def test_a_removed_user_is_hung_up_on_whatever_its_certificate(tmp_path: Path, authority: Authority) -> None:
    temp, nobody = certificate_of(authority, "temp"), certificate_of(authority)
    async with (
        broker(tmp_path, authority) as running,
        connect(running, authority, nobody, username="root", password="pw") as root,
    ):
        await root.admin("user.add", user="temp", password_hash=cheap_hash("old"))
        async with connect(running, authority, temp) as mq:
            await root.admin("user.password", user="temp", password="new")
            assert (await mq.admin("user.self"))["user"] == "temp"
            mine = len(await root.admin("connections.list"))
            await root.admin("user.remove", user="temp")
            with anyio.fail_after(60):
                while len(await root.admin("connections.list")) >= mine:
                    await anyio.sleep(0)
        with pytest.raises(AuthRequired):
            async with connect(running, authority, temp):
                pass


async def test_an_ocaml_client_needs_no_secret_beside_its_certificate(tmp_path: Path, authority: Authority) -> None:
    ann, eve, nobody = (certificate_of(authority, *users) for users in (("ann",), ("eve",), ()))
    async with broker(tmp_path, authority) as running:
        port = running.listening[1].port
        for signed, name, topic, said in (
            (ann, "me", "a.q", b"(topic a.q)"),
            (ann, "me", "b.q", b"not authorized"),
            (nobody, "me", "a.q", b"asks for credentials"),
            (eve, "me", "a.q", b"stands for no user"),
            (ann, "ann:wrong", "a.q", b"not known here"),
        ):
            answer = await anyio.to_thread.run_sync(_subscribe, port, authority, signed, name, topic)
            assert said in answer, (name, topic, answer)


def _subscribe(port: int, authority: Authority, signed: Signed, name: str, topic: str) -> bytes:
    """The first frame that is no ping."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.load_cert_chain(signed.certificate, signed.key)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as peer,
        peer.makefile("rb") as stream,
    ):
        peer.sendall(struct.pack("!q", 1))
        assert stream.read(8) == struct.pack("!q", 1)
        peer.sendall(f"(Connect 1 {name})\n(Subscribe {topic} From_current)\n".encode())
        while True:
            size, kind = struct.unpack("!IB", stream.read(5))
            payload = stream.read(size - 1)
            if kind != 1:
                return payload
