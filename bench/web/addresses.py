"""Where the broker is, and which queues messages flow through."""

from typing import NamedTuple

LOAD = "load"
"""At full speed."""
TAILED = "tailed"
"""At a fixed rate; nobody consumes from it."""


class Addresses(NamedTuple):
    """Ports of one broker on this machine."""

    http_port: int
    native_port: int

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def api(self) -> str:
        return f"{self.http}/api/v1"

    @property
    def native(self) -> str:
        return f"vibemq://127.0.0.1:{self.native_port}"
