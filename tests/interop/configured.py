"""A broker in a child process with listeners of several protocols."""

from collections.abc import Sequence
from pathlib import Path

from tests.crash.ledger import BrokerProcess
from tests.ports import held_port


class ConfiguredBroker(BrokerProcess):
    """`vibemq serve` with a native listener and those of other protocols; all ports stay the same over restarts."""

    def __init__(self, folder: Path, protocols: Sequence[str], *, toml: str = "", last: str = "") -> None:
        """`toml`: further settings; `last`: TOML lines behind the last listener, such as its settings."""
        self._config = folder / "vibemq.toml"
        self._toml, self._last = toml, last
        self._own = {name: held_port(self) for name in protocols}
        super().__init__(folder / "data", arguments=("--config", str(self._config)))

    def start(self, *, prefix: tuple[str, ...] = ()) -> None:
        listeners = ['[[listeners]]\nprotocol = "native"']
        listeners += [f'[[listeners]]\nprotocol = "{name}"\nport = {port}' for name, port in self._own.items()]
        self._config.write_text("\n".join([self._toml, *listeners, self._last, ""]))
        super().start(prefix=prefix)
