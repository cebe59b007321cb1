"""TLS handshakes of the HTTP port that failed: asyncio tells nobody of them."""

import ssl
from typing import Any


class Handshakes:
    def __init__(self) -> None:
        self.failed = 0

    def watch(self, context: ssl.SSLContext) -> None:
        """Count those of the connections that are made with it from now on."""
        handshakes = self

        class WatchedConnection(ssl.SSLObject):
            def do_handshake(self, *arguments: Any, **options: Any) -> None:
                try:
                    super().do_handshake(*arguments, **options)
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    raise
                except ssl.SSLError:
                    handshakes.failed += 1
                    raise

        context.sslobject_class = WatchedConnection
