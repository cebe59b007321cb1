import errno
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from vibemq.auth.users import Accounts
from vibemq.config import Settings
from vibemq.errors import ConfigInvalid
from vibemq.settings import Loaded, SettingsReader, check_plugins, load


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Any]:
    """Nothing of the machine that runs the tests is looked at."""
    return {"environ": {}, "secrets_dir": tmp_path / "secrets", "default_file": tmp_path / "none.toml"}


def read(places: dict[str, Any], **environ: str) -> Loaded:
    return load(**(places | {"environ": environ}))


def test_defaults(places: dict[str, Any]) -> None:
    loaded = read(places)
    assert loaded.settings == Settings()
    assert loaded.origins == {}
    assert [(listener.protocol, listener.host) for listener in loaded.settings.listeners] == [("native", "127.0.0.1")]
    assert not loaded.settings.auth.enabled


def test_the_nearest_place_wins_and_is_remembered(places: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "vibemq.toml"
    file.write_text('weak_flush_ms = 1\n[log]\nlevel = "debug"\nformat = "json"\n[http]\nport = 1\n')
    places["environ"] = {"VIBEMQ_LOG__LEVEL": "error", "VIBEMQ_HTTP__PORT": "2", "VIBEMQ_CONFIG": str(file)}
    loaded = load(overrides={"http": {"port": 3, "host": None}}, **places)
    settings = loaded.settings
    assert (settings.weak_flush_ms, settings.log.level, settings.log.format) == (1, "error", "json")
    assert (settings.http.port, settings.http.host) == (3, "127.0.0.1")
    assert loaded.origins == {
        "weak_flush_ms": str(file),
        "log.level": "environment variable VIBEMQ_LOG__LEVEL",
        "log.format": str(file),
        "http.port": "command line",
    }


@pytest.mark.parametrize(
    ("variable", "place", "remedy"),
    [
        ("VIBEMQ_DATA_DIR", "data_dir", "name a directory, . for the current one"),
        ("VIBEMQ_HTTP__HOST", "http.host", "name an address, or leave it out for its default"),
    ],
)
def test_an_empty_directory_or_host_is_not_the_current_one_nor_every_address(
    places: dict[str, Any], variable: str, place: str, remedy: str
) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        read(places, **{variable: ""})
    assert str(refused.value) == (
        f"setting {place} (from environment variable {variable}) is not valid: it is empty; {remedy}"
    )


@pytest.mark.parametrize("host", ["a..b", f"{'x' * 64}.example", "a\nb"])
def test_a_host_that_no_machine_can_have_is_refused(places: dict[str, Any], host: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"http\.host .* is not valid: it is neither an address nor a name"):
        read(places, VIBEMQ_HTTP__HOST=host)


@pytest.mark.parametrize("host", ["::", "fe80::1%eth0", "localhost.", "münchen.example"])
def test_addresses_and_names_of_machines(places: dict[str, Any], host: str) -> None:
    assert read(places, VIBEMQ_HTTP__HOST=host).settings.http.host == host


def test_secrets_come_from_files(places: dict[str, Any], tmp_path: Path) -> None:
    places["secrets_dir"].mkdir()
    (places["secrets_dir"] / "vibemq_auth__token").write_text("from the folder\n")
    named = tmp_path / "token"
    named.write_text("from the named file\n")
    token = read(places).settings.auth.token
    assert token is not None
    assert token.get_secret_value() == "from the folder"
    loaded = read(places, VIBEMQ_AUTH__TOKEN_FILE=str(named))
    assert loaded.settings.auth.token is not None
    assert loaded.settings.auth.token.get_secret_value() == "from the named file"
    assert "from the" not in repr(loaded)


def test_a_misspelt_secret_of_the_folder_is_told(places: dict[str, Any]) -> None:
    places["secrets_dir"].mkdir()
    (places["secrets_dir"] / "vibemq_tls_key").write_bytes(b"\xff: a key that listeners[].tls.key names")
    loaded = read(places)
    assert (loaded.origins, loaded.files) == ({}, ())
    (places["secrets_dir"] / "vibemq_auht__token").write_text("secret")
    with pytest.raises(ConfigInvalid, match=r"vibemq_auht__token names no setting; did you mean VIBEMQ_AUTH__TOKEN\?"):
        read(places)


@pytest.mark.parametrize(
    ("written", "password"),
    [
        (b"secret\r\n", "secret"),
        (b"\xef\xbb\xbfsecret", "secret"),
        (b" two words \n\n", " two words "),
        (b"x" * 1_024, "x" * 1_024),
    ],
)
def test_the_superuser_logs_in_with_the_password_of_a_secret_file(
    places: dict[str, Any], tmp_path: Path, written: bytes, password: str
) -> None:
    named = tmp_path / "password"
    named.write_bytes(written)
    auth = read(places, VIBEMQ_AUTH__SUPERUSER="root", VIBEMQ_AUTH__SUPERUSER_PASSWORD_FILE=str(named)).settings.auth
    assert Accounts(auth.accounts()).authenticate("root", password, "", 1).name == "root"


def test_a_secret_file_that_is_no_text_is_told(places: dict[str, Any], tmp_path: Path) -> None:
    named = tmp_path / "password"
    named.write_bytes(b"\xff\xfesecret")
    with pytest.raises(ConfigInvalid, match="password for vibemq_auth__token is no text in UTF-8"):
        read(places, VIBEMQ_AUTH__TOKEN_FILE=str(named))


def test_listeners_are_a_list(places: dict[str, Any]) -> None:
    loaded = read(places, VIBEMQ_LISTENERS='[{"protocol": "native", "port": 0}, {"protocol": "sexp"}]')
    assert [(listener.protocol, listener.port) for listener in loaded.settings.listeners] == [
        ("native", 0),
        ("sexp", None),
    ]


def test_what_kubernetes_puts_into_the_environment_is_no_setting(places: dict[str, Any]) -> None:
    names = {"VIBEMQ_PORT": "tcp://10.0.0.1:2925", "VIBEMQ_PORT_2925_TCP": "tcp://x", "VIBEMQ_SERVICE_HOST": "10.0.0.1"}
    names["VIBEMQ_SERVICE_PORT_FILE"] = "4711"
    assert read(places, **names, VIBEMQ_URL="vibemq://x").settings == Settings()


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"VIBEMQ_WEEK_FLUSH_MS": "1"}, "environment variable VIBEMQ_WEEK_FLUSH_MS names no setting"),
        ({"VIBEMQ_LIMITS__BODY_BYTES_MAX": "65536"}, "limits.body_bytes_max .* 1048576"),
        ({"VIBEMQ_LIMTS__MAX_CONNECTIONS": "1"}, r"names no setting; did you mean VIBEMQ_LIMITS__MAX_CONNECTIONS\?"),
        (
            {"VIBEMQ_LIMITS__MAX_CONECTIONS": "1"},
            r"setting limits.max_conections \(from environment variable VIBEMQ_LIMITS__MAX_CONECTIONS\) is unknown; "
            r"did you mean max_connections\?",
        ),
        (
            {"VIBEMQ_LIMITS__WINGS": "1", "VIBEMQ_LIMITS__MAX_CONNECTIONS": "1"},
            r"setting limits.wings \(from environment variable VIBEMQ_LIMITS__WINGS\) is unknown; "
            "known are block_timeout_ms",
        ),
        (
            {"VIBEMQ_WEAK_FLUSH_MS": "0"},
            r"setting weak_flush_ms \(from environment variable VIBEMQ_WEAK_FLUSH_MS\) is not valid: "
            "it must be more than 0",
        ),
        ({"VIBEMQ_LIMITS__MAX_CONNECTIONS": "many"}, "is not valid: it must be a whole number"),
        ({"VIBEMQ_AUTO_CREATE": "maybe"}, "is not valid: it must be true or false"),
        ({"VIBEMQ_LOG__LEVEL": "loud"}, "is not valid: it must be 'debug', 'info', 'warning' or 'error'"),
        (
            {"VIBEMQ_LIMITS": "5"},
            r"setting limits \(from .* VIBEMQ_LIMITS\) is not valid: it must be a table of settings",
        ),
        (
            {"VIBEMQ_LISTENERS": '[{"hots": "x"}]'},
            r"setting listeners\[0\].hots \(.*\) is unknown; did you mean host\?",
        ),
        (
            {"VIBEMQ_LISTENERS": "native"},
            "variable VIBEMQ_LISTENERS is not valid: lists and tables are .* JSON",
        ),
        (
            {"VIBEMQ_QUEUE_DEFAULTS__RETAIN_MS": "1"},
            r"setting queue_defaults \(from environment variable VIBEMQ_QUEUE_DEFAULTS__RETAIN_MS\) is not valid: "
            "retain_ms, retain_messages and retain_bytes limit a log",
        ),
        ({"VIBEMQ_QUEUE_DEFAULTS": '{"durabilty": 1}'}, "unknown queue option 'durabilty'"),
        (
            {"VIBEMQ_AUTH__SUPERUSER": "root"},
            "auth.superuser and auth.superuser_password belong together.*VIBEMQ_AUTH__SUPERUSER_PASSWORD",
        ),
        ({"VIBEMQ_AUTH__TOKEN": ""}, "auth.token is empty"),
        ({"VIBEMQ_AUTH__TOKEN": "x" * 2_049}, "auth.token has more than 2,048 bytes, so nobody could log in"),
        (
            {"VIBEMQ_AUTH__SUPERUSER": "root", "VIBEMQ_AUTH__SUPERUSER_PASSWORD": "é" * 513},
            "auth.superuser_password has more than 1,024 bytes, so nobody could log in",
        ),
        ({"VIBEMQ_AUTH__TOKEN_FILE": "/nowhere/token"}, "cannot read the secret file /nowhere/token"),
        (
            {"VIBEMQ_AUHT__TOKEN_FILE": "/nowhere/token"},
            r"environment variable VIBEMQ_AUHT__TOKEN_FILE names no setting; did you mean VIBEMQ_AUTH__TOKEN_FILE\?",
        ),
        (
            {"VIBEMQ_CONFIG_FILE": "/nowhere/vibemq.toml"},
            r"environment variable VIBEMQ_CONFIG_FILE names no setting; did you mean VIBEMQ_CONFIG\?",
        ),
        (
            {"VIBEMQ_CONFIG": "/nowhere/vibemq.toml"},
            "cannot read the settings file /nowhere/vibemq.toml: No such file or directory; correct VIBEMQ_CONFIG",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(places: dict[str, Any], environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigInvalid, match=sentence) as refused:
        read(places, **environ)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        (
            {"VIBEMQ_STORAGE__PROVIDER": "papyrus"},
            r"setting storage.provider \(from environment variable VIBEMQ_STORAGE__PROVIDER\) is not valid: "
            "there is no storage provider 'papyrus'; choose one of lmdb, memory, sqlite$",
        ),
        (
            {"VIBEMQ_STORAGE__SETTINGS__SEGMENT_BYTE": "1"},
            r"setting storage.settings.segment_byte \(from .*SEGMENT_BYTE\) is unknown; did you mean segment_bytes\?",
        ),
        (
            {"VIBEMQ_LISTENERS": '[{}, {"protocol": "amqp"}]'},
            r"setting listeners\[1\].protocol \(from environment variable VIBEMQ_LISTENERS\) is not valid: "
            "there is no protocol 'amqp'; choose one of blazingmq, eventmesh, eventmesh-http, native, omq$",
        ),
        (
            {"VIBEMQ_PROTOCOLS": '{"omq": {"nesting_max": "many"}}'},
            r"setting protocols.omq.nesting_max \(from .*VIBEMQ_PROTOCOLS\) is not valid: it must be a whole number",
        ),
        (
            {"VIBEMQ_PROTOCOLS": '{"amqp": {}}'},
            r"setting protocols.amqp \(from .*VIBEMQ_PROTOCOLS.*\) is not valid: there is no protocol 'amqp'",
        ),
        (
            {"VIBEMQ_LISTENERS": '[{"settings": {"prefetch": "many"}}]'},
            r"setting listeners\[0\].settings.prefetch \(.*\) is not valid: it must be a whole number",
        ),
        (
            {"VIBEMQ_LISTENERS": '[{}, {"protocol": "omq", "port": 2925, "host": "0.0.0.0"}]'},
            r"setting listeners\[1\].port \(.*\) is not valid: listeners\[0\] listens at port 2925 of 127.0.0.1, too",
        ),
        (
            {"VIBEMQ_HTTP__PORT": "2925"},
            r"setting http.port \(.*VIBEMQ_HTTP__PORT\) is not valid: listeners\[0\] listens at port 2925",
        ),
    ],
)
def test_options_of_plugins_are_told_with_their_source(
    places: dict[str, Any], environ: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigInvalid, match=sentence):
        check_plugins(read(places, **environ))


@pytest.mark.parametrize(
    ("text", "place", "most"),
    [
        ("drain_timeout_ms = 99999999999999999999", "drain_timeout_ms", "3153600000000"),
        ("[limits]\nmemory_limit_bytes = 99999999999999999999", "limits.memory_limit_bytes", "9223372036854775807"),
        (f"weak_flush_ms = 1{400 * '0'}", "weak_flush_ms", "3153600000000"),
        (
            "[storage.settings]\nbuffer_bytes = 99999999999999999999",
            "storage.settings.buffer_bytes",
            "9223372036854775807",
        ),
        ("[protocols.omq]\nack_timeout_ms = 99999999999999", "protocols.omq.ack_timeout_ms", "3153600000000"),
        ("[[listeners]]\nsettings.subscriptions_max = 1" + 19 * "0", "listeners[0].settings.subscriptions_max", "922"),
    ],
)
def test_a_number_that_stands_for_no_limit_is_refused_where_nothing_has_room_for_it(
    places: dict[str, Any], tmp_path: Path, text: str, place: str, most: str
) -> None:
    """The broker could neither show such settings nor let them count."""
    file = tmp_path / "vibemq.toml"
    file.write_text(text)
    with pytest.raises(ConfigInvalid) as refused:
        check_plugins(load(file, **places))
    assert str(refused.value).startswith(f"setting {place} (from {file}) is not valid: it must be at most {most}")


def test_settings_of_a_program_have_the_same_bounds() -> None:
    for beyond in ({"drain_timeout_ms": 36_500 * 86_400_000 + 1}, {"history_bytes": 1 << 63}):
        with pytest.raises(ValidationError, match="less than or equal"):
            Settings.model_validate(beyond)


@pytest.mark.parametrize(
    ("listeners", "http"),
    [
        ('[{"host": "0.0.0.0"}, {"host": "::"}]', "2926"),
        ('[{"host": "127.0.0.1"}, {"host": "127.0.0.2"}]', "2926"),
        ('[{"port": 0}, {"port": 0}]', "0"),
    ],
)
def test_one_port_may_be_of_several_addresses(places: dict[str, Any], listeners: str, http: str) -> None:
    check_plugins(read(places, VIBEMQ_LISTENERS=listeners, VIBEMQ_HTTP__PORT=http))


def test_options_of_a_protocol_count_for_its_listeners_and_what_a_listener_says_wins(places: dict[str, Any]) -> None:
    settings = read(
        places,
        VIBEMQ_PROTOCOLS='{"omq": {"nesting_max": 9, "subscriptions_max": 5}}',
        VIBEMQ_LISTENERS='[{}, {"protocol": "omq", "settings": {"nesting_max": 7}}]',
    ).settings
    native, omq = settings.listeners
    assert settings.protocol_options(native) == {}
    assert settings.protocol_options(omq) == {"nesting_max": 7, "subscriptions_max": 5}


def test_a_value_in_the_place_of_a_table_is_refused_also_beside_options_of_the_command_line(
    places: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "vibemq.toml"
    file.write_text("log = 5\n")
    with pytest.raises(ConfigInvalid, match=r"setting log \(from .*vibemq.toml\) is not valid: it must be a table"):
        load(file, {"log": {"level": None}}, **places)


def test_options_of_queues_can_be_variables(places: dict[str, Any]) -> None:
    settings = read(
        places,
        VIBEMQ_QUEUE_DEFAULTS='{"max_attempts": 2, "durability": "weak"}',
        VIBEMQ_QUEUE_DEFAULTS__MAX_ATTEMPTS="7",
        VIBEMQ_QUEUE_DEFAULTS__DEAD_LETTER="false",
        VIBEMQ_QUEUES__JOBS__MODE="broadcast",
    ).settings
    assert settings.queue_defaults == {"max_attempts": 7, "durability": "weak", "dead_letter": False}
    assert settings.queues == {"jobs": {"mode": "broadcast"}}


@pytest.mark.parametrize("name", ["123", "true", "null", "letters"])
def test_an_option_of_text_is_not_read_as_anything_else(places: dict[str, Any], name: str) -> None:
    settings = read(
        places, VIBEMQ_QUEUE_DEFAULTS__DEAD_LETTER_NAME=name, VIBEMQ_QUEUES__JOBS__DEAD_LETTER_NAME=name
    ).settings
    assert settings.queue_defaults == {"dead_letter_name": name}
    assert settings.queues == {"jobs": {"dead_letter_name": name}}
    settings = read(
        places,
        VIBEMQ_QUEUE_DEFAULTS=json.dumps({"dead_letter_name": name, "max_attempts": "7"}),
        VIBEMQ_QUEUES=json.dumps({"jobs": {"dead_letter_name": name}}),
    ).settings
    assert settings.queue_defaults == {"dead_letter_name": name, "max_attempts": 7}
    assert settings.queues == {"jobs": {"dead_letter_name": name}}


def test_a_refused_secret_is_not_repeated(places: dict[str, Any]) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        read(places, VIBEMQ_AUTH__USERS='{"ann": {"password_hash": "s3cret", "supruser": true}}')
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("content", [b"weak_flush_ms = " + b"1" * 5000, b"weak_flush_ms = \xff"])
def test_toml_that_python_cannot_read(places: dict[str, Any], tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "vibemq.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigInvalid, match="is not valid TOML"):
        load(path, **places)


def test_the_mark_that_some_editors_put_before_a_file_is_no_part_of_it(places: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "vibemq.toml"
    path.write_bytes(b"\xef\xbb\xbfauto_create = false\n")
    assert load(path, **places).settings.auto_create is False


def test_a_key_that_would_take_seconds_to_read(places: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "vibemq.toml"
    for line in (f"[auth{'.h' * 2000}]", f"auth{'.h' * 2000} = 1"):
        file.write_text(f"\n{line}\n")
        with pytest.raises(ConfigInvalid, match=r"a key of more than 1000 parts \(at line 2\)"):
            load(file, **places)


def test_toml_that_is_none(places: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("weak_flush_ms = = 1")
    with pytest.raises(ConfigInvalid, match="is not valid TOML"):
        load(file, **places)


def test_declared_queues(places: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "vibemq.toml"
    file.write_text('[queue_defaults]\ndead_letter = false\n[queues.prices]\nmode = "broadcast"\n[queues.jobs]\n')
    assert load(file, **places).settings.queues == {"prices": {"mode": "broadcast"}, "jobs": {}}
    assert read(places, VIBEMQ_QUEUES='{"jobs": {}}').settings.queues == {"jobs": {}}


@pytest.mark.parametrize(
    ("queues", "sentence"),
    [
        ('[queues."a b"]', "queue name 'a b' is not allowed"),
        ('[queues.jobs]\nmode = "ring"', "jobs: 'ring' is not a value for mode"),
        ("[queues.jobs]\nretain = 5", "jobs: unknown queue option 'retain'"),
        # With the defaults beside it, which have no dead letters.
        ('[queues.jobs]\noverflow = "redirect-to-dlq"', "jobs: overflow redirect-to-dlq needs dead_letter"),
    ],
)
def test_a_queue_that_cannot_be_declared(places: dict[str, Any], tmp_path: Path, queues: str, sentence: str) -> None:
    file = tmp_path / "vibemq.toml"
    file.write_text(f"[queue_defaults]\ndead_letter = false\n{queues}\n")
    with pytest.raises(ConfigInvalid, match=sentence) as refusal:
        load(file, **places)
    assert str(refusal.value).startswith(f"setting queues (from {file}) is not valid: ")


def test_settings_that_are_nested_beyond_all_measure(places: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "vibemq.toml"
    file.write_text("a=" + "[" * 5_000)
    with pytest.raises(ConfigInvalid, match="nested too deeply"):
        load(file, **places)
    with pytest.raises(ConfigInvalid, match="nested too deeply"):
        read(places, **{"VIBEMQ_LOG" + "__a" * 2_000: "1"})


def test_a_file_of_the_settings_in_use_is_missed(places: dict[str, Any], tmp_path: Path) -> None:
    """Both of these may be missing at the start."""
    places["secrets_dir"].mkdir()
    for file, text in (
        (places["default_file"], "auto_create = false"),
        (places["secrets_dir"] / "vibemq_auth__token", "t"),
    ):
        reader = SettingsReader(**places)
        assert reader.read().files == ()
        file.write_text(text)
        assert reader.read().files == (file,)
        file.unlink()
        assert reader.read().files == (), "these settings were not taken"
        file.write_text(text)
        reader.require(reader.read().files)
        file.unlink()
        for _ in range(2):
            with pytest.raises(ConfigInvalid, match="which settings were read from before, is gone; put it back"):
                reader.read()


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Folders that this user may not search, whoever runs the tests."""
    folders: list[Path] = []
    look, begin = os.stat, io.open

    def refuse(path: Any) -> None:
        if isinstance(path, str | Path) and any(Path(path).is_relative_to(folder) for folder in folders):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def stat(path: Any, *arguments: Any, **named: Any) -> Any:
        refuse(path)
        return look(path, *arguments, **named)

    def opening(path: Any, *arguments: Any, **named: Any) -> Any:
        refuse(path)
        return begin(path, *arguments, **named)

    monkeypatch.setattr("os.stat", stat)
    monkeypatch.setattr("io.open", opening)
    yield folders
    monkeypatch.undo()


def test_a_folder_that_may_not_be_searched_is_named(places: dict[str, Any], closed: list[Path], tmp_path: Path) -> None:
    """A start and a reload are refused: that a file is missing, or there are no secrets, is not known."""
    places["default_file"] = tmp_path / "etc" / "vibemq.toml"
    places["default_file"].parent.mkdir()
    places["default_file"].write_text("auto_create = false")
    places["secrets_dir"].mkdir()
    reader = SettingsReader(**places)
    reader.read()
    for folder, sentence in (
        (places["default_file"].parent, f"cannot read the settings file {places['default_file']}: Permission denied"),
        (places["secrets_dir"], f"cannot look at the secrets in {places['secrets_dir']}: Permission denied"),
    ):
        closed[:] = [folder]
        for read_them in (reader.read, lambda: load(**places)):
            with pytest.raises(ConfigInvalid) as refused:
                read_them()
            assert str(refused.value) == f"{sentence}; correct its owner or mode"
