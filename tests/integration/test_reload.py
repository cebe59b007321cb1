"""SIGHUP: what may change under a running broker is read again; it is never an end."""

import json
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import vibemq.sync
from tests.integration.test_server_process import Process
from tests.waiting import wait_until

CEILING_S = 60


def make_certificate(folder: Path, name: str) -> None:
    """`certificate.pem` with its key in the folder, replaced as a renewal does."""
    made = folder / f"{name}.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"]
    subprocess.run([*words, "-keyout", str(made), "-out", str(folder / "x.pem")], check=True, capture_output=True)
    made.write_text(made.read_text() + (folder / "x.pem").read_text())
    made.replace(folder / "certificate.pem")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Process]:
    make_certificate(tmp_path, "first")
    listeners = [
        {"protocol": "native", "port": 0},
        {"protocol": "native", "port": 0, "tls": {"certificate": str(tmp_path / "certificate.pem")}},
    ]
    process = Process(tmp_path / "data", VIBEMQ_LISTENERS=json.dumps(listeners))
    yield process
    process.end(signal.SIGKILL)


def shown(broker: Process) -> str:
    """The certificate that the broker shows."""
    ports = [event["port"] for event in broker.events if event.get("protocol") == "native"]
    return ssl.get_server_certificate(("127.0.0.1", ports[1]), timeout=CEILING_S)


def read_line_with(broker: Process, words: str) -> str:
    assert broker.process.stderr is not None
    return next(line for line in broker.process.stderr if words in line)


def test_a_renewed_certificate_is_shown_and_nobody_is_cut_off(broker: Process, tmp_path: Path) -> None:
    first = shown(broker)
    ports = [event["port"] for event in broker.events if event.get("protocol") == "native"]
    with vibemq.sync.connect(f"vibemq://127.0.0.1:{ports[0]}") as mq:
        mq.publish("q", 1)
        connections = mq.admin("connections.list")
        make_certificate(tmp_path, "second")
        broker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: shown(broker) != first)
        second = shown(broker)

        (tmp_path / "certificate.pem").write_text("no certificate")
        broker.process.send_signal(signal.SIGHUP)
        assert "certificate.pem" in read_line_with(broker, "the old files stay in use")
        assert shown(broker) == second

        mine = {each["connection_id"] for each in connections if each["user"]}
        assert mine <= {each["connection_id"] for each in mq.admin("connections.list")}
        mq.publish("q", 2)
    code, log = broker.end()
    assert code == 0
    assert "stopped" in log


def test_a_broker_with_nothing_to_reload_goes_on(tmp_path: Path) -> None:
    broker = Process(tmp_path / "data")
    try:
        broker.process.send_signal(signal.SIGHUP)
        assert "read again: 0" in read_line_with(broker, "reload")
        with vibemq.sync.connect(broker.url) as mq:
            mq.publish("q", 1)
        assert broker.end()[0] == 0
    finally:
        broker.end(signal.SIGKILL)
