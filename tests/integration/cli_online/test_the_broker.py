"""The broker as a whole: figures, records, connections, backup, doctor; other brokers beside it; demo and bench."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli_online.verbs import Run, publish, text
from tests.integration.conditions import broker_on, running
from tests.waiting import wait_until
from vibemq.cli.admin import main as admin_main
from vibemq.cli.child import BrokerProcess
from vibemq.cli.entry import run_app


def test_ping_and_top(vibemq: Run) -> None:
    code, (told,), _ = vibemq("ping", "--count", "2", "--interval", "1ms")
    assert code == 0
    assert 0 < told["min_ms"] <= told["median_ms"] <= told["max_ms"]
    code, (seen,), _ = vibemq("admin", "top", "--interval", "100ms")
    assert code == 0
    assert seen["broker"]["version"]
    assert seen["connections"]


def test_figures_of_the_broker_and_of_its_queues(
    vibemq: Run, queue: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    publish(vibemq, queue, 3)

    def row() -> list[dict[str, Any]]:
        return vibemq("admin", "queue", "ls", "--name", queue, "--state", "no-consumer", "--sort", "-ready")[1]

    wait_until(lambda: row() and row()[0]["ready"] == 3)
    assert vibemq("admin", "queue", "ls", "--sort", "color")[0] != 0
    assert queue in text(capfdbinary, "queue", "ls", "--name", queue)
    (overview,) = vibemq("admin", "broker", "overview")[1]
    assert overview["totals"]["ready"] >= 3
    assert "rates" in text(capfdbinary, "broker", "overview")
    assert "native" in text(capfdbinary, "broker", "listeners")
    changed = vibemq("admin", "broker", "settings", "--changed")[1]
    assert {"data_dir", "listeners[0].port"} <= {setting["name"] for setting in changed}
    (history,) = vibemq("admin", "broker", "history", queue, "--range", "6h", "--series", "ready")[1]
    assert list(history["series"]) == ["ready"]
    assert "time" in text(capfdbinary, "broker", "history")
    assert vibemq("admin", "consumer", "ls", queue)[1] == []
    assert vibemq("admin", "consumer", "ls", f"{queue}-missing")[0] == 3
    vibemq("admin", "group", "create", queue, "readers")
    wait_until(lambda: [c["group"] for c in vibemq("admin", "cursor", "ls", "--queue", queue)[1]] == ["readers"])
    assert "readers" in text(capfdbinary, "cursor", "ls")
    assert vibemq("admin", "transaction", "ls")[0] == 0
    connections = vibemq("admin", "connections", "ls", "--sort", "-unsettled", "--protocol", "native")[1]
    connection = connections[0]["connection_id"]
    assert vibemq("admin", "connections", "consumers", connection)[:2] == (0, [])
    assert "queue.delete" in [r["operation"] for r in removed_and_recorded(vibemq, queue)]
    assert queue in text(capfdbinary, "audit", "ls", "--queue", queue)


def removed_and_recorded(vibemq: Run, queue: str) -> list[dict[str, Any]]:
    vibemq("admin", "queue", "rm", queue, "--yes")
    return wait_until(lambda: vibemq("admin", "audit", "ls", "--queue", queue, "--operation", "queue.delete")[1])


def test_records_are_followed_as_they_come(queue: str, vibemq: Run, commands: Path) -> None:
    words = ["audit", "follow", "--interval", "100ms", "--queue", queue, "--json"]
    with subprocess.Popen(
        [commands / "vibemq-admin", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        seen: list[str] = []

        def followed() -> bool:
            # Whatever was recorded before it looked first is not shown.
            vibemq("admin", "queue", "create", queue)
            vibemq("admin", "queue", "rm", queue, "--yes")
            seen.extend(process.stdout or [])
            return any('"queue.delete"' in line for line in seen)

        try:
            wait_until(followed)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_connections_are_shown_by_name(
    vibemq: Run, broker: BrokerProcess, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    url = f"{broker.url}?name=the%1B%5B31mchecker"
    _, (seen,), _ = vibemq("admin", "top", "--interval", "100ms", "--url", url)
    assert "the\x1b[31mchecker" in [one["name"] for one in seen["connections"]]
    shown = text(capfdbinary, "top", "--once", "--interval", "100ms", "--url", url)
    assert r"the\x1b[31mchecker" in shown
    assert "\x1b[31m" not in shown


def test_a_backup_of_the_running_broker(vibemq: Run, queue: str, tmp_path: Path) -> None:
    publish(vibemq, queue, 10)
    assert vibemq("admin", "backup", tmp_path / "copy", "--dry-run")[0] == 0
    assert not (tmp_path / "copy").exists()
    assert vibemq("admin", "backup", tmp_path / "copy")[0] == 0
    code, _, refusal = vibemq("admin", "backup", tmp_path / "copy", "--dry-run")
    assert code == 2
    assert "not empty" in str(refusal)
    assert vibemq("admin", "check", "--data-dir", tmp_path / "copy")[0] == 0


def test_the_doctor_finds_the_broker_and_the_owner(
    vibemq: Run, broker: BrokerProcess, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, (found,), _ = vibemq("admin", "doctor", "--data-dir", broker.data_dir)
    told = {(check["by"], check["check"]): check for check in found["checks"]}
    assert len(told) == len(found["checks"])
    assert {("doctor", "flush"), ("broker", "flush"), ("doctor", "open files"), ("broker", "open files")} <= told.keys()
    assert code == 0
    assert told["doctor", "broker"]["level"] == told["doctor", "versions"]["level"] == "ok"
    assert f"process {broker.pid}" in told["doctor", "owner"]["text"]
    assert run_app(admin_main.app, "vibemq-admin", ["doctor", "--data-dir", str(broker.data_dir)]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    for check in ("flush: fdatasync takes", "broker, flush: ", "open files: ", "broker, open files: "):
        assert sum(line[5:].startswith(check) for line in lines) == 1


def test_the_doctor_tells_wrong_credentials_from_a_missing_broker(vibemq: Run, tmp_path: Path) -> None:
    toml = '[auth]\nsuperuser = "root"\nsuperuser_password = "pw"'
    with running(broker_on(tmp_path / "data", tmp_path, toml=toml)) as guarded:
        code, (found,), _ = vibemq("admin", "doctor", "--url", f"vibemq://127.0.0.1:{guarded.port}")
        assert code == 1
        [finding] = [finding for finding in found["checks"] if finding["check"] == "broker"]
        assert "correct the credentials" in finding["remedy"]


def test_a_second_broker_is_refused_in_one_sentence(broker: BrokerProcess, commands: Path) -> None:
    command = [commands / "vibemq", "serve", "--port", "0", "--no-http", "--data-dir", str(broker.data_dir)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VIBEMQ_")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error STORAGE_LOCKED: ")
    assert str(broker.pid) in last
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_one_sentence(broker: BrokerProcess, tmp_path: Path, commands: Path) -> None:
    port = str(broker.port)
    command = [commands / "vibemq", "serve", "--port", port, "--no-http", "--data-dir", str(tmp_path / "d")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error ")
    assert port in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_demo_balances() -> None:
    command = [sys.executable, "-m", "vibemq", "demo", "--rows", "5000", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["ok"], told["lost"], told["published"], told["delays_equal"]) == (True, 0, 5_000, True)
    assert told["recovery"]["ready_seconds"] > 0


@pytest.mark.slow
def test_the_bench_tells_rates(vibemq: Run) -> None:
    code, (told,), _ = vibemq("bench", "--messages", "2000", "--size", "100", "--url", os.environ["VIBEMQ_URL"])
    assert code == 0
    assert told["publish_per_second"] > 0
    assert told["consume_and_ack_per_second"] > 0
    assert not [name for name in vibemq("admin", "queue", "ls")[1] if name["name"].startswith("vibemq-bench")]


def test_queues_with_their_options_go_to_a_file_and_come_from_one(
    vibemq: Run, queue: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "queues.json"
    assert vibemq("admin", "queue", "create", queue, "--max-attempts", "4")[0] == 0
    code, (told,), _ = vibemq("admin", "definitions", "export", "--out", file)
    (known,) = [one for one in json.loads(file.read_bytes())["queues"] if one["queue"] == queue]
    assert (code, told["count"] > 0, known["options"]["max_attempts"]) == (0, True, 4)
    names = [queue, *(f"{queue}.{number:05}" for number in range(1_100))]
    wanted = [{"queue": name, "options": {"max_attempts": 4}} for name in names]
    file.write_text(json.dumps({"queues": wanted}))
    code, (plan,), _ = vibemq("admin", "definitions", "import", file, "--dry-run")
    assert (code, plan["count"], plan["unchanged"], plan["dry_run"]) == (0, 1_100, [queue], True)
    assert vibemq("admin", "queue", "info", names[-1])[0] == 3
    # What is wrong in the second request is found before the first queue is made.
    broken = [*wanted, {"queue": "a/b"}]
    file.write_text(json.dumps({"queues": broken}))
    code, _, err = vibemq("admin", "definitions", "import", file)
    assert (code, "a/b" in err) == (2, True)
    assert vibemq("admin", "queue", "info", names[1])[0] == 3
    file.write_text(json.dumps({"queues": [*wanted[:3], {"queue": queue + ".00000"}]}))
    assert "twice" in vibemq("admin", "definitions", "import", file)[2]
    file.write_text(json.dumps({"queues": [{"options": {}}, {"options": {}}]}))
    err = vibemq("admin", "definitions", "import", file)[2]
    assert ("twice" in err, "number 0" in err) == (False, True)
    file.write_text(json.dumps({"queues": [{"queue": queue, "options": {"max_attempts": 9}}, wanted[1]]}))
    assert "max_attempts: 4 → 9" in text(capfdbinary, "definitions", "import", str(file))
    _, (told,), _ = vibemq("admin", "definitions", "import", file)
    assert (told["created"], told["unchanged"]) == ([], [names[1]])
    file.write_text("[]")
    assert vibemq("admin", "definitions", "import", file)[0] == 2
    file.write_text("{")
    assert "is no JSON" in vibemq("admin", "definitions", "import", file)[2]
    assert f'"queue": "{queue}"' in text(capfdbinary, "definitions", "export")


def test_the_backups_that_the_broker_has_written(
    vibemq: Run, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert vibemq("admin", "backup", tmp_path / "first")[0] == 0
    latest = vibemq("admin", "broker", "backups")[1][0]
    assert (latest["target"], latest["is_there"]) == (str(tmp_path / "first"), True)
    assert str(tmp_path / "first") in text(capfdbinary, "broker", "backups")
