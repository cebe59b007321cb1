"""Logins from many loopback addresses, each over a connection of its own, at a fixed rate until it is ended.

    python -m bench.logins.attack PORT RATE wrong            # with passwords that are wrong
    python -m bench.logins.attack PORT RATE connects         # nothing is said: connect and close
    python -m bench.logins.attack PORT RATE token            # with the access token in BENCH_TOKEN

Standard output: one line of JSON a second, how many were sent and answered. One thread with plain sockets: what it
costs itself is taken from the broker, which runs on the same machine.
"""

import contextlib
import json
import os
import select
import socket
import sys
import time

from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body

ADDRESSES = 50
BODY_MAX = 1 << 20
UNDER_WAY_MAX = 2_000
TURN_S = 0.005


class Attack:
    def __init__(self, port: int, rate: float, kind: str) -> None:
        self._port = port
        self._rate = rate
        self._kind = kind
        self._poll = select.epoll()
        self._open: dict[int, tuple[socket.socket, bytes]] = {}
        """By file number, with what is to be said."""
        self.sent = self.answered = 0

    def run(self) -> None:
        began, told = time.monotonic(), 0.0
        while True:
            now = time.monotonic() - began
            while self.sent < now * self._rate and len(self._open) < UNDER_WAY_MAX:
                self._guess()
            if now - told >= 1:
                told = now
                print(json.dumps({"sent": self.sent, "answered": self.answered}), flush=True)
            end = time.monotonic() + TURN_S
            while (left := end - time.monotonic()) > 0:
                for number, events in self._poll.poll(left):
                    self._go_on(number, events)

    def _guess(self) -> None:
        number = self.sent
        self.sent += 1
        peer = socket.socket()
        peer.setblocking(False)
        peer.bind((f"127.0.0.{2 + number % ADDRESSES}", 0))
        with contextlib.suppress(BlockingIOError):
            peer.connect(("127.0.0.1", self._port))
        self._open[peer.fileno()] = peer, self._said(number)
        self._poll.register(peer, select.EPOLLOUT)

    def _said(self, number: int) -> bytes:
        if self._kind == "connects":
            return b""
        headers = {"authUsername": "root" if number % 2 else f"user{number}", "authPassword": f"wrong{number}"}
        if self._kind == "token":
            headers = {"authToken": os.environ["BENCH_TOKEN"]}
        return encode_frame(encode_body(CommandType.CONNECT, "c", headers=headers), body_bytes_max=BODY_MAX)

    def _go_on(self, number: int, events: int) -> None:
        peer, said = self._open[number]
        try:
            if said and events & select.EPOLLOUT:
                peer.send(said)
                self._open[number] = peer, b""
                self._poll.modify(number, select.EPOLLIN)
                return
            self.answered += bool(peer.recv(4096)) if events & select.EPOLLIN else 0
        except OSError:
            pass  # It was turned away.
        self._poll.unregister(number)
        del self._open[number]
        peer.close()


if __name__ == "__main__":
    Attack(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]).run()
