"""`vibemq pub`, `vibemq sub` and requests."""

import json
import os
import re
import signal
import subprocess
import threading
from pathlib import Path
from typing import IO

import pytest

from tests.integration.cli_online.verbs import Run, info, publish
from tests.waiting import wait_until
from vibemq import sync as blocking
from vibemq.cli import main
from vibemq.cli.child import BrokerProcess
from vibemq.cli.entry import run_app


def test_publishing_and_consuming(vibemq: Run, queue: str) -> None:
    code, (told,), _ = vibemq("pub", queue, "hello", "--header", "a=1", "--priority", "high")
    assert (code, told["published"], told["last_sequence"]) == (0, 1, 1)
    code, (message,), _ = vibemq("sub", queue, "--no-ack", "--count", "1")
    assert code == 0
    assert (message["payload"], message["headers"]["a"]) == ("hello", "1")
    assert message["headers"]["content-type"] == "text/plain"
    code, (message,), _ = vibemq("sub", queue, "--count", "1")
    assert (code, message["attempt"], message["payload"]) == (0, 2, "hello")
    assert vibemq("sub", queue, "--idle", "200ms")[1] == []
    assert info(vibemq, queue)["dead"] == 0


def test_a_request_prints_the_reply(vibemq: Run, queue: str, broker: BrokerProcess) -> None:
    assert vibemq("request", queue, "anybody?", "--timeout", "200ms")[0] == 5

    def answer() -> None:
        with blocking.connect(broker.url) as mq, mq.subscribe(queue) as messages:
            message = next(iter(messages))
            message.reply({"said": message.body}, headers={"by": "worker"})
            message.ack()

    worker = threading.Thread(target=answer)
    worker.start()
    code, (told,), _ = vibemq("request", queue, "hello", "--timeout", "60s")
    worker.join(60)
    assert (code, told) == (0, {"queue": queue, "headers": {"by": "worker"}, "payload": '{"said":"hello"}'})


def test_publishing_a_file(vibemq: Run, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.ndjson"
    file.write_text("".join(f'{{"n": {n}}}\n' for n in range(2_500)))
    code, (told,), _ = vibemq("pub", queue, "--file", file, "--ndjson")
    assert (code, told["published"], told["last_sequence"]) == (0, 2_500, 2_500)
    code, found, _ = vibemq("sub", queue, "--count", "2500")
    assert [json.loads(message["payload"])["n"] for message in found] == list(range(2_500))


def test_publishing_what_is_piped_in_as_it_comes(vibemq: Run, queue: str, commands: Path) -> None:
    command = [commands / "vibemq", "pub", queue]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("first\nsec")
        process.stdin.flush()
        # A line is published before the input ends.
        wait_until(lambda: vibemq("admin", "queue", "info", queue)[0] == 0 and info(vibemq, queue)["ready"] == 1)
        process.stdin.write("ond\n\nthird")
        process.stdin.close()
        assert process.stdout.read().startswith("3 messages published")
        assert process.wait(60) == 0
    assert [m["payload"] for m in vibemq("sub", queue, "--count", "3")[1]] == ["first", "second", "third"]


def test_a_line_that_is_no_json_ends_it_behind_those_before_it(vibemq: Run, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.ndjson"
    file.write_text("1\n2\nthree\n4\n")
    code, _, err = vibemq("pub", queue, "--file", file, "--ndjson")
    assert (code, json.loads(err)["error"]["code"]) == (6, "PARTLY_DONE")
    assert "message 3 is not JSON: b'three'; 2 messages before it published" in err
    assert info(vibemq, queue)["ready"] == 2
    file.write_text("one\n2\n")
    assert vibemq("pub", queue, "--file", file, "--ndjson")[0] == 2
    assert info(vibemq, queue)["ready"] == 2


def test_a_line_that_is_too_large_ends_it_behind_those_before_it(
    vibemq: Run, queue: str, broker: BrokerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"first\nsecond\n" + b"x" * 1_100_000 + b"\nlast\n")
    small = f"{broker.url}?maxMessageBytes=1000"
    code, _, err = vibemq("pub", queue, "--file", file, "--url", small)
    assert (code, json.loads(err)["error"]["code"]) == (6, "PARTLY_DONE")
    assert "does not fit" in err
    assert "2 messages before it published, none behind it" in err
    assert info(vibemq, queue)["ready"] == 2
    file.write_bytes(b"x" * 1_100_000)
    code, _, err = vibemq("pub", queue, "--file", file, "--url", small)
    assert (code, json.loads(err)["error"]["code"]) == (1, "MESSAGE_TOO_LARGE")


def test_a_pipe_is_a_file(vibemq: Run, queue: str, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"one\ntwo\n")
    os.close(writer)
    code, (told,), _ = vibemq("pub", queue, "--file", f"/dev/fd/{reader}")
    os.close(reader)
    assert (code, told["published"]) == (0, 2)
    code, _, err = vibemq("pub", queue, "--file", tmp_path)
    assert (code, json.loads(err)["error"]["code"]) == (1, "IS_A_FOLDER")


def _published_first(commands: Path, queue: str, broker: BrokerProcess) -> "subprocess.Popen[str]":
    """A `vibemq pub` that has published one line and waits for more."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [commands / "vibemq", "pub", queue, "--url", f"{broker.url}?name={queue}"]
    process = subprocess.Popen(command, text=True, **pipes)
    assert process.stdin is not None
    process.stdin.write("first\n")
    process.stdin.flush()
    with blocking.connect(broker.url) as mq:
        wait_until(lambda: (found := mq.queue_info(queue)) is not None and found.ready == 1)
    return process


def test_ctrl_c_tells_how_many_are_published(queue: str, broker: BrokerProcess, commands: Path) -> None:
    with _published_first(commands, queue, broker) as process:
        process.send_signal(signal.SIGINT)
        # Its input goes on until it has ended: the end of that could be read before the signal has come.
        process.wait(timeout=60)
        assert process.stderr is not None
        assert "interrupted: 1 message published" in process.stderr.read()
    assert process.returncode == 130


def test_a_lost_connection_ends_it_with_what_is_published(
    vibemq: Run, queue: str, broker: BrokerProcess, commands: Path
) -> None:
    with _published_first(commands, queue, broker) as process:
        found = vibemq("admin", "connections", "ls")[1]
        (connection,) = [one["connection_id"] for one in found if one["name"] == queue]
        assert vibemq("admin", "connections", "close", connection)[0] == 0
        _, err = process.communicate("second\nthird\n", timeout=60)
    assert process.returncode == 6
    # The two may have been sent before the command has read that the connection is closed.
    told = "1 message before it published", "2 of 3 messages not confirmed, may be published; message 2:"
    assert any(sentence in err for sentence in told), err


def test_a_refusal_is_told_before_the_input_ends(vibemq: Run, queue: str, commands: Path) -> None:
    vibemq("admin", "queue", "create", queue, "--max-messages", "1")
    command = [commands / "vibemq", "pub", queue]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("first\nsecond\n")
        process.stdin.flush()
        told = threading.Event()
        feeder = threading.Thread(target=_go_on, args=(process.stdin, told))
        feeder.start()
        line = next(line for line in process.stderr if not line.startswith("sent"))
        told.set()
        feeder.join(60)
        rest = process.stderr.read()
        assert process.wait(60) == 6
    assert "is not published: queue" in line
    assert "is full" in line
    assert not re.search(r"message [\d,]+ is not ", rest)
    assert "PARTLY_DONE" in rest


def _go_on(stdin: IO[str], told: threading.Event) -> None:
    """As a log does that is followed."""
    for _ in range(400):
        if told.wait(0.05):
            break
        stdin.write("more\n")
        stdin.flush()
    stdin.close()


def test_a_dedup_id_stores_once(vibemq: Run, queue: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    told = [vibemq("pub", queue, "x", "--dedup-id", "one")[1][0] for _ in range(2)]
    assert [(one["published"], one["last_sequence"], one["duplicate"]) for one in told] == [(1, 1, False), (0, 1, True)]
    assert info(vibemq, queue)["ready"] == 1
    assert run_app(main.app, "vibemq", ["pub", queue, "x", "--dedup-id", "one"]) == 0
    assert capfdbinary.readouterr().out.decode() == (
        f"nothing published to {queue}: it has a message with this dedup id, as sequence 1\n"
    )


def test_a_priority_that_there_is_not_is_refused_with_all_that_there_are(vibemq: Run, queue: str) -> None:
    code, _, err = vibemq("pub", queue, "x", "--priority", "40")
    assert code == 2
    assert "choose one of low, normal, high, critical, or a number from 0 to 31" in err


def test_a_delay_is_kept(vibemq: Run, queue: str) -> None:
    publish(vibemq, queue, 1, "--delay", "1h")
    assert vibemq("sub", queue, "--idle", "200ms")[1] == []
    assert info(vibemq, queue)["delayed"] == 1


def test_a_full_queue_takes_part_of_a_batch(vibemq: Run, queue: str) -> None:
    vibemq("admin", "queue", "create", queue, "--max-messages", "3")
    code, _, err = vibemq("pub", queue, *"abcde")
    assert code == 6
    assert json.loads(err)["error"]["code"] == "PARTLY_DONE"
    assert info(vibemq, queue)["ready"] == 3
    code, _, err = vibemq("pub", queue, "f")
    assert (code, json.loads(err)["error"]["code"]) == (1, "QUEUE_FULL")


def test_a_reader_that_leaves_loses_nothing(vibemq: Run, queue: str, broker: BrokerProcess, commands: Path) -> None:
    publish(vibemq, queue, 300)
    command = f"{commands}/vibemq sub {queue} --prefetch 10 | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, timeout=60, check=True)
    assert done.stdout == b'{"n": 0}\n'
    assert b"Traceback" not in done.stderr
    left = info(vibemq, queue)
    # What the pipe took before the reader was found gone is settled; the rest must still be there.
    assert left["ready"] + left["in_flight"] >= 150
    assert left["dead"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ttl", "0"), "option --ttl is not valid: '0' is too short; give more than 0"),
        (("--priority", "99"), "priority"),
        (("--header", "x"), "option --header is not valid: 'x' is not a pair; write key=value"),
        (("--delay", "5"), "option --delay is not valid: '5' is not a duration"),
        (("--tls-ca", "none.pem"), "option --tls-ca is not valid: the file none.pem cannot be read"),
    ],
)
def test_a_message_that_cannot_be_published_is_a_mistake_in_usage(
    vibemq: Run, words: tuple[str, ...], said: str
) -> None:
    code, _, err = vibemq("pub", "q", "text", *words)
    assert code == 2
    assert said in err


def test_sub_shows_as_many_as_were_asked_for_without_acknowledging(vibemq: Run, queue: str) -> None:
    with blocking.connect(os.environ["VIBEMQ_URL"]) as mq:
        mq.publish_many(queue, range(700))
        code, shown, _ = vibemq("sub", queue, "--no-ack", "--count", "600")
        assert (code, len(shown)) == (0, 600)
        info = mq.queue_info(queue)
        assert info is not None
        assert info.ready == 700


def test_sub_shows_only_what_matches(vibemq: Run, queue: str) -> None:
    for region in ("eu", "us"):
        vibemq("pub", queue, f"from {region}", "--header", f"region={region}")
    code, shown, _ = vibemq("sub", queue, "--where", 'region == "us"', "--count", "1")
    assert (code, [message["headers"]["region"] for message in shown]) == (0, ["us"])
    code, _, error = vibemq("sub", queue, "--where", 'region = "us"')
    assert (code, "at character 8" in error) == (2, True)
