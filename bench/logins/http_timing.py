"""Does the time of a refusal over HTTP tell whether a user, or a queue, exists? Welch's t-test over many of both kinds.

    python -m bench.logins.http_timing --samples 2000 --requests 10000

Logins: as in `bench.logins.timing`, by the header Authorization: Basic. Queues: a user without rights on either asks
for one that is there and for one that is not, in random order on one connection. The slowest twentieth of each kind is
left out. Below |t| = 4.5 two kinds cannot be told apart; the exit code is 1 above it.
"""

import argparse
import base64
import json
import random
import socket
import time

import httpx

from bench.common.options import parsed, switches
from bench.common.serving import PASSWORD, Served
from bench.logins.timing import KINDS, TIMEOUT_S, Took, address_of, in_random_order, login_of, tell_apart

API = "/api/v1"
LIMITED = "limited"
PAIRS = {"foreign queue": "private", "missing queue": "nowhere"}
"""Names of one length."""


def main() -> None:
    options = _options()

    def measured(broker: Served, rng: random.Random) -> list[Took]:
        _prepare(broker.http_port)
        return [
            _logins(broker.http_port, options.samples, rng),
            _queues(broker.http_port, options.requests, rng),
        ]

    tell_apart(options, measured, http=True)


def _prepare(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}{API}", auth=("root", PASSWORD), timeout=TIMEOUT_S) as root:
        root.post("/users", json={"user": LIMITED, "password": PASSWORD}).raise_for_status()
        root.put(f"/queues/{PAIRS['foreign queue']}", json={}).raise_for_status()


def _logins(port: int, samples: int, rng: random.Random) -> Took:
    took: Took = {kind: [] for kind in KINDS}
    for number, kind in enumerate(in_random_order(KINDS, samples, rng)):
        name = login_of(kind, rng)
        with socket.create_connection(
            ("127.0.0.1", port), timeout=TIMEOUT_S, source_address=(address_of(number), 0)
        ) as peer:
            took[kind].append(_refused_after_s(peer, "/queues", (name, f"not {PASSWORD}"), "AUTH_FAILED"))
    return took


def _queues(port: int, requests: int, rng: random.Random) -> Took:
    took: Took = {kind: [] for kind in PAIRS}
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as peer:
        # The first one logs in.
        _refused_after_s(peer, "/queues/none", (LIMITED, PASSWORD), "NOT_AUTHORIZED")
        for kind in in_random_order(PAIRS, requests, rng):
            path = f"/queues/{PAIRS[kind]}"
            took[kind].append(_refused_after_s(peer, path, (LIMITED, PASSWORD), "NOT_AUTHORIZED"))
    return took


def _refused_after_s(peer: socket.socket, path: str, login: tuple[str, str], code: str) -> float:
    basic = base64.b64encode(":".join(login).encode()).decode()
    request = f"GET {API}{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {basic}\r\n\r\n".encode()
    began = time.perf_counter()
    peer.sendall(request)
    answer = peer.recv(16_384)
    while b"\r\n\r\n" not in answer or len(answer.partition(b"\r\n\r\n")[2]) < _length(answer):
        more = peer.recv(16_384)
        if not more:
            break
        answer += more
    took = time.perf_counter() - began
    if json.loads(answer.partition(b"\r\n\r\n")[2])["code"] != code:
        raise RuntimeError(f"this was another answer: {answer!r}")
    return took


def _length(answer: bytes) -> int:
    lines = answer.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
    return next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)


def _options() -> argparse.Namespace:
    parser = switches("logins.http_timing", __doc__)
    parser.add_argument("--samples", type=int, default=1000, help="logins of each kind (1000)")
    parser.add_argument("--requests", type=int, default=10_000, help="requests for each kind of queue (10000)")
    parser.add_argument("--seed", type=int, default=1)
    return parsed("logins.http_timing", parser, whose="the broker's")


if __name__ == "__main__":
    main()
