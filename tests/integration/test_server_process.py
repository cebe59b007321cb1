"""`vibemq serve` as a process: its words, its signals, its HTTP."""

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

import vibemq
from tests.integration.conditions import take
from tests.integration.served import WORDS, Piped, Served
from tests.waiting import until
from vibemq.errors import VibeMQError

pytestmark = pytest.mark.anyio

SERVE = [sys.executable, "-m", "vibemq", *WORDS]


class Process(Served):
    """Not forked: with an interpreter that starts, and that ends."""

    def _start(self, words: list[str], environment: dict[str, str]) -> Piped:
        pipe = subprocess.PIPE
        command = [*SERVE[:3], *words]
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "data")
    yield process
    process.end(signal.SIGKILL)


@pytest.fixture
def forked(tmp_path: Path) -> Iterator[Served]:
    process = Served(tmp_path / "data")
    yield process
    process.end(signal.SIGKILL)


async def test_it_says_where_it_listens_and_drains_on_sigterm(broker: Process) -> None:
    assert [event["event"] for event in broker.events] == ["listening", "listening", "ready"]
    assert set(broker.ports) == {"native", "http"}
    async with vibemq.connect(broker.url) as mq:
        await mq.publish("q", 1)
    code, log = broker.end()
    assert code == 0
    assert "stopped" in log


def test_it_serves_though_its_words_go_to_a_full_disk(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen(
            [*SERVE, "--data-dir", str(tmp_path / "data")],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
        )
    try:
        assert process.stderr is not None
        log = ""
        while "what is said on stdout cannot be written: No space left on device" not in log:
            line = process.stderr.readline()
            assert line, log
            log += line
        process.terminate()
        log += process.communicate(timeout=60)[1]
        assert process.returncode == 0, log
        assert "Traceback" not in log
    finally:
        process.kill()
        process.communicate()


def test_it_serves_though_the_reader_of_its_words_stands_still(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    try:
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4_096)
        os.set_blocking(writer, True)
        command = [*SERVE, "--data-dir", str(tmp_path / "data")]
        with subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                said = (re.search(r"the console is at (http://[^/]+)/", line) for line in process.stderr)
                found = next(filter(None, said))
                with urllib.request.urlopen(f"{found[1]}/livez", timeout=60) as answer:
                    assert answer.status == 200
                process.terminate()
                log = process.stderr.read()
                assert process.wait(60) == 0, log
            finally:
                process.kill()
    finally:
        os.close(reader)
        os.close(writer)


def test_it_ends_in_order_though_the_reader_of_its_log_has_left(tmp_path: Path) -> None:
    broker = Process(tmp_path / "data", PYTHONUNBUFFERED="")
    assert broker.process.stderr is not None
    broker.process.stderr.close()
    broker.process.terminate()
    assert broker.process.wait(60) == 0
    assert broker.process.stdout is not None
    broker.process.stdout.close()


async def test_it_serves_and_ends_while_the_reader_of_its_log_stands_still(broker: Process) -> None:
    assert broker.process.stderr is not None
    fcntl.fcntl(broker.process.stderr, fcntl.F_SETPIPE_SZ, 4_096)
    async with vibemq.connect(broker.url) as mq:
        # Each is a line of the audit.
        for number in range(100):
            await mq.create_queue(f"q{number}")
        await mq.publish("q0", 1)
    assert broker.get("/livez")[0] == 200
    broker.process.terminate()
    assert broker.process.wait(60) == 0


SIGNALLED = """
import os, runpy, signal, sys
import {module} as module

whole = {place}

async def signalled(*arguments):
    {before}
    result = await whole(*arguments)
    os.kill(os.getpid(), signal.SIGTERM)
    return result

{place} = signalled
runpy.run_module("vibemq", run_name="__main__")
"""
"""`vibemq serve` with a SIGTERM at a point of its start."""


def signalled(
    folder: Path, module: str, place: str, *, before: str = "pass", within: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    program = SIGNALLED.format(module=module, place=f"module.{place}", before=before)
    command = [*within, SERVE[0], "-c", program, *SERVE[3:], "--data-dir", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def container() -> list[str]:
    """Words before a command that make it process 1, as in a container."""
    words = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    try:
        tried = subprocess.run([*words, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if tried.returncode:
        pytest.skip("this user may make no namespace of processes")
    return words


@pytest.mark.parametrize(
    ("module", "place"), [("vibemq.server.listeners", "listen"), ("vibemq.server.listeners", "Listeners.open")]
)
def test_a_sigterm_between_the_first_listener_and_ready_drains(tmp_path: Path, module: str, place: str) -> None:
    ended = signalled(tmp_path / "data", module, place)
    assert ended.returncode == 0, ended.stderr
    assert "draining" in ended.stderr
    assert "stopped" in ended.stderr


def test_a_sigterm_during_recovery_ends_at_once(tmp_path: Path) -> None:
    ended = signalled(
        tmp_path / "data", "vibemq.server.broker", "assemble", before="os.kill(os.getpid(), signal.SIGTERM)"
    )
    assert ended.returncode == -signal.SIGTERM, ended.stderr
    assert ended.stdout == ""


def test_a_sigterm_during_recovery_ends_the_first_process_of_a_container_too(
    tmp_path: Path, container: list[str]
) -> None:
    ended = signalled(
        tmp_path / "data",
        "vibemq.server.broker",
        "assemble",
        before="os.kill(os.getpid(), signal.SIGTERM)",
        within=container,
    )
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr
    assert ended.stdout == ""


def test_a_sigterm_from_outside_ends_the_first_process_of_a_container_while_it_recovers(
    tmp_path: Path, container: list[str]
) -> None:
    """The loop waits for the store then."""
    program = SIGNALLED.format(
        module="vibemq.server.broker",
        place="module.assemble",
        before="sys.stdout.write('recovering\\n'); sys.stdout.flush(); import anyio; await anyio.sleep_forever()",
    )
    command = [*container, SERVE[0], "-c", program, *SERVE[3:], "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as unshare:
        try:
            assert unshare.stdout is not None
            assert unshare.stdout.readline() == "recovering\n"
            [first] = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
            os.kill(int(first), signal.SIGTERM)
            assert unshare.wait(60) == 128 + signal.SIGTERM
        finally:
            unshare.kill()


async def test_sigterm_under_load_loses_nothing_that_was_confirmed(tmp_path: Path) -> None:
    process = Served(tmp_path / "data")
    confirmed: list[int] = []
    try:
        async with vibemq.connect(process.url + "?reconnectmaxattempts=1") as mq:

            async def publish() -> None:
                try:
                    for n in range(100_000):
                        await mq.publish("q", n)
                        confirmed.append(n)
                except VibeMQError:
                    return

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(publish)
                await until(lambda: len(confirmed) >= 50)
                code, _ = await anyio.to_thread.run_sync(process.end)
                tasks.cancel_scope.cancel()
        assert code == 0
    finally:
        process.end(signal.SIGKILL)
    again = Served(tmp_path / "data")
    try:
        async with vibemq.connect(again.url) as mq:
            stored = {m.json() for m in await take(mq, "q", len(confirmed))}
            assert set(confirmed) <= stored
    finally:
        again.end(signal.SIGKILL)


async def test_sigterm_during_a_job_is_a_good_end_and_the_job_goes_on_after_the_start(tmp_path: Path) -> None:
    letters = 40
    first = Served(tmp_path / "data")
    try:
        async with vibemq.connect(first.url) as mq:
            await mq.publish_many("q", [b"x"] * letters)
            left = letters
            while left:
                for message in await mq.fetch("q", max=left, timeout=30):
                    await message.reject("bad")
                    left -= 1
            number = (await mq.admin("job.start", kind="replay", filter={"queue": "q"}, rate=1))["job"]

            async def has_begun() -> bool:
                return bool((await mq.admin("job.show", job=number))["done"])

            await until(has_begun)
        code, _ = first.end()
        assert code == 0
    finally:
        first.end(signal.SIGKILL)
    second = Served(tmp_path / "data")
    try:
        async with vibemq.connect(second.url) as mq:
            await mq.admin("job.change", job=number, rate=0)

            async def is_done() -> bool:
                return bool((await mq.admin("job.show", job=number))["state"] == "done")

            await until(is_done)
            job, info = await mq.admin("job.show", job=number), await mq.queue_info("q")
            assert info is not None
            assert (job["done"], job["skipped"], info.ready, info.dead) == (letters, 0, letters, 0)
    finally:
        second.end(signal.SIGKILL)


def test_http_speaks_json_and_prometheus(forked: Served) -> None:
    for path in ("/health", "/health/"):
        status, kind, body = forked.get(path)
        assert (status, kind) == (200, "application/json")
    assert set(json.loads(body)) >= {
        "is_healthy",
        "status",
        "active_connections",
        "queue_count",
        "in_flight_messages",
        "total_messages_published",
        "total_messages_delivered",
        "memory_usage_mb",
        "timestamp",
    }
    assert json.loads(forked.get("/metrics/")[2])["total_connections_accepted"] == 0
    for path, headers in (("/metrics", {"Accept": "text/plain"}), ("/metrics/prometheus", {})):
        _, kind, body = forked.get(path, **headers)
        assert kind.startswith("text/plain; version=0.0.4")
        names = {family.name for family in text_string_to_metric_families(body)}
        assert {"vibemq_build_info", "vibemq_fsync_seconds", "vibemq_messages_published"} <= names
    assert [forked.get(path)[0] for path in ("/livez", "/readyz", "/startupz", "/nothing")] == [200, 200, 200, 404]


def test_a_token_protects_everything_but_the_probes(tmp_path: Path) -> None:
    process = Served(tmp_path / "data", VIBEMQ_HTTP__TOKEN="s3cret")
    try:
        assert process.get("/metrics/")[0] == 401
        assert process.get("/health/", Authorization="Bearer wrong")[0] == 401
        assert process.get("/health/", Authorization="Bearer s3cret")[0] == 200
        assert process.get("/readyz")[0] == 200
    finally:
        process.end(signal.SIGKILL)


def test_a_wrong_setting_is_one_sentence(tmp_path: Path) -> None:
    result = subprocess.run(
        [*SERVE, "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"VIBEMQ_LIMITS__MAX_CONECTIONS": "5"},
    )
    assert result.returncode == 2
    assert "limits.max_conections" in result.stderr
    assert "Traceback" not in result.stderr
