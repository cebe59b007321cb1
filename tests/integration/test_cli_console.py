"""`vibemq console` and the address that `vibemq serve` prints, against real brokers."""

import json
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.crash.forked_command import ForkedCommand
from tests.integration.certificates import Authority
from tests.waiting import killed_if_late
from vibemq.cli import main
from vibemq.cli.entry import run_app

Capture = pytest.CaptureFixture[str]


@contextmanager
def serving(data: Path, *words: str, settings: str = "") -> Iterator[dict[str, Any]]:
    """What the broker prints of its HTTP port."""
    file = data.with_suffix(".toml")
    file.write_text(settings)
    command = ["vibemq", "serve", "--data-dir", str(data), "--config", str(file), "--port", "0", "--http-port", "0"]
    process = ForkedCommand([*command, *words])
    assert process.stdout is not None
    told: dict[str, Any] = {}
    for line in process.stdout:
        event = json.loads(line)
        told |= event if event.get("protocol") == "http" else {}
        told |= {"native_port": event["port"]} if event.get("protocol") == "native" else {}
        if event["event"] == "ready":
            break
    try:
        yield told
    finally:
        process.terminate()
        with killed_if_late(process):
            told["log"] = process.communicate()[1]


def console(capture: Capture, http: str, *words: str) -> tuple[int, str, str]:
    code = run_app(main.app, "vibemq", ["console", "--print", "--http", http, *words])
    captured = capture.readouterr()
    return code, captured.out.strip(), captured.err


def test_the_address_is_printed_where_it_works(tmp_path: Path, capsys: Capture) -> None:
    with serving(tmp_path / "data") as told:
        address = told["console"]
        for http in (address, address.removesuffix("/"), address.removesuffix("/console/")):
            assert console(capsys, http) == (0, address, "")
        code, out, err = console(capsys, address.replace("http://", "https://"))
    assert (code, out) == (1, "")
    assert "does not speak TLS" in err
    assert "write http:// in --http" in err


@pytest.mark.parametrize(
    ("words", "settings", "sentence"),
    [
        (["--host", "0.0.0.0"], "", "answers 403: this broker lets everybody in without a password"),
        ([], "[http]\nconsole = false\n", "answers 404: the broker serves no console there"),
    ],
    ids=["open to the network", "switched off"],
)
def test_a_console_that_is_closed(
    words: list[str], settings: str, sentence: str, tmp_path: Path, capsys: Capture
) -> None:
    with serving(tmp_path / "data", *words, settings=settings) as told:
        assert "console" not in told
        code, out, err = console(capsys, f"http://localhost:{told['port']}")
    assert (code, out) == (1, "")
    assert sentence in err
    assert ("the console answers 403: this broker lets everybody in" in told["log"]) is bool(words)


def test_the_native_port_is_not_the_http_port(tmp_path: Path, capsys: Capture) -> None:
    with serving(tmp_path / "data") as told:
        http = f"http://localhost:{told['native_port']}"
        code, out, err = console(capsys, http)
    assert (code, out) == (1, "")
    assert err == (
        f"error FAILED: what answers at {http}/console/ is not the HTTP port of a broker; give that port with --http, "
        "such as http://localhost:2926\n"
    )


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("asks_for_certificates", [False, True])
def test_the_login_over_tls(tmp_path: Path, capsys: Capture, *, asks_for_certificates: bool) -> None:
    authority = Authority.made_in(tmp_path)
    server = authority.sign("server")
    settings = f"[http.tls]\ncertificate = '{server.certificate}'\nkey = '{server.key}'\n"
    if asks_for_certificates:
        settings += f"client_ca = '{authority.ca}'\n"
    settings += "[auth]\nsuperuser = 'ada'\nsuperuser_password = 'secret'\n"
    login, trust = ["--url", "vibemq://ada:secret@localhost"], ["--tls-ca", str(authority.ca)]
    with serving(tmp_path / "data", settings=settings) as told:
        address = told["console"]
        assert address.startswith("https://")
        code, out, err = console(capsys, address, *login)
        assert (code, out) == (0, address)
        assert err.startswith(f"the certificate of {address.removesuffix('/console/')} is not accepted here (")
        assert "certificate" in err.partition("(")[2].partition("), so it is given no password or token")[0]
        if asks_for_certificates:
            code, out, err = console(capsys, address, *login, *trust)
            assert code in (1, 5)
            assert out == ""
            # Its reason, or the end of the connection, whichever comes first.
            assert "asks for a client certificate" in err
            assert "one with --tls-cert and --tls-key" in err
            mine = authority.sign("me")
            trust += ["--tls-cert", str(mine.certificate), "--tls-key", str(mine.key)]
        code, out, err = console(capsys, address, *login, *trust)
        assert (code, err) == (0, "")
        assert out.startswith(f"{address}login#code=")


@contextmanager
def answering(*answers: bytes) -> Iterator[int]:
    """A port where each connection gets one of these answers, whatever it asks."""

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


PAGE = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
NO_CODE = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<p/>"


def test_no_proxy_is_asked_for_a_port_of_this_machine(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with answering(PAGE) as port:
        address = f"http://127.0.0.1:{port}"
        assert console(capsys, address) == (0, f"{address}/console/", "")


@pytest.mark.parametrize(
    ("answers", "expected", "sentence"),
    [
        ([b""], 5, "no broker answers at http://127.0.0.1:PORT/console/: "),
        ([PAGE, b""], 5, "no broker answers at http://127.0.0.1:PORT/api/v1/session/codes: "),
        ([PAGE, b"SSH-2.0-OpenSSH\r\n"], 1, "codes is not the HTTP port of a broker; give that port with --http"),
        ([PAGE, NO_CODE], 4, "http://127.0.0.1:PORT/api/v1/session/codes answered 200; it may be another program"),
    ],
    ids=["closed", "closed at the login", "another protocol", "no code"],
)
def test_what_answers_and_is_no_console(
    answers: list[bytes], expected: int, sentence: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIBEMQ_ACCESS_TOKEN", "a-token")
    with answering(*answers) as port:
        code, out, err = console(capsys, f"http://127.0.0.1:{port}")
    assert (code, out) == (expected, "")
    assert sentence.replace("PORT", str(port)) in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "http",
    [
        "ftp://localhost:2926",
        "localhost:2926",
        "http://",
        "http://localhost:29a",
        "http://localhost:99999",
        "http://[::1",
        "http://local host",
    ],
)
def test_what_is_no_url_of_an_http_port(http: str, capsys: Capture) -> None:
    code, out, err = console(capsys, http)
    assert (code, out) == (1, "")
    assert f"--http is {http}; give the URL of the broker's HTTP port" in err
