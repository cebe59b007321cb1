"""A server that takes connections, reads once and hangs up: what an attack costs the machine and not the broker.

Standard output: its port.
"""

import selectors
import socket


def main() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server, selectors.DefaultSelector() as waiting:
        server.setblocking(False)
        waiting.register(server, selectors.EVENT_READ)
        print(server.getsockname()[1], flush=True)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is server:
                    peer, _ = server.accept()
                    waiting.register(peer, selectors.EVENT_READ)
                else:
                    waiting.unregister(key.fileobj)
                    peer = key.fileobj  # type: ignore[assignment]
                    try:
                        peer.recv(4096)
                    except ConnectionError:
                        pass
                    peer.close()


if __name__ == "__main__":
    main()
