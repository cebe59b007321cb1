"""No URL makes the broker call a machine that only the broker can reach."""

import asyncio
import ipaddress
import ssl
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.certificates import Authority
from tests.waiting import until
from vibemq.errors import ConfigInvalid, OutboundFailed, OutboundRefused
from vibemq.server.outbound.addresses import why_not_public
from vibemq.server.outbound.calls import IDLE_MAX, OutboundCalls
from vibemq.server.outbound.connection import connect
from vibemq.server.outbound.lookups import LOOKUPS_OF_OWNER_MAX
from vibemq.server.outbound.targets import parse_target

pytestmark = pytest.mark.anyio

LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]


REFUSED_TEXTS = [
    # other schemes, and what looks like one
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "//example.com/",
    "http:/example.com",
    "httpx://example.com/",
    # credentials and @
    "http://user:secret@example.com/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1%40example.com/",
    "http://example.com#@127.0.0.1/",
    "http://example.com\\@127.0.0.1/",
    # other spellings of 127.0.0.1
    "http://2130706433/",
    "http://0x7f000001/",
    "http://017700000001/",
    "http://0177.0.0.1/",
    "http://0x7f.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://0/",
    "http://127.0.0.1./",
    "http://127.0.0.01/",
    "http://127.0.0.1.0x0/",
    "http://１２７.0.0.1/",
    "http://127。0。0。1/",
    "http://ⓛocalhost/",
    # IPv6
    "http://[::1%25lo]/",
    "http://[fe80::1%eth0]/",
    "http://[::1/",
    "http://[::1]x/",
    "http://[127.0.0.1]/",
    "http://[0:0:0:0:0:0:0:0:1]/",
    # hosts, ports, and characters that two readers take differently
    "http:///path",
    "http://example..com/",
    "http://example.com./",
    "http://exa mple.com/",
    "http://example.com/\r\nhost: localhost",
    "http://example.com/\tx",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:+80/",
    "http://example.com:8_0/",
    "http://example.com:22/",
    "http://example.com:25/",
    "http://example.com:80:80/",
    "http://-example.com/",
    "http://" + "a" * 64 + ".com/",
    "http://example.com/" + "a" * 2_048,
    "",
]


@pytest.mark.parametrize("url", REFUSED_TEXTS)
async def test_the_text_alone_is_refused(url: str) -> None:
    calls = OutboundCalls(resolve=_never)
    with pytest.raises(OutboundRefused) as refused:
        await calls.check(url)
    assert len(str(refused.value)) > 20, "a sentence"
    with pytest.raises(OutboundRefused):
        await calls.post(url, {}, b"")


async def _never(host: str, port: int) -> Sequence[str]:
    raise AssertionError(f"{host} was looked up")


REFUSED_ADDRESSES = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",  # not bound to
    "0.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "100.100.100.200",
    "169.254.169.254",
    "169.254.170.2",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.2.1",
    "198.18.0.1",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.255",
    "255.255.255.255",
    "240.0.0.1",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::a00:1",
    "2002:7f00:1::",
    "2001:0:7f00:1::1",
    "fe80::1",
    "fec0::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "2001:db8::1",
    "4000::1",
]


@pytest.mark.parametrize("text", REFUSED_ADDRESSES)
async def test_addresses_that_are_not_public_are_refused_plainly_and_behind_names(text: str) -> None:
    literal = f"http://[{text}]/" if ":" in text else f"http://{text}/"
    with pytest.raises(OutboundRefused, match="not called"):
        await OutboundCalls(resolve=_never).check(literal)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["8.8.8.8", text]

    with pytest.raises(OutboundRefused, match=r"of the host 'metadata\.example' is not called"):
        await OutboundCalls(resolve=resolve).check("http://metadata.example/latest")


@pytest.mark.parametrize("text", ["8.8.8.8", "1.1.1.1", "172.32.0.1", "2606:4700::1111", "2a00:1450:4001::200e"])
async def test_public_addresses_pass(text: str) -> None:
    assert why_not_public(ipaddress.ip_address(text)) == ""
    await OutboundCalls(resolve=_never).check(f"https://[{text}]:8443/x?y" if ":" in text else f"http://{text}:8080")


async def test_localhost_by_its_name_is_refused() -> None:
    with pytest.raises(OutboundRefused, match="of the host"):
        await OutboundCalls().check("http://localhost:10105/")


async def test_only_the_listed_network_is_opened() -> None:
    calls = OutboundCalls(allowed=[ipaddress.ip_network("10.1.0.0/16")], resolve=_never)
    await calls.check("http://10.1.2.3/")
    for other in ("http://10.2.0.1/", "http://127.0.0.1/", "http://[::ffff:10.1.2.3]/"):
        with pytest.raises(OutboundRefused):
            await calls.check(other)
    with pytest.raises(ConfigInvalid, match=r"10\.1\.0\.0/16"):
        OutboundCalls.configured(allowed=["localhost"], timeout_ms=1, ca_file=None)


# -- at the connection ------------------------------------------------------------------------------------------------


class Inner:
    """A server of the broker's own network, which must never be reached."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.port = 0
        self.answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
        self.open: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open[writer] = asyncio.current_task()
        try:
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def end(self) -> None:
        for writer, task in list(self.open.items()):
            writer.transport.abort()
            if task is not None:
                await task


@asynccontextmanager
async def inner(tls: ssl.SSLContext | None = None) -> AsyncIterator[Inner]:
    made = Inner()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.end()


async def test_a_name_that_changes_between_check_and_call_is_refused() -> None:
    answers = [["8.8.8.8"], ["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["127.0.0.1"]]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async with inner() as server:
        calls = OutboundCalls(resolve=resolve)
        url = f"http://rebind.example:{server.port}/"
        await calls.check(url)
        for _ in range(3):
            with pytest.raises(OutboundRefused, match=r"127\.0\.0\.1"):
                await calls.post(url, {}, b"")
        assert not server.heads, "nobody has called it"


async def test_the_checked_address_is_the_one_that_is_called_and_the_name_is_looked_up_once() -> None:
    looked_up: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        looked_up.append(host)
        return ["127.0.0.1"] if len(looked_up) == 1 else ["127.0.0.2"]

    async with inner() as server:
        calls = OutboundCalls(allowed=[ipaddress.ip_network("127.0.0.1/32")], resolve=resolve)
        url = f"http://hooks.example:{server.port}/a"
        assert (await calls.post(url, {}, b"")).body == b"ok"
        assert (await calls.post(url, {}, b"")).body == b"ok"
        assert looked_up == ["hooks.example"], "a kept connection stays where it is"
        assert b"host: hooks.example:" in server.heads[0]
        calls.close()


class HangingNames:
    """A server of names that answers for some of them only when the test has it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = asyncio.Event()

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host.startswith("hangs"):
            await self.answers.wait()
        return ["127.0.0.1"]


async def test_names_that_hang_hold_up_no_other_users_calls() -> None:
    """Also those whose callers have given up: the system's look-up cannot be broken off."""
    names = HangingNames()
    async with inner() as server:
        calls = OutboundCalls(allowed=LOOPBACK, resolve=names.resolve, timeout_s=0.01)
        for number in range(5 * LOOKUPS_OF_OWNER_MAX):
            url = f"http://hangs{number // 2}.example:{server.port}/"
            with pytest.raises(OutboundFailed, match="no answer"):
                await calls.post(url, {}, b"", owner="mallory")
        assert names.asked == [f"hangs{number}.example" for number in range(LOOKUPS_OF_OWNER_MAX)]
        calls._timeout_s = 60.0
        url = f"http://works.example:{server.port}/"
        assert (await calls.post(url, {}, b"", owner="ann")).body == b"ok"
        waiting = asyncio.create_task(calls.post(url.replace("works", "works-too"), {}, b"", owner="mallory"))
        names.answers.set()
        assert (await waiting).body == b"ok"
        calls.close()


async def test_kept_connections_to_very_many_servers_are_few() -> None:
    """Whoever subscribes many URLs does not have the broker keep a file open for each."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with inner() as server:
        calls = OutboundCalls(allowed=LOOPBACK, resolve=resolve)
        urls = [f"http://host{number}.example:{server.port}/" for number in range(IDLE_MAX + 20)]
        for url in urls:
            await calls.post(url, {}, b"")
        await until(lambda: sum(not writer.is_closing() for writer in server.open) == IDLE_MAX)
        accepted = len(server.open)
        # Those that were called last are kept.
        await calls.post(urls[-1], {}, b"")
        assert len(server.open) == accepted
        await calls.post(urls[0], {}, b"")
        assert len(server.open) == accepted + 1
        calls.close()
        await until(lambda: all(writer.is_closing() for writer in server.open))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_inward_are_answers_and_nothing_more(status: int) -> None:
    async with inner() as hidden, inner() as server:
        location = f"location: http://127.0.0.1:{hidden.port}/admin\r\ncontent-length: 0\r\n\r\n"
        server.answer = f"HTTP/1.1 {status} Moved\r\n{location}".encode()
        calls = OutboundCalls(allowed=LOOPBACK)
        answer = await calls.post(f"http://127.0.0.1:{server.port}/", {}, b"")
        assert answer.status == status
        assert not hidden.heads
        calls.close()


async def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inner() as proxy, inner() as server:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        calls = OutboundCalls(allowed=LOOPBACK)
        await calls.post(f"http://127.0.0.1:{server.port}/", {}, b"")
        assert not proxy.heads
        assert len(server.heads) == 1
        calls.close()


async def test_a_header_cannot_smuggle_another_one() -> None:
    calls = OutboundCalls(allowed=LOOPBACK)
    with pytest.raises(OutboundRefused, match="one line"):
        await calls.post("http://127.0.0.1:1024/", {"code": "105\r\nhost: inner"}, b"")


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffff\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 17_000,
        b"\x00" * 100 + b"\r\n\r\n",
    ],
)
async def test_answers_that_are_none_fail_and_end_the_connection(answer: bytes) -> None:
    async with inner() as server:
        server.answer = answer
        calls = OutboundCalls(allowed=LOOPBACK)
        with pytest.raises(OutboundFailed):
            await calls.post(f"http://127.0.0.1:{server.port}/", {}, b"")
        calls.close()


ENDLESS = {
    "interim": (b"", b"HTTP/1.1 102 Processing\r\n\r\n", "interim"),
    "trailers": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n", "trailers"),
    "chunks": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\na\r\n", "too small chunks"),
}


@pytest.mark.parametrize("kind", ENDLESS)
async def test_an_endless_answer_fails_and_is_read_in_turns(kind: str) -> None:
    """Never more than a millisecond's work for what has come in one piece, and meanwhile nothing more is read."""
    begin, again, why = ENDLESS[kind]
    async with inner() as server:
        server.answer = b""
        target = parse_target(f"http://127.0.0.1:{server.port}/")
        assert target.address is not None
        connection = await connect(target, target.address, None)
        call = asyncio.create_task(connection.post(target, b"", b""))
        await until(lambda: server.heads)
        connection.data_received(begin + again * (131_072 // len(again)))
        left = len(connection._buffer)
        assert left > 90_000, "some is read at once"
        assert connection._transport is not None
        assert not connection._transport.is_reading()
        connection.data_received(b"")
        assert len(connection._buffer) == left, "what comes meanwhile begins no second reader"
        with pytest.raises(OutboundFailed, match=why):
            await call
        assert not connection.open


async def test_some_interim_answers_may_come_before_the_answer() -> None:
    async with inner() as server:
        server.answer = b"HTTP/1.1 102 Processing\r\n\r\n" * 8 + server.answer
        calls = OutboundCalls(allowed=LOOPBACK)
        answer = await calls.post(f"http://127.0.0.1:{server.port}/", {}, b"")
        assert (answer.status, answer.body) == (200, b"ok")
        calls.close()


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async with inner() as server:
        server.answer = b"HTTP/1.1 200 OK\r\n"
        calls = OutboundCalls(allowed=LOOPBACK, timeout_s=0.2)
        with pytest.raises(OutboundFailed, match=r"within 0\.2 s"):
            await calls.post(f"http://127.0.0.1:{server.port}/", {}, b"")


async def test_the_certificate_counts_and_is_checked_against_the_name(tmp_path: Path) -> None:
    authority = Authority.made_in(tmp_path)
    signed = authority.sign("server", names="DNS:right.example")
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(signed.certificate, signed.key)
    trusted = ssl.create_default_context(cafile=str(authority.ca))

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with inner(server_tls) as server:
        calls = OutboundCalls(allowed=LOOPBACK, resolve=resolve, tls=trusted)
        answer = await calls.post(f"https://right.example:{server.port}/", {}, b"")
        assert answer.body == b"ok"
        with pytest.raises(OutboundFailed, match="certificate does not count"):
            await calls.post(f"https://wrong.example:{server.port}/", {}, b"")
        stranger = OutboundCalls(allowed=LOOPBACK, resolve=resolve)
        with pytest.raises(OutboundFailed, match="certificate does not count"):
            await stranger.post(f"https://right.example:{server.port}/", {}, b"")
        assert len(server.heads) == 1
        calls.close()


async def test_calls_that_begin_together_read_the_system_s_certificates_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of them is given up meanwhile; the others have what it has begun."""
    read, go_on, of_system = list[int](), threading.Event(), ssl.create_default_context

    def counted() -> ssl.SSLContext:
        read.append(1)
        assert go_on.wait(60)
        return of_system()

    monkeypatch.setattr(ssl, "create_default_context", counted)
    async with inner(_tls_of_a_stranger(tmp_path)) as server:
        calls = OutboundCalls(allowed=LOOPBACK, timeout_s=60)
        url = f"https://127.0.0.1:{server.port}/"
        under_way = [asyncio.create_task(calls.post(url, {}, b"")) for _ in range(12)]
        await until(lambda: bool(read))
        under_way[0].cancel()
        await asyncio.wait(under_way[:1])
        go_on.set()
        for call in under_way[1:]:
            with pytest.raises(OutboundFailed, match="certificate does not count"):
                await call
        with pytest.raises(OutboundFailed, match="certificate does not count"):
            await calls.post(url, {}, b"")
        calls.close()
    assert len(read) == 1


async def test_certificates_that_could_not_be_read_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_system, failures = ssl.create_default_context, [OSError("too many open files")]

    def read() -> ssl.SSLContext:
        if failures:
            raise failures.pop()
        return of_system()

    monkeypatch.setattr(ssl, "create_default_context", read)
    async with inner(_tls_of_a_stranger(tmp_path)) as server:
        calls = OutboundCalls(allowed=LOOPBACK)
        url = f"https://127.0.0.1:{server.port}/"
        with pytest.raises(OutboundFailed, match="too many open files"):
            await calls.post(url, {}, b"")
        with pytest.raises(OutboundFailed, match="certificate does not count"):
            await calls.post(url, {}, b"")
        calls.close()


def _tls_of_a_stranger(folder: Path) -> ssl.SSLContext:
    """Of a server whose authority the system does not know."""
    signed = Authority.made_in(folder).sign("server", names="IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.certificate, signed.key)
    return context


def test_what_is_called_is_what_was_read() -> None:
    target = parse_target("HTTPS://Hooks.Example:8443/a/b?c=d%20e")
    assert (target.secure, target.host, target.port) == (True, "hooks.example", 8443)
    assert (target.path, target.authority) == ("/a/b?c=d%20e", "hooks.example:8443")
    assert parse_target("http://xn--bcher-kva.example?x").path == "/?x"
