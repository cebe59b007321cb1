"""Settings and TLS files that are read again while the broker runs, by SIGHUP and by request; it is never an end."""

import json
import signal
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from anyio import to_thread

import vibemq
import vibemq.sync
from tests.integration.access import cheap_hash, queues, user
from tests.integration.certificates import Authority
from tests.integration.served import Served
from tests.waiting import killed_if_late, wait_until
from vibemq.cli.admin.main import app as admin_app
from vibemq.cli.entry import run_app
from vibemq.cli.exits import ExitCode
from vibemq.cli.online import ONCE
from vibemq.config import Auth, Http, Listener, Settings, StorageChoice
from vibemq.errors import (
    AuthFailed,
    ConfigInvalid,
    ConnectionLost,
    NotAuthorized,
    QueueNotFound,
    RateLimited,
    VibeMQError,
)
from vibemq.server.reload.reloader import SettingsSource
from vibemq.settings import Loaded, SettingsReader, check_plugins

CEILING_S = 60


def make_certificate(folder: Path, name: str) -> None:
    """`certificate.pem` with its key in the folder, replaced as a renewal does."""
    made = folder / f"{name}.pem"
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    words = ["openssl", "req", "-x509", *key, "-nodes", "-subj", f"/CN={name}"]
    subprocess.run([*words, "-keyout", str(made), "-out", str(folder / "x.pem")], check=True, capture_output=True)
    made.write_text(made.read_text() + (folder / "x.pem").read_text())
    made.replace(folder / "certificate.pem")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    make_certificate(tmp_path, "first")
    listeners = [
        {"protocol": "native", "port": 0},
        {"protocol": "native", "port": 0, "tls": {"certificate": str(tmp_path / "certificate.pem")}},
    ]
    process = Served(tmp_path / "data", VIBEMQ_LISTENERS=json.dumps(listeners))
    yield process
    process.end(signal.SIGKILL)


def shown(broker: Served) -> str:
    """The certificate that the broker shows."""
    ports = [event["port"] for event in broker.events if event.get("protocol") == "native"]
    return ssl.get_server_certificate(("127.0.0.1", ports[1]), timeout=CEILING_S)


def read_line_with(broker: Served, words: str) -> str:
    assert broker.process.stderr is not None
    others = []
    with killed_if_late(broker.process):
        for line in broker.process.stderr:
            if words in line:
                return line
            others.append(line)
    raise AssertionError(f"no line with {words!r} in {others}")


def test_a_renewed_certificate_is_shown_and_nobody_is_cut_off(broker: Served, tmp_path: Path) -> None:
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
        assert "certificate.pem" in read_line_with(broker, "nothing has changed")
        assert shown(broker) == second

        mine = {each["connection_id"] for each in connections if each["user"]}
        assert mine <= {each["connection_id"] for each in mq.admin("connections.list")}
        mq.publish("q", 2)
    code, log = broker.end()
    assert code == 0
    assert "stopped" in log


def test_a_broker_with_nothing_to_reload_goes_on(tmp_path: Path) -> None:
    broker = Served(tmp_path / "data")
    try:
        broker.process.send_signal(signal.SIGHUP)
        assert "nothing is different" in read_line_with(broker, "settings reloaded")
        with vibemq.sync.connect(broker.url) as mq:
            mq.publish("q", 1)
        assert broker.end()[0] == 0
    finally:
        broker.end(signal.SIGKILL)


class Reloadable:
    """A broker with a settings file. Its superuser comes from the environment, its password from a secret."""

    def __init__(self, folder: Path) -> None:
        self.file, self.secret = folder / "vibemq.toml", folder / "password"
        self.secret.write_text("pw")
        self.write(user("ann", queues("*", "publish", "create")))
        self.process = Served(
            folder / "data",
            VIBEMQ_CONFIG=str(self.file),
            VIBEMQ_AUTH__SUPERUSER="root",
            VIBEMQ_AUTH__SUPERUSER_PASSWORD_FILE=str(self.secret),
        )

    def write(self, text: str) -> None:
        self.file.write_text(text)

    def connect(self, name: str = "root", password: str = "pw") -> vibemq.sync.Client:
        return vibemq.sync.connect(self.process.url, username=name, password=password, reconnect=ONCE)

    def reload(self, password: str = "pw") -> dict[str, Any]:
        with self.connect(password=password) as root:
            found: dict[str, Any] = root.admin("broker.reload")
        return found

    def hang_up(self, words: str) -> str:
        """Send the signal; the line of the log with the words."""
        self.process.process.send_signal(signal.SIGHUP)
        return read_line_with(self.process, words)


@pytest.fixture
def reloadable(tmp_path: Path) -> Iterator[Reloadable]:
    made = Reloadable(tmp_path)
    yield made
    made.process.end(signal.SIGKILL)


def test_users_come_go_and_change(reloadable: Reloadable) -> None:
    reloadable.write(user("ann", queues("*", "publish", "create")) + user("bob", queues("*", "publish", "create")))
    assert reloadable.hang_up("settings reloaded").strip().endswith("settings reloaded: changed: auth.users.bob")
    with reloadable.connect("ann") as ann, reloadable.connect("bob") as bob:
        ann.publish("q", 1)
        bob.publish("q", 2)
        reloadable.write(user("ann", queues("*", "subscribe")))
        reloadable.hang_up("changed: auth.users.ann, auth.users.bob")
        with pytest.raises(NotAuthorized):
            ann.publish("q", 3)
        with pytest.raises(VibeMQError, match="user 'bob' was removed"):
            bob.publish("q", 4)
    with pytest.raises(AuthFailed):
        reloadable.connect("bob").__enter__()


def test_the_log_of_audits_has_names_and_no_secrets(reloadable: Reloadable) -> None:
    reloadable.write(
        user("ann") + f'[auth.users.bob]\npassword_hash = "{cheap_hash("hidden")}"\n[log]\nlevel = "debug"\n'
    )
    reloadable.process.process.send_signal(signal.SIGHUP)
    line = json.loads(read_line_with(reloadable.process, '"settings.reloaded"'))
    assert line["changed"] == ["auth.users.ann", "auth.users.bob", "log.level"]
    assert (line["by"], line["outcome"]) == ("SIGHUP", "done")
    assert "scrypt" not in json.dumps(line)


BROKEN = {
    "limits = = 5": "vibemq.toml is not valid TOML",
    "[limits]\nmax_conections = 5": "did you mean max_connections?",
    "[auth.users.eve]\npassword_hash = 'secret'": "this hash cannot be used",
    "[storage.settings]\ncache = 1": "setting storage.settings.cache",
    "": "which settings were read from before, is gone; put it back",
}


def test_a_broken_or_missing_file_changes_nothing_and_says_why(reloadable: Reloadable) -> None:
    for text, reason in BROKEN.items():
        reloadable.write("auto_create = false\n" + text)
        if not text:
            reloadable.file.unlink()
        assert "nothing has changed" in reloadable.hang_up(reason)
        with pytest.raises(ConfigInvalid) as refused:
            reloadable.reload()
        assert reason in str(refused.value)
        assert "secret" not in str(refused.value)
    with reloadable.connect("ann") as ann:
        ann.publish("made", 1)


def test_the_command_says_what_has_changed(reloadable: Reloadable, capsys: pytest.CaptureFixture[str]) -> None:
    url = reloadable.process.url.replace("vibemq://", "vibemq://root:pw@")
    reloadable.write("queue_defaults = { max_attempts = 3 }\n" + user("bob"))
    assert run_app(admin_app, "vibemq-admin", ["reload", "--url", url]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == [
        "changed: auth.users.ann",
        "changed: auth.users.bob",
        "needs a restart: queue_defaults.max_attempts",
    ]
    reloadable.write("limits = = 5")
    assert run_app(admin_app, "vibemq-admin", ["reload", "--url", url]) == ExitCode.USAGE
    assert "error CONFIG_INVALID: the settings were not reloaded, and nothing has changed" in capsys.readouterr().err


def test_what_needs_a_restart_is_named_and_stays(reloadable: Reloadable, tmp_path: Path) -> None:
    users = user("ann", queues("*", "publish", "create"))
    for _ in range(2):
        reloadable.write(
            f'drain_timeout_ms = 5\nqueue_defaults = {{ max_attempts = 3 }}\n[http]\nhost = "::1"\n{users}'
        )
        found = reloadable.reload()
        assert found["needs_restart"] == ["queue_defaults.max_attempts", "http.host"]
    assert found["changed"] == []
    # The command line is above the file.
    reloadable.write(f'data_dir = "{tmp_path}/other"\n{users}')
    assert "data_dir" not in reloadable.reload()["needs_restart"]
    assert reloadable.process.get("/livez")[0] == 200


def test_whoever_rotates_the_password_hears_the_answer(reloadable: Reloadable) -> None:
    with reloadable.connect() as root, reloadable.connect() as other:
        other.ping()
        reloadable.secret.write_text("new")
        assert root.admin("broker.reload")["changed"] == ["auth.superuser_password"]
        for client in (root, other):
            with pytest.raises((ConnectionLost, VibeMQError), match="the password of user 'root' was changed"):
                client.admin("queue.list")
    with pytest.raises(AuthFailed):
        reloadable.connect().__enter__()
    assert reloadable.reload("new")["changed"] == []


def test_the_superuser_cannot_be_locked_out(reloadable: Reloadable) -> None:
    reloadable.write(user("root"))
    assert reloadable.reload()["changed"] == ["auth.users.ann", "auth.users.root"]
    assert reloadable.reload()["changed"] == []
    with reloadable.connect() as root:
        assert root.admin("user.self")["superuser"]


def test_a_user_of_the_store_is_hidden_as_at_a_start(reloadable: Reloadable) -> None:
    with reloadable.connect() as root:
        root.admin("user.add", user="eve", password="kept")
    with reloadable.connect("eve", "kept") as eve:
        reloadable.write(user("eve"))
        assert reloadable.reload()["hidden_users"] == ["eve"]
        with pytest.raises(VibeMQError, match="password of user 'eve' was changed"):
            eve.admin("user.self")
    reloadable.write("")
    assert reloadable.reload()["changed"] == ["auth.users.eve"]
    reloadable.connect("eve", "kept").close()


def test_a_login_as_a_user_of_the_settings_leaves_the_hidden_password_alone(reloadable: Reloadable) -> None:
    """Although its hash is one that a login with the password would make anew."""
    with reloadable.connect() as root:
        root.admin("user.add", user="eve", password_hash=cheap_hash("kept"))
        reloadable.write(user("eve"))
        assert reloadable.reload()["hidden_users"] == ["eve"]
        reloadable.connect("eve").close()
        # Passwords are hashed one after the other: by then this one has been, too.
        root.admin("user.add", user="bob", password="later")
    reloadable.write("")
    assert reloadable.reload()["changed"] == ["auth.users.eve"]
    with pytest.raises(AuthFailed):
        reloadable.connect("eve")
    reloadable.connect("eve", "kept").close()


def test_access_tokens_of_new_superusers_are_told_of(reloadable: Reloadable) -> None:
    with reloadable.connect() as root:
        root.admin("user.add", user="eve", password="kept")
        for whose in ("ann", "eve", "eve"):
            root.admin("token.create", user=whose)
    superuser = f'[auth.users.eve]\npassword_hash = "{cheap_hash("other")}"\nsuperuser = true\n'
    reloadable.write(user("ann") + superuser)
    assert "superusers now, and so are their access tokens, except narrower ones: eve (2);" in reloadable.hang_up(
        "access tokens"
    )


def test_a_thousand_users(reloadable: Reloadable) -> None:
    reloadable.write("\n".join(user(f"u{number}", queues("*", "publish", "create")) for number in range(1_000)))
    assert reloadable.reload()["changed"] == ["auth.users (1,001 of them)"]
    with reloadable.connect("u999") as mq:
        mq.publish("q", 1)


def test_two_reloads_at_once_are_one_after_the_other(reloadable: Reloadable) -> None:
    reloadable.write(user("bob"))
    with ThreadPoolExecutor(4) as threads:
        found = [each.result()["changed"] for each in [threads.submit(reloadable.reload) for _ in range(4)]]
    assert sorted(found) == [[], [], [], ["auth.users.ann", "auth.users.bob"]]


def test_only_superusers_may_ask_for_it(reloadable: Reloadable) -> None:
    with reloadable.connect("ann") as ann, pytest.raises(NotAuthorized, match="requires a superuser"):
        ann.admin("broker.reload")


def sqlite_settings(folder: Path, **auth: Any) -> Settings:
    return Settings(
        data_dir=folder,
        storage=StorageChoice(provider="sqlite"),
        listeners=(Listener(port=0),),
        http=Http(enabled=False),
        auth=Auth.model_validate(auth),
    )


@pytest.mark.anyio
async def test_a_start_says_that_the_settings_hide_every_superuser(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        vibemq.Broker(settings=sqlite_settings(tmp_path, superuser="root", superuser_password="pw")) as broker,
        vibemq.connect(broker.url, username="root", password="pw") as mq,
    ):
        await mq.admin("user.add", user="eve", password_hash=cheap_hash(), superuser=True)
    for name, told in {"ann": False, "eve": True}.items():
        caplog.clear()
        async with vibemq.Broker(settings=sqlite_settings(tmp_path, users={name: {"password_hash": cheap_hash()}})):
            pass
        assert ("nobody can administer the broker" in caplog.text) is told


@pytest.mark.anyio
async def test_a_broker_whose_users_are_of_the_store_alone_says_that_nobody_administers_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        vibemq.Broker(settings=sqlite_settings(tmp_path, token="secret")) as broker,
        vibemq.connect(broker.url, token="secret") as mq,
    ):
        await mq.admin("user.add", user="eve", password_hash=cheap_hash())
    assert "nobody can administer" not in caplog.text
    async with vibemq.Broker(
        settings=sqlite_settings(
            tmp_path,
        )
    ) as broker:
        with pytest.raises(VibeMQError):
            async with vibemq.connect(broker.url):
                pass
    assert "nobody can administer the broker: its store has users, none of them a superuser" in caplog.text


@pytest.mark.anyio
async def test_an_embedded_broker_has_no_file_of_settings(tmp_path: Path) -> None:
    async with vibemq.Broker(data_dir=tmp_path, storage="sqlite") as broker, vibemq.connect(broker.url) as mq:
        assert (
            await mq.admin("broker.reload")
            == await broker.reload()
            == {
                "changed": [],
                "needs_restart": [],
                "certificates": [],
                "hidden_users": [],
                "files": None,
            }
        )


@asynccontextmanager
async def inside(folder: Path, text: str) -> AsyncIterator[tuple[vibemq.Broker, Callable[[str], Awaitable[Any]]]]:
    """A broker of this process with a settings file, and what rewrites the file and reloads it."""
    file = folder / "vibemq.toml"
    head = f'data_dir = "{folder}/data"\nstorage = {{ provider = "memory" }}\nlisteners = [{{ port = 0 }}]\n'
    reader = SettingsReader(file, environ={}, secrets_dir=folder / "none")

    def write(text: str) -> None:
        file.write_text(head + 'queue_defaults = { durability = "transient" }\n' + text)

    write(text)
    source = SettingsSource(reader.read, lambda log: None)
    async with vibemq.Broker(settings=reader.read().settings, source=source) as broker:

        async def reload(text: str) -> Any:
            write(text)
            return await broker.reload()

        yield broker, reload


@pytest.mark.anyio
async def test_what_a_refused_reload_has_read_may_be_removed_again(tmp_path: Path) -> None:
    file = tmp_path / "vibemq.toml"
    given = {
        "data_dir": str(tmp_path / "data"),
        "storage": {"provider": "memory"},
        "listeners": [{"port": 0}],
        "http": {"enabled": False},
        "queue_defaults": {"durability": "transient"},
    }
    reader = SettingsReader(None, given, environ={}, secrets_dir=tmp_path / "none", default_file=file)

    def read() -> Loaded:
        found = reader.read()
        check_plugins(found)
        return found

    source = SettingsSource(read, lambda log: None, taken=reader.require)
    async with vibemq.Broker(settings=read().settings, source=source) as broker:
        file.write_text("auto_create = false\n[protocols.omq]\nnonsense = 1")
        with pytest.raises(ConfigInvalid, match="nonsense"):
            await broker.reload()
        file.unlink()
        assert (await broker.reload())["files"] == []
        file.write_text("auto_create = false")
        assert (await broker.reload())["changed"] == ["auto_create"]
        file.unlink()
        with pytest.raises(ConfigInvalid, match=f"the file {file}, which .* is gone; put it back"):
            await broker.reload()


ROOT = '[auth]\nsuperuser = "root"\nsuperuser_password = "pw"\n'
HTTP = "[http]\nport = 0\n"


@pytest.mark.anyio
async def test_a_file_that_would_leave_no_superuser_is_refused(tmp_path: Path) -> None:
    async with inside(tmp_path, HTTP + ROOT) as (broker, reload):
        with pytest.raises(ConfigInvalid, match="no superuser would be left"):
            await reload(HTTP + user("ann"))
        async with vibemq.connect(broker.url, username="root", password="pw") as root:
            assert [each["user"] for each in (await root.admin("user.list"))["users"]] == ["root"]
        assert (await reload(HTTP + '[auth]\ntoken = "t"'))["changed"] == [
            "auth.token",
            "auth.superuser",
            "auth.superuser_password",
        ]


@pytest.mark.anyio
async def test_authentication_is_switched_with_a_restart_only(tmp_path: Path) -> None:
    async with inside(tmp_path, HTTP + ROOT) as (broker, reload):
        found = await reload(HTTP)
        assert (found["changed"], found["needs_restart"]) == ([], ["auth.superuser", "auth.superuser_password"])
        with pytest.raises(VibeMQError):
            async with vibemq.connect(broker.url, reconnect=ONCE):
                pass
    async with inside(tmp_path, HTTP) as (broker, reload):
        assert (await reload(HTTP + ROOT + user("ann")))["needs_restart"] == [
            "auth.users.ann",
            "auth.superuser",
            "auth.superuser_password",
        ]
        assert (await reload(HTTP + "[log]\nlevel = 'debug'"))["changed"] == ["log.level"]
        async with vibemq.connect(broker.url) as mq:
            await mq.publish("q", 1)


@pytest.mark.anyio
async def test_limits_count(tmp_path: Path) -> None:
    async with inside(tmp_path, HTTP) as (broker, reload), vibemq.connect(broker.url) as before:
        limits = "[limits]\nmessages_per_client_per_second = 1\nmax_connections = 2\n"
        found = await reload(f'auto_create = false\nweak_flush_ms = 5\n{HTTP}token = "t"\n{limits}')
        assert found["changed"] == [
            "weak_flush_ms",
            "auto_create",
            "limits.max_connections",
            "limits.messages_per_client_per_second",
            "http.token",
        ]
        with pytest.raises(QueueNotFound):
            await before.publish("q", 1)
        await before.create_queue("q")
        for number in range(3):
            await before.publish("q", number)
        async with vibemq.connect(broker.url) as after:
            # A batch beyond the limit is let through, on credit.
            await after.publish_many("q", range(1_000))
            with pytest.raises(RateLimited):
                await after.publish("q", 1)
            with pytest.raises(VibeMQError, match="serves 2 connections"):
                async with vibemq.connect(broker.url, reconnect=ONCE):
                    pass
        assert broker.http_address is not None
        host, port = broker.http_address
        with pytest.raises(HTTPError) as refused:
            await to_thread.run_sync(urlopen, f"http://{host}:{port}/metrics")
        assert refused.value.code == 401
        refused.value.close()


def test_another_rule_for_identities_and_another_authority_count(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    first, second = (Authority.made_in(tmp_path / folder) for folder in ("one", "two"))
    names = "DNS:localhost,IP:127.0.0.1,DNS:ann.workers.example.com,DNS:bob.people.example.com"
    server, file = first.sign("server"), tmp_path / "vibemq.toml"
    clients = {authority: authority.sign("client", names=names) for authority in (first, second)}

    def write(client_ca: Path, pattern: str) -> None:
        listener = f'[[listeners]]\nport = 0\n[listeners.tls]\ncertificate = "{server.certificate}"\n'
        listener += f'key = "{server.key}"\nclient_ca = "{client_ca}"\nidentity = "dns"\n'
        listener += f'identity_pattern = "{pattern}"\n'
        file.write_text(listener + user("ann", queues("*", "publish")) + user("bob", queues("*", "publish")))

    def logged_in(authority: Authority) -> str:
        signed = clients[authority]
        files = {"tls_ca": str(first.ca), "tls_certificate": str(signed.certificate), "tls_key": str(signed.key)}
        url = f"vibemqs://127.0.0.1:{broker.ports['native']}"
        try:
            with vibemq.sync.connect(url, **files, reconnect=ONCE) as mq:
                return str(mq.admin("user.self")["user"])
        except VibeMQError:
            return ""

    write(first.ca, "{}.workers.example.com")
    broker = Served(tmp_path / "data", VIBEMQ_CONFIG=str(file))
    try:
        assert (logged_in(first), logged_in(second)) == ("ann", "")
        write(first.ca, "{}.people.example.com")
        broker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: logged_in(first) == "bob")
        write(second.ca, "{}.people.example.com")
        broker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: logged_in(second) == "bob")
        assert logged_in(first) == ""
    finally:
        broker.end(signal.SIGKILL)
