"""Users, access tokens and connections from the command line, against a broker in a process of its own."""

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.crash.ledger import BrokerProcess
from tests.integration.conditions import broker_on, run, running
from tests.integration.fake_broker import FakeBroker
from tests.waiting import exit_code_of, wait_until
from vibemq.auth.passwords import PASSWORD_BYTES_MAX, verify_password
from vibemq.cli import main
from vibemq.cli.admin import main as admin_main
from vibemq.cli.entry import run_app

TOML = '[auth]\nsuperuser = "root"\nsuperuser_password = "pw"\n'
PROGRAM = "import sys; from vibemq.cli import run_admin; sys.argv[0] = 'vibemq-admin'; run_admin()"
ADMIN = (sys.executable, "-c", PROGRAM)
WAIT_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("access")
    with running(broker_on(folder / "data", folder, toml=TOML)) as process:
        yield process


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a user that no other test has."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name)[:64].strip("-")


@pytest.fixture(autouse=True)
def _surroundings(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIBEMQ_URL", f"vibemq://root:pw@127.0.0.1:{broker.port}")
    monkeypatch.setenv("COLUMNS", "200")


class Admin:
    """Runs `vibemq-admin … --json`, and `vibemq …`."""

    def __init__(self, capture: pytest.CaptureFixture[bytes], patch: pytest.MonkeyPatch, port: int) -> None:
        self._capture = capture
        self._patch = patch
        self.port = port

    def __call__(self, *words: str, given: bytes = b"", program: str = "vibemq-admin") -> tuple[int, list[Any], str]:
        """(exit code, objects on stdout, code of the error)"""
        code, out, err = self.text(*words, "--json", given=given, program=program)
        told = json.loads(err)["error"]["code"] if err else ""
        return code, [json.loads(line) for line in out.splitlines()], told

    def text(self, *words: str, given: bytes = b"", program: str = "vibemq-admin") -> tuple[int, str, str]:
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        code = run_app(admin_main.app if program == "vibemq-admin" else main.app, program, list(words))
        captured = self._capture.readouterr()
        return code, captured.out.decode(), captured.err.decode()

    def add(self, user: str, password: bytes = b"secret", *more: str) -> None:
        assert self("user", "add", user, "--password-stdin", *more, given=password)[0] == 0

    def url(self, user: str, password: str = "secret") -> str:
        return f"vibemq://{user}:{password}@127.0.0.1:{self.port}"


@pytest.fixture
def admin(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, broker: BrokerProcess) -> Admin:
    return Admin(capfdbinary, monkeypatch, broker.port)


# -- users ----------------------------------------------------------------------------------------------------------


def test_the_life_of_a_user(admin: Admin, name: str) -> None:
    add = ("user", "add", name, "--password-stdin")
    assert admin(*add, given=b"secret\n") == (0, [{"user": name, "superuser": False}], "")
    assert admin(*add, given=b"secret\n") == (1, [], "USER_EXISTS")
    assert admin("whoami", "--url", admin.url(name))[1][0]["user"] == name
    assert admin("user", "ls", "--url", admin.url(name)) == (4, [], "NOT_AUTHORIZED")
    assert name in [user["user"] for user in admin("user", "ls")[1]]
    assert admin("user", "show", name)[1][0]["permissions"] == []

    assert admin("user", "change", name, "--superuser")[0] == 0
    assert admin("user", "ls", "--url", admin.url(name))[0] == 0
    assert admin("user", "rm", name, "--yes") == (4, [], "FORBIDDEN")
    assert admin("user", "change", name, "--no-superuser")[0] == 0
    assert admin("user", "ls", "--url", admin.url(name))[0] == 4

    assert admin("user", "rm", name) == (2, [], "USAGE"), "nobody to ask"
    assert admin("user", "rm", name, "--dry-run")[1][0]["removed"] is False
    assert admin("user", "rm", name, "--yes")[1][0]["removed"] is True
    assert admin("user", "rm", name, "--yes") == (3, [], "USER_NOT_FOUND")
    assert admin("user", "rm", name, "--yes", "--missing-ok")[1][0]["removed"] is False
    assert admin("whoami", "--url", admin.url(name)) == (4, [], "AUTH_FAILED")


def test_what_is_tried_is_told_and_not_done(admin: Admin, name: str) -> None:
    secret, new = ("--password-stdin", "--dry-run"), {"given": b"secret"}
    assert admin("user", "add", name, *secret, **new) == (0, [{"user": name, "dry_run": True, "superuser": False}], "")
    assert admin("user", "show", name)[0] == 3
    assert admin("user", "grant", name, "all", "*", "--dry-run")[0] == 3
    admin.add(name)
    _, [before], _ = admin("user", "show", name)
    assert admin("user", "add", name, *secret, **new)[2] == "USER_EXISTS"
    assert admin("user", "passwd", name, *secret, given=b"other")[1][0]["dry_run"] is True
    for words, said in (
        (("user", "change", name, "--superuser"), f"user {name}: would be a superuser now"),
        (("user", "change", name, "--no-superuser"), f"user {name}: would not be a superuser now"),
        (("user", "grant", name, "publish", "orders"), f"user {name}: would be granted publish on orders"),
        (("user", "rm", name), f"user {name} would be removed, with 0 access tokens"),
        (
            ("token", "create", "--user", name),
            f"an access token of user {name}, valid until it is revoked, would be made",
        ),
    ):
        code, out, err = admin.text(*words, "--dry-run")
        assert (code, err) == (0, "")
        assert out.strip() == said
    assert admin("token", "create", "--user", "nobody", "--dry-run")[0] == 3
    assert admin("user", "show", name) == (0, [before], "")
    assert admin("token", "ls", "--user", name)[1] == []
    _, [made], _ = admin("token", "create", "--user", name)
    code, out, _ = admin.text("token", "revoke", made["token_id"], "--dry-run")
    assert out.strip() == f"access token {made['token_id']} of user {name}: would be revoked"
    assert [token["token_id"] for token in admin("token", "ls", "--user", name)[1]] == [made["token_id"]]
    assert admin("queue", "create", name, "--dry-run")[1][0]["created"] is True
    assert admin("queue", "rm", name, "--dry-run")[0] == 3
    audited = [line["operation"] for line in admin("audit", "ls")[1] if name in str(line)]
    assert sorted(set(audited)) == ["token.create", "user.add", "user.grant"]


def test_users_of_the_settings_are_shown_and_not_changed(admin: Admin) -> None:
    assert admin("user", "show", "root")[1][0]["source"] == "settings"
    for words in (("rm", "root", "--yes"), ("grant", "root", "all", "q"), ("change", "root", "--no-superuser")):
        assert admin("user", *words) == (4, [], "FORBIDDEN"), words
    assert admin("user", "passwd", "--password-stdin", given=b"new") == (4, [], "FORBIDDEN")
    assert admin("user", "add", "root", "--password-stdin", given=b"new") == (1, [], "USER_EXISTS")


def test_permissions_are_given_taken_and_explained(admin: Admin, name: str) -> None:
    admin.add(name)
    check = ("user", "check", name)
    assert admin(*check, "publish", "orders.eu")[0] == 1
    assert admin("user", "grant", name, "publish", f"{name}.*")[0] == 0
    assert admin("user", "grant", name, "inspect,subscribe", f"queues:{name}.*")[0] == 0
    rule = {"queues": f"{name}.*", "actions": ["inspect", "publish", "subscribe"]}
    assert admin("user", "show", name)[1][0]["permissions"] == [rule], "granting adds"
    code, [found], _ = admin(*check, "publish", f"{name}.eu")
    assert (code, found["allowed"], found["rule"]) == (0, True, rule)
    _, sentence, _ = admin.text(*check, "publish", f"{name}.eu")
    assert sentence.strip() == f"user {name} may publish on {name}.eu: {name}.*=inspect,publish,subscribe"
    code, [found], _ = admin(*check, "purge", f"{name}.eu")
    assert (code, found["allowed"], found["rule"]) == (1, False, None)

    code, everybody, _ = admin("user", "check", "publish", f"{name}.eu")
    assert code == 0
    assert {"user": name, "superuser": False, "rule": rule} in everybody
    assert {"user": "root", "superuser": True, "rule": None} in everybody
    assert admin(*check, "publish", f"{name}.eu", "--url", admin.url(name))[0] == 0, "everybody may ask for themselves"
    assert admin("user", "check", "publish", "x", "--url", admin.url(name)) == (4, [], "NOT_AUTHORIZED")

    assert admin("user", "revoke", name, "subscribe", f"{name}.*")[1][0]["revoked"] is True
    assert admin("user", "grant", name, "publish", f"{name}.*", "--replace")[0] == 0
    assert admin("user", "show", name)[1][0]["permissions"] == [{"queues": f"{name}.*", "actions": ["publish"]}]
    assert admin("user", "revoke", name, "all", f"{name}.*")[0] == 0
    code, [found], _ = admin("user", "revoke", name, "all", f"{name}.*")
    assert (code, found["revoked"]) == (3, False)

    for resource, action in (("groups:q/g", "manage"), ("transactions:nightly*", "transact")):
        assert admin("user", "grant", name, "all", resource)[0] == 0
        assert admin(*check, action, resource)[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("grant", "publish", "topics:orders"),
        ("grant", "dance", "orders"),
        ("grant", "transact", "orders"),
        ("grant", ",", "orders"),
        ("grant", "publish", ""),
        ("grant", "publish", "orders\x1b[31m"),
        ("grant", "publish", "o" * 300),
        ("check", "publish"),
        ("check", "dance", "orders"),
        ("check", "one", "two", "three"),
    ],
    ids=lambda words: " ".join(words)[:30],
)
def test_what_is_no_permission_is_a_usage_error(admin: Admin, name: str, words: tuple[str, ...]) -> None:
    code, out, err = admin.text("user", words[0], "somebody", *words[1:])
    assert (code, out) == (2, "")
    assert err.startswith("error ")
    assert err.count("\n") == 1
    assert "\x1b" not in err


# -- passwords ------------------------------------------------------------------------------------------------------


def test_a_password_is_changed(admin: Admin, name: str) -> None:
    admin.add(name)
    passwd = ("user", "passwd", "--password-stdin")
    assert admin(*passwd, "--url", admin.url(name), given=b"second\r\n")[1] == [{"user": name, "tokens": 0}], (
        "one's own"
    )
    assert admin("whoami", "--url", admin.url(name)) == (4, [], "AUTH_FAILED")
    assert admin("whoami", "--url", admin.url(name, "second"))[0] == 0
    assert admin(*passwd, name, given="drücke".encode())[0] == 0
    assert admin("whoami", "--url", admin.url(name, "dr%C3%BCcke"))[0] == 0
    assert admin(*passwd, "nobody", given=b"x") == (3, [], "USER_NOT_FOUND")


def test_a_hash_needs_no_broker_and_makes_a_user(
    admin: Admin, name: str, monkeypatch: pytest.MonkeyPatch, broker: BrokerProcess
) -> None:
    with monkeypatch.context() as away:
        away.setenv("VIBEMQ_URL", "vibemq://127.0.0.1:1")
        code, out, err = admin.text("user", "hash", "--password-stdin", given=b"secret\n")
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert verify_password("secret", out.strip())
    assert admin("user", "add", name, "--hash-stdin", given=out.encode())[0] == 0
    assert admin("whoami", "--url", admin.url(name))[0] == 0
    assert admin("user", "add", "x", "--hash-stdin", given=b"$argon2id$v=19$m=9999999,t=1,p=1$aaaa$bbbb")[0] == 2
    assert admin("user", "add", "x", "--hash-stdin", "--password-stdin", given=b"x")[0] == 2


HOSTILE = {
    "nothing": (b"", "standard input is empty"),
    "a line end": (b"\n", "standard input is empty"),
    "two lines": (b"secret\nmore\n", "several lines"),
    "no text": (b"\xff\xfe", "not UTF-8"),
    "one byte too many": (b"x" * (PASSWORD_BYTES_MAX + 1), "longer than 1024 bytes"),
    "a token": (f"vmq_{'0' * 12}_{'0' * 64}\n".encode(), "form of an access token"),
    "10 MB": (b"x" * 10_000_000, "longer than 1024 bytes"),
}


@pytest.mark.parametrize(("given", "sentence"), HOSTILE.values(), ids=HOSTILE)
def test_what_cannot_be_a_password_is_refused(admin: Admin, given: bytes, sentence: str) -> None:
    code, out, err = admin.text("user", "add", "hostile", "--password-stdin", given=given)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert admin("user", "show", "hostile")[0] == 3


def test_a_password_may_begin_like_a_token(admin: Admin, name: str) -> None:
    admin.add(name, b"vmq_0123")
    assert admin("whoami", "--url", admin.url(name, "vmq_0123"))[0] == 0
    code, _, err = admin.text("whoami", "--url", f"vibemq://127.0.0.1:{admin.port}?token=vmq_0123")
    assert code == 4
    assert "it is not whole" in err


def test_the_longest_password_is_one(admin: Admin, name: str) -> None:
    admin.add(name, b"x" * PASSWORD_BYTES_MAX + b"\n")
    assert admin("whoami", "--url", admin.url(name, "x" * PASSWORD_BYTES_MAX))[0] == 0


@pytest.mark.parametrize("bad", ["a b", "a\x1b[31mb", "x" * 65, "anonymous", "ä"], ids=ascii)
def test_names_that_no_user_can_have(admin: Admin, bad: str) -> None:
    code, out, err = admin.text("user", "add", "--password-stdin", "--", bad, given=b"secret")
    assert (code, out) == (2, "")
    assert "\x1b" not in err
    assert "must be" in err


def test_without_a_terminal_nobody_is_asked(broker: BrokerProcess) -> None:
    for words in (("add", "x"), ("passwd",), ("hash",)):
        done = subprocess.run(
            [*ADMIN, "user", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, ""), words
        assert "give it on standard input with --password-stdin" in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("words", [("hash",), ("hash", "--password-stdin")], ids=" ".join)
def test_a_closed_standard_input_is_one_sentence(words: tuple[str, ...]) -> None:
    shell = 'exec "$@" <&-'
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *ADMIN, "user", *words], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_a_closed_standard_output_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*ADMIN, "user", "hash", "--password-stdin"],
        input=b"secret\n",
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=WAIT_S,
        check=False,
    )
    os.close(write)
    assert done.returncode != 0
    assert b"Traceback" not in done.stderr


class Terminal:
    """A program with a terminal of its own, which somebody types at."""

    def __init__(self, *words: str) -> None:
        self.said = ""
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.execv(ADMIN[0], [*ADMIN, *words])

    def answer(self, question: str, text: str) -> None:
        while question not in self.said:
            ready, _, _ = select.select([self._fd], [], [], WAIT_S)
            assert ready, self.said
            self.said += os.read(self._fd, 4096).decode()
        self.said = self.said.partition(question)[2]
        os.write(self._fd, text.encode())

    def end(self) -> int:
        try:
            while True:
                ready, _, _ = select.select([self._fd], [], [], WAIT_S)
                if not ready:
                    os.kill(self._pid, signal.SIGKILL)
                    break
                data = os.read(self._fd, 4096)
                if not data:
                    break
                self.said += data.decode()
        except OSError:
            pass  # How a terminal says that nobody is at its other end.
        finally:
            os.close(self._fd)
        return exit_code_of(self._pid)


def test_a_password_is_typed_twice_and_not_shown(admin: Admin, name: str) -> None:
    terminal = Terminal("user", "add", name)
    terminal.answer(f"New password of {name}: ", "hidden words\n")
    terminal.answer("The same again: ", "hidden words\n")
    assert terminal.end() == 0, terminal.said
    assert "hidden" not in terminal.said
    assert f"user {name}: added" in terminal.said
    assert admin("whoami", "--url", admin.url(name, "hidden%20words"))[0] == 0


def test_two_passwords_that_differ_change_nothing(admin: Admin, name: str) -> None:
    terminal = Terminal("user", "add", name)
    terminal.answer("New password", "one\n")
    terminal.answer("The same again: ", "other\n")
    assert terminal.end() == 2
    assert "the two passwords differ" in terminal.said
    assert admin("user", "show", name)[0] == 3


def test_ctrl_c_at_the_prompt_is_quiet(broker: BrokerProcess) -> None:
    terminal = Terminal("user", "hash")
    terminal.answer("New password: ", "\x03")
    assert terminal.end() == 130
    assert "Traceback" not in terminal.said


# -- tokens ---------------------------------------------------------------------------------------------------------


def test_a_token_stands_alone_on_standard_output(admin: Admin, name: str) -> None:
    admin.add(name)
    code, out, err = admin.text("token", "create", "--user", name, "--expires", "90d", "--label", "nightly")
    assert code == 0
    assert re.fullmatch(r"vmq_[0-9a-f]{12}_[0-9a-f]{64}\n", out)
    assert "not shown again" in err
    token = out.strip()
    whoami = ("whoami", "--url")
    for url in (f"127.0.0.1:{admin.port}?token={token}", f":{token}@127.0.0.1:{admin.port}"):
        assert admin(*whoami, f"vibemq://{url}")[1][0]["user"] == name
    assert admin(*whoami, admin.url(name, token))[1][0]["user"] == name
    assert admin(*whoami, admin.url("other", token)) == (4, [], "AUTH_FAILED")

    [listed] = admin("token", "ls", "--user", name)[1]
    assert (listed["label"], listed["expires_at"] - listed["created_at"]) == ("nightly", 90 * 86_400_000)
    assert listed["used_at"] >= listed["created_at"]
    _, shown, _ = admin.text("token", "ls")
    assert listed["token_id"] in shown
    assert token.rpartition("_")[2] not in shown

    assert admin("token", "revoke", token)[1][0]["token_id"] == listed["token_id"], "whoever finds a token has it whole"
    assert admin(*whoami, admin.url(name, token)) == (4, [], "AUTH_FAILED")
    assert admin("token", "revoke", listed["token_id"]) == (3, [], "TOKEN_NOT_FOUND")


def test_everybody_has_tokens_of_their_own(admin: Admin, name: str) -> None:
    admin.add(name)
    mine = ("--url", admin.url(name))
    made = admin("token", "create", *mine)[1][0]
    assert made["user"] == name
    assert [token["token_id"] for token in admin("token", "ls", *mine)[1]] == [made["token_id"]]
    assert admin("token", "ls", "--user", "root", *mine) == (4, [], "NOT_AUTHORIZED")
    assert admin("token", "create", "--url", admin.url(name, made["token"])) == (4, [], "NOT_AUTHORIZED"), "no heirs"
    assert admin("token", "revoke", made["token_id"], *mine)[0] == 0


def test_a_narrow_token(admin: Admin, name: str) -> None:
    admin.add(name)
    assert admin("user", "grant", name, "all", f"{name}*")[0] == 0
    allow = ("--allow", f"{name}.in=publish,create", "--allow", "transactions:nightly*=all")
    token = admin("token", "create", "--user", name, *allow)[1][0]["token"]
    url = ("--url", f"vibemq://127.0.0.1:{admin.port}?token={token}")
    assert admin("pub", f"{name}.in", "1", *url, program="vibemq")[0] == 0
    assert admin("pub", f"{name}.out", "1", *url, program="vibemq")[0] == 4
    assert admin("queue", "purge", f"{name}.in", "--yes", *url) == (4, [], "NOT_AUTHORIZED")
    [found] = admin("whoami", *url)[1]
    assert [rule["actions"] for rule in found["narrowed_to"]] == [["create", "publish"], ["*"]]
    _, text, _ = admin.text("whoami", *url)
    assert f"{name}.in=create,publish transactions:nightly*=all" in text
    for bad in ("orders", "orders=", "orders=dance", "=publish", "topics:x=publish"):
        assert admin("token", "create", "--user", name, "--allow", bad) == (2, [], "USAGE"), bad
    assert admin("token", "create", "--user", name, "--expires", "90")[0] == 2, "without a unit"
    assert admin("token", "create", "--user", name, "--expires", "0")[0] == 2
    assert admin("token", "create", "--user", name, "--label", "a\x1bb")[0] == 2
    assert admin("token", "create", "--user", "nobody") == (3, [], "USER_NOT_FOUND")
    for words, sentence in (
        (("token", "create", "--user", "nobody"), "there is no user 'nobody'; the list of users shows those there are"),
        (("user", "show", "nobody"), "there is no user 'nobody'; the list of users shows those there are"),
        (("token", "revoke", "0123"), "nobody has a token '0123'; `vibemq-admin token ls` lists them"),
    ):
        assert sentence in admin.text(*words)[2]


def test_a_token_of_the_environment_is_for_urls_without_credentials(
    admin: Admin, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.add(name)
    token = admin("token", "create", "--user", name)[1][0]["token"]
    monkeypatch.setenv("VIBEMQ_ACCESS_TOKEN", token)
    assert admin("whoami")[1][0]["user"] == "root"
    bare = ("--url", f"vibemq://127.0.0.1:{admin.port}")
    assert admin("whoami", *bare)[1][0]["user"] == name
    assert admin("ping", "-n", "1", *bare, program="vibemq")[0] == 0
    monkeypatch.delenv("VIBEMQ_ACCESS_TOKEN")
    assert admin("whoami", *bare)[0] == 4


# -- connections ----------------------------------------------------------------------------------------------------


def follower(commands: Path, url: str) -> subprocess.Popen[bytes]:
    command = [commands / "vibemq", "sub", "watched", "--create", "--follow", "--url", url]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def test_a_closed_client_shows_the_reason(admin: Admin, name: str, commands: Path) -> None:
    admin.add(name)
    assert admin("user", "grant", name, "all", "watched")[0] == 0
    url = f"{admin.url(name)}?name={name}&reconnectMaxAttempts=1&reconnectInitialDelay=0"

    def theirs() -> list[dict[str, Any]]:
        return [each for each in admin("connections", "ls")[1] if each["user"] == name]

    with follower(commands, url) as client:
        try:
            assert client.stderr is not None
            while not theirs():
                assert client.poll() is None, client.stderr.read()
            [mine] = theirs()
            assert mine["name"] == name
            assert name in admin.text("connections", "ls")[1]
            assert admin("connections", "close", "--user", name) == (2, [], "USAGE"), "nobody to ask"
            close = ("connections", "close", mine["connection_id"], "--reason", "please upgrade")
            assert admin(*close) == (0, [{"closed": 1, "unsettled": 0}], "")
            line = b""
            while b"please upgrade" not in line:
                line = client.stderr.readline()
                assert line, "it ended without the reason"
            # The closed one is listed until its client has heard of it.
            while not [each for each in theirs() if each["connection_id"] != mine["connection_id"]]:
                assert client.poll() is None, client.stderr.read()
            wait_until(lambda: len(theirs()) == 1)
            assert admin("connections", "close", "--user", name, "--yes")[1][0]["closed"] == 1
        finally:
            client.kill()
    assert admin(*close) == (3, [], "NOT_FOUND")
    assert admin("connections", "close", "--user", "nobody", "--yes") == (3, [], "NOT_FOUND")
    assert admin("connections", "close") == (2, [], "USAGE")
    assert admin("connections", "close", "x", "--user", "y") == (2, [], "USAGE")
    assert admin("connections", "close", "x", "--reason", "a\nb") == (2, [], "USAGE")
    assert admin("connections", "close", "x", "--url", admin.url(name)) == (4, [], "NOT_AUTHORIZED")


def test_users_close_their_own_connections(admin: Admin, name: str, commands: Path) -> None:
    admin.add(name)
    assert admin("user", "grant", name, "all", "watched")[0] == 0
    with follower(commands, f"{admin.url(name)}?name={name}") as client:
        try:
            while not (found := [each for each in admin("connections", "ls")[1] if each["user"] == name]):
                assert client.poll() is None
            seen = admin("connections", "ls", "--url", admin.url(name))[1]
            assert {each["user"] for each in seen} == {name}, "those of others are a superuser's to see"
            assert found[0]["connection_id"] in [each["connection_id"] for each in seen]
            own = ("connections", "close", found[0]["connection_id"], "--url", admin.url(name))
            assert admin.text(*own, "--dry-run")[1] == "1 connection would be closed\n"
            assert found[0]["connection_id"] in [each["connection_id"] for each in admin("connections", "ls")[1]]
            assert admin(*own) == (0, [{"closed": 1, "unsettled": 0}], "")
        finally:
            client.kill()


# -- other brokers --------------------------------------------------------------------------------------------------


def test_a_broker_without_authentication_says_so(admin: Admin, tmp_path: Path) -> None:
    with running(broker_on(tmp_path / "data", tmp_path)) as open_broker:
        url = ("--url", f"vibemq://127.0.0.1:{open_broker.port}")
        code, _, err = admin.text("user", "add", "ann", "--password-stdin", *url, given=b"secret")
        assert code == 4
        assert "auth.superuser" in err
        assert admin("user", "ls", *url) == (0, [], "")
        assert admin("whoami", *url)[1][0]["authentication"] is False
        assert "no authentication" in admin.text("whoami", *url)[1]
        code, _, err = admin.text("token", "create", *url)
        assert code == 4
        assert "no token is needed" in err


def test_a_broker_without_these_operations_is_said_to_be_older(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    async def against(work: Callable[[str], Any]) -> Any:
        async with anyio.create_task_group() as tasks:
            old = FakeBroker()
            await old.start(tasks)
            try:
                return await anyio.to_thread.run_sync(work, f"vibemq://127.0.0.1:{old.port}")
            finally:
                await old.stop()

    def work(url: str) -> tuple[int, str, str]:
        return admin.text("user", "ls", "--url", url)

    code, out, err = anyio.run(against, work)
    assert (code, out) == (1, "")
    assert err.startswith("error UNKNOWN_COMMAND: the broker (")
    assert "upgrade the broker" in err


# -- completion -----------------------------------------------------------------------------------------------------


def completed(*words: str, url: str, start: str) -> list[str]:
    """What bash is offered behind these words."""
    line = ["vibemq-admin", *words, start]
    asked = {
        "_VIBEMQ_ADMIN_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
        "VIBEMQ_URL": url,
    }
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in asked.items():
            patch.setenv(variable, value)
        said = run(*line[:1])
    assert (said.code, said.err) == (0, "")
    return said.out.split()


def test_names_are_completed(admin: Admin, name: str) -> None:
    root = os.environ["VIBEMQ_URL"]
    for user in ("zoe", "zoe-2", "zora"):
        admin.add(user)
    for queue in ("zebra", "zebra.eu", "yak"):
        assert admin("queue", "create", queue)[0] == 0
    assert admin("group", "create", "zebra", "stripes")[0] == 0
    assert completed("user", "show", url=root, start="zo") == ["zoe", "zoe-2", "zora"]
    assert completed("user", "show", url=root, start="zoe") == ["zoe", "zoe-2"]
    assert completed("user", "rm", url=root, start="zz") == []
    assert completed("token", "create", "--user", url=root, start="zor") == ["zora"]
    assert completed("queue", "info", url=root, start="zebra") == ["zebra", "zebra.eu"]
    assert {"zebra", "yak"} <= set(completed("dlq", "ls", "--queue", url=root, start=""))
    assert completed("group", "show", "zebra", url=root, start="") == ["stripes"]
    assert completed("group", "show", url=root, start="ya") == ["yak"]
    named = ("queue", "info", "--url", f"{root}?name=completing")
    assert completed(*named, url="vibemq://127.0.0.1:1", start="ya") == ["yak"], "the url of the line counts"


@pytest.mark.parametrize(
    "url", ["vibemq://127.0.0.1:1", "vibemq://root:wrong@127.0.0.1:{port}", "nonsense://", "vibemq://127.0.0.1:{port}"]
)
def test_without_an_answer_nothing_is_completed_and_nothing_said(url: str, broker: BrokerProcess) -> None:
    assert completed("user", "show", url=url.format(port=broker.port), start="r") == []


def test_who_may_inspect_one_queue_sees_and_exports_its_dead_letters(admin: Admin, name: str) -> None:
    queue = f"q-{name}"[:64]
    assert admin("queue", "create", queue)[0] == 0
    assert admin("pub", queue, "a", program="vibemq")[0] == 0
    assert admin("sub", queue, "--count", "1", "--reject", "broken", program="vibemq")[0] == 0
    [letter] = admin("dlq", "ls", "--queue", queue)[1]
    admin.add(name)
    assert admin("user", "grant", name, "inspect", queue)[0] == 0
    place = ("--url", admin.url(name))
    number = str(letter["dead_id"])
    assert admin("dlq", "show", number, "--queue", queue, *place)[1][0]["payload"] == "a"
    assert admin("dlq", "show", number, *place)[0] == 4
    for words in (("--queue", queue), ()):
        code, lines, _ = admin("dlq", "export", "-", *words, *place)
        assert (code, [line["dead_id"] for line in lines]) == (0, [letter["dead_id"]])
    code, _, told = admin.text("job", "ls", "--state", "x", *place)
    assert (code, told.partition(" must be ")[0]) == (2, "error USAGE: --state")


def test_who_may_create_and_publish_imports_into_a_queue_that_is_missing(
    admin: Admin, name: str, tmp_path: Path
) -> None:
    source, target = f"{name[:40]}.from", f"{name[:40]}.to"
    file = str(tmp_path / "file")
    assert admin("queue", "create", source, "--max-attempts", "7")[0] == 0
    assert admin("pub", source, "a", "b", program="vibemq")[0] == 0
    assert admin("queue", "export", source, "--out", file)[0] == 0
    admin.add(name)
    place = ("--url", admin.url(name))
    words = ("queue", "import", target, file, "--create", *place)
    assert admin("user", "grant", name, "publish", target)[0] == 0
    assert admin(*words)[2] == admin(*words, "--dry-run")[2] == "NOT_AUTHORIZED"
    assert admin("user", "grant", name, "create", target)[0] == 0
    assert admin(*words[:4], *place)[2] == "QUEUE_NOT_FOUND"
    code, [told], _ = admin(*words, "--dry-run")
    assert (code, told["imported"], told["earlier"]) == (0, 2, 0)
    assert admin("queue", "info", target)[0] == 3
    code, [told], _ = admin(*words)
    assert (code, told["imported"], told["earlier"]) == (0, 2, 0)
    [found] = admin("queue", "info", target)[1]
    assert (found["ready"], found["options"]["max_attempts"]) == (2, 7)
    for more in ((), ("--dry-run",)):
        code, [told], _ = admin(*words, *more)
        assert (code, told["imported"], told["earlier"]) == (0, 0, 2)
    assert admin("user", "revoke", name, "create", target)[0] == 0
    code, [told], _ = admin(*words[:4], *place)
    assert (code, told["imported"], told["earlier"]) == (0, 0, 2)
