"""Arguments of a broker."""

from pathlib import Path

import pytest

from vibemq.config import Http, Listener, Settings, StorageChoice
from vibemq.errors import ConfigInvalid
from vibemq.server.broker import Broker


@pytest.mark.parametrize("port", [-1, 65_536, True, 1.0, "2925"])
def test_a_port_that_there_is_not_is_refused(port: object) -> None:
    with pytest.raises(ConfigInvalid, match=r"^port is .*; it must be a whole number"):
        Broker(port=port)  # type: ignore[arg-type]
    with pytest.raises(ConfigInvalid, match=r"^http_port is .*; it must be a whole number"):
        Broker(http_port=port)  # type: ignore[arg-type]


def test_arguments_become_the_settings_that_a_check_lets_pass() -> None:
    plain = Broker("here").settings
    assert plain == Settings(
        data_dir=Path("here"),
        listeners=(Listener(port=0),),
        http=Http(enabled=False, port=0),
        audit="log",
        history_bytes=0,
    )
    served = Broker(host="::1", port=65_535, http_port=1, storage="sqlite").settings
    assert served == Settings(
        storage=StorageChoice(provider="sqlite"), listeners=(Listener(host="::1", port=65_535),), http=Http(port=1)
    )
    assert Settings.model_validate(served.model_dump()) == served


def test_defaults_pass_the_checks() -> None:
    assert Settings.model_validate(Settings.model_construct().model_dump()) == Settings() == Settings.model_construct()


@pytest.mark.parametrize("host", ["", "a..b", "x" * 64, "tab\there"])
def test_a_host_that_no_machine_has_is_refused(host: str) -> None:
    with pytest.raises(
        ConfigInvalid, match=r"^host is .*; it is (empty; name an address|neither an address nor a name)"
    ):
        Broker(host=host)


def test_a_folder_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match=r"^data_dir is ''; it is empty; name a directory"):
        Broker("")
    assert Broker(".").settings.data_dir == Path()
