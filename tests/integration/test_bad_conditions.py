"""Starts that must be refused, and queues that are full: one clear error each, with a code and a way to mend it.

test_bad_disk.py    full and failing disks, processes that end at the wrong moment
test_bad_store.py   damaged journals and values
test_bad_peers.py   peers that send garbage, read nothing or come by the hundred
"""

import json
import resource
import socket
from pathlib import Path

import anyio
import pytest

import vibemq
from tests.integration.certificates import Authority
from tests.integration.conditions import (
    Book,
    Said,
    accepts,
    broker_on,
    check,
    running,
    serve,
    small_settings,
    store_json,
    take,
    until,
)
from vibemq.cli.entry import run_app
from vibemq.cli.main import app
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.config import Http, Limits, Listener, Settings
from vibemq.errors import QueueFull, VibeMQError
from vibemq.testing.timed_broker import TimedBroker

PATIENT = ReconnectPolicy(initial_delay=0.02, max_delay=0.2, first_connect=True)
CROWD_STAYS = "\n[limits]\nhandshake_timeout_ms = 120_000\n"
"""Connections that say nothing are not closed while a test runs."""

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


# -- starts that are refused --------------------------------------------------------------------------------------


def test_a_start_after_an_interrupted_restore(tmp_path: Path) -> None:
    (tmp_path / "data.restoring").mkdir()
    refused = serve(tmp_path / "data")
    assert refused.code == 1
    assert refused.error.startswith("error RESTORE_UNFINISHED: ")
    assert "run `vibemq-admin restore` again" in refused.error


def test_starts_on_a_store_that_is_not_ours_to_open(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(broker_on(data, tmp_path)) as broker:
        second = serve(data)
        assert second.code == 1
        assert second.error.startswith("error STORAGE_LOCKED: ")
        for part in (str(data), f"process {broker.pid}", socket.gethostname(), "stop that process"):
            assert part in second.error
        offline = check(data)
        assert offline.code == 1
        assert "STORAGE_LOCKED" in offline.error
        assert broker.stop() == 0

    foreign = serve(data, "--storage", "sqlite")
    assert foreign.code == 1
    assert foreign.error.startswith("error STORE_VERSION: ")
    assert "'lmdb'" in foreign.error
    assert "choose another data directory" in foreign.error

    store_json(data, version=999)
    newer = serve(data)
    assert newer.code == 1
    assert newer.error.startswith("error STORE_VERSION: ")
    assert "version 999" in newer.error
    assert "upgrade VibeMQ" in newer.error

    (data / "store.json").write_text("{")
    unreadable = serve(data)
    assert unreadable.code == 1
    assert unreadable.error.startswith("error STORAGE_DAMAGED: ")
    assert "store.json" in unreadable.error


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[limits]\nmax_conections = 1\n", ["limits.max_conections", "unknown", "did you mean max_connections?"]),
        ("[limits]\nmax_connections = 'many'\n", ["limits.max_connections", "must be a whole number"]),
        ("data_dir = \n", ["not valid TOML", "line 1"]),
        ("[queue_defaults]\nmax_mesages = 1\n", ["queue_defaults", "max_mesages"]),
    ],
    ids=["unknown-key", "wrong-type", "no-toml", "queue-defaults"],
)
def test_a_broken_configuration_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], toml: str, words: list[str]
) -> None:
    config = tmp_path / "vibemq.toml"
    config.write_text(toml)
    # Refused before anything is set up, so no process of its own is needed to keep this one clean.
    asked = ["serve", "--data-dir", str(tmp_path / "data"), "--config", str(config)]
    code = run_app(app, "vibemq", asked)
    expect_config_invalid(Said(code, *capsys.readouterr()), [str(config), *words])


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (
            "[[listeners]]\nprotocol = 'smoke-signals'\n",
            ["listeners[0].protocol", "'smoke-signals'", "choose one of blazingmq"],
        ),
        ("[storage.settings]\nsegmnt_bytes = 1\n", ["storage.settings.segmnt_bytes", "did you mean segment_bytes?"]),
        ("[storage]\nprovider = 'punchcards'\n", ["storage.provider", "punchcards", "choose one of", "sqlite"]),
    ],
    ids=["listener", "provider-settings", "provider"],
)
def test_a_configuration_that_no_part_understands_is_one_sentence(tmp_path: Path, toml: str, words: list[str]) -> None:
    config = tmp_path / "vibemq.toml"
    config.write_text(toml)
    expect_config_invalid(serve(tmp_path / "data", "--config", config), words)


@pytest.mark.parametrize("missing", ["certificate", "key", "client_ca"])
@pytest.mark.parametrize("from_file", [True, False])
def test_a_file_of_tls_that_cannot_be_used_is_named_with_its_setting_and_source(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
    from_file: bool,
) -> None:
    authority = Authority.made_in(tmp_path)
    server = authority.sign("server")
    files = {"certificate": str(server.certificate), "key": str(server.key), "client_ca": str(authority.ca)}
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate\n")
    config = tmp_path / "vibemq.toml"
    for path, words in ((tmp_path / "gone.pem", "cannot be read (No such file"), (nonsense, "PEM file")):
        files[missing] = str(path)
        pairs = ", ".join(f'{name} = "{file}"' for name, file in files.items())
        config.write_text(f"listeners = [{{ tls = {{ {pairs} }} }}]" if from_file else "")
        if not from_file:
            monkeypatch.setenv("VIBEMQ_LISTENERS", json.dumps([{"tls": files}]))
        code = run_app(app, "vibemq", ["serve", "--data-dir", str(tmp_path / "data"), "--config", str(config)])
        source = str(config) if from_file else "environment variable VIBEMQ_LISTENERS"
        place = f"setting listeners[0].tls.{missing} (from {source}) is not valid: the file {path}"
        expect_config_invalid(Said(code, *capsys.readouterr()), [place, words])


def expect_config_invalid(said: Said, words: list[str]) -> None:
    assert said.code == 2
    assert said.error.startswith("error CONFIG_INVALID: ")
    for word in words:
        assert word in said.error
    assert said.out == ""


def test_a_port_in_use_and_a_directory_that_is_none(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = serve(tmp_path / "data", "--port", port)
        assert said.code == 2
        assert said.error.startswith("error CONFIG_INVALID: ")
        assert f"127.0.0.1:{port}" in said.error
        assert "choose another" in said.error
        expect_config_invalid(serve(tmp_path / "data", "--http-port", port), [f"127.0.0.1:{port}", "--no-http"])
    (tmp_path / "file").write_text("")
    said = serve(tmp_path / "file")
    assert said.code == 1
    assert str(tmp_path / "file") in said.error


# -- full queues ----------------------------------------------------------------------------------------------------


async def test_a_full_queue_does_what_its_overflow_says(tmp_path: Path) -> None:
    with running(broker_on(tmp_path / "data", tmp_path)) as broker:
        async with vibemq.connect(broker.url) as mq:
            for overflow in ("DROP_NEWEST", "DROP_OLDEST", "REDIRECT_TO_DLQ"):
                await mq.create_queue(overflow, overflow=overflow, max_messages=3)
                for n in range(3):
                    await mq.publish(overflow, {"n": n})

            async def waiting(queue: str) -> list[int]:
                messages = await take(mq, queue, 3)
                info = await mq.queue_info(queue)
                assert info is not None
                assert (info.ready, info.in_flight) == (0, 3)
                for message in messages:
                    message.ack()
                return [message.json()["n"] for message in messages]

            with pytest.raises(QueueFull, match=r"DROP_NEWEST.*max_messages 3.*later"):
                await mq.publish("DROP_NEWEST", {"n": 3})
            assert await waiting("DROP_NEWEST") == [0, 1, 2]

            await mq.publish("DROP_OLDEST", {"n": 3})
            assert await waiting("DROP_OLDEST") == [1, 2, 3]

            await mq.publish("REDIRECT_TO_DLQ", {"n": 3})
            assert await waiting("REDIRECT_TO_DLQ") == [0, 1, 2]
            info = await mq.queue_info("REDIRECT_TO_DLQ")
            assert info is not None
            assert info.dead == 1
        assert broker.stop() == 0


async def test_a_full_queue_that_blocks_lets_the_publisher_wait_for_room(tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path / "data",
        listeners=(Listener(port=0),),
        http=Http(enabled=False),
        limits=Limits(block_timeout_ms=700),
    )
    async with TimedBroker(settings=settings) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", overflow="BLOCK_PUBLISHER", max_messages=3)
        for n in range(3):
            await mq.publish("q", {"n": n})
        told: list[str] = []

        async def publish_in_vain() -> None:
            with pytest.raises(QueueFull, match="after waiting 700 ms"):
                await mq.publish("q", {"n": 3})
            told.append("full")

        def blocked() -> bool:
            return broker.waits

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish_in_vain)
            await until(blocked, anyio.sleep)
            broker.advance(0.699)
            await mq.ping()
            assert told == []
            broker.advance(0.001)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mq.publish, "q", {"n": 4})
            await until(blocked, anyio.sleep)
            for message in (taken := await take(mq, "q", 3)):
                message.ack()
        taken += await take(mq, "q", 1)
        assert [message.json()["n"] for message in taken] == [0, 1, 2, 4]


# -- no file descriptors ---------------------------------------------------------------------------------------------


async def test_more_connections_than_open_files_are_refused_with_a_word(tmp_path: Path) -> None:
    with running(broker_on(tmp_path / "data", tmp_path), prefix=("prlimit", "--nofile=64:64")) as broker:
        crowd = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(40)]
        try:
            with pytest.raises(VibeMQError, match="connections already; try again later"):
                async with vibemq.connect(broker.url, reconnect=ReconnectPolicy(max_attempts=0)):
                    pass
        finally:
            for one in crowd:
                one.close()
        with anyio.fail_after(60):
            async with vibemq.connect(broker.url, reconnect=PATIENT) as mq:
                await mq.publish("q", {"n": 0})
        assert broker.stop() == 0


async def test_a_crowd_leaves_the_store_its_files(tmp_path: Path) -> None:
    """More connections than files are refused in time: segments roll and checkpoints run on beside them."""
    with running(
        broker_on(tmp_path / "data", tmp_path, toml=small_settings("lmdb") + CROWD_STAYS),
        prefix=("sh", "-c", 'ulimit -n 128; exec "$@"', "sh"),
    ) as broker:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q")
            crowd = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(150)]
            try:
                book = Book()
                for _ in range(20):
                    await book.publish(mq, "q", 100, size=1000)
                await book.drain(mq, "q")
            finally:
                for one in crowd:
                    one.close()
            assert book.refusals == {}
            assert len(book.received) == 2000
        assert broker.stop() == 0


async def test_without_file_descriptors_who_is_connected_is_served(tmp_path: Path) -> None:
    """Not one file is left, which only somebody who lowers the limit beneath a running broker can bring about."""
    # A checkpoint would make the next publish begin another segment, and that needs a file.
    toml = CROWD_STAYS + "[storage.settings]\ncheckpoint_ms = 3_600_000\n"
    with running(broker_on(tmp_path / "data", tmp_path, toml=toml)) as broker:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q")
            files = Path(f"/proc/{broker.pid}/fd")
            most = len(list(files.iterdir())) + 8
            resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (most, most))
            crowd = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(50)]

            def no_file_is_left() -> bool:
                if len(list(files.iterdir())) < most:
                    crowd.append(socket.create_connection(("127.0.0.1", broker.port)))
                # Housekeeping opens files as well.
                return "vibemq.housekeeping" in broker.log_text()

            try:
                # Some event loops close who waits where no file is left, so a file may be left again for a moment.
                await until(no_file_is_left, anyio.sleep)
                for n in range(50):
                    await mq.publish("q", {"n": n})
                messages = await take(mq, "q", 50)
                assert [message.json()["n"] for message in messages] == list(range(50))
                for message in messages:
                    message.ack()
            finally:
                for one in crowd:
                    one.close()
            with anyio.fail_after(60):
                async with vibemq.connect(broker.url, reconnect=PATIENT) as late:
                    # As long as files of the crowd are not closed, storage may find none left for a segment.
                    await until(lambda: accepts(late, "q", {"n": 50}), anyio.sleep)
        assert broker.stop() == 0
