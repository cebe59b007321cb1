"""Does the time of a refusal tell whether a user exists? Welch's t-test over many logins of both kinds.

    python -m bench.logins.timing --samples 2000

A known user with a wrong password and an unknown user take turns, in random order, each from a loopback address of its
own, because an address that fails waits. The slowest twentieth of each kind is left out: there the machine is measured
and not the broker. Below |t| = 4.5 the two cannot be told apart; the exit code is 1 above it.
"""

import argparse
import random
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.common.options import parsed, switches
from bench.common.report import Journal, table
from bench.common.serving import PASSWORD, Served, serving
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body

T_MAX = 4.5
KEPT = 0.95
KINDS = ("wrong password", "unknown user")
TIMEOUT_S = 60

Took = dict[str, list[float]]
"""Kind -> seconds."""


def main() -> None:
    options = _options()
    tell_apart(options, lambda broker, rng: [_logins(broker.port, options.samples, rng)])


def tell_apart(
    options: argparse.Namespace, measured: Callable[[Served, random.Random], list[Took]], *, http: bool = False
) -> None:
    """Measure at a broker of its own, print what was found, and end with 1 if two kinds can be told apart.

    Args:
        measured: pairs of kinds.
    """
    with (
        Journal(options.output) as journal,
        tempfile.TemporaryDirectory(prefix="vibemq-bench-", dir=options.data_root) as folder,
        serving(Path(folder), http=http) as broker,
    ):
        found = measured(broker, random.Random(options.seed))
        for took in found:
            for kind, seconds in took.items():
                journal.write(kind, seconds=seconds)
    rows, differ = [], False
    for took in found:
        kept = {kind: sorted(seconds)[: int(len(seconds) * KEPT)] for kind, seconds in took.items()}
        t = welch_t(*kept.values())
        differ |= abs(t) >= T_MAX
        verdict = "pass" if abs(t) < T_MAX else "fall short"
        rows += [[kind, f"{statistics.mean(seconds) * 1e3:.3f} ms", "", ""] for kind, seconds in kept.items()]
        rows.append(["t", f"{t:.2f}", f"|t| < {T_MAX}", verdict])
    print(table(["what", "figure", "goal", "verdict"], rows))
    sys.exit(differ)


def in_random_order(kinds: Iterable[str], count: int, rng: random.Random) -> list[str]:
    """So many of each."""
    order = [kind for kind in kinds for _ in range(count)]
    rng.shuffle(order)
    return order


def login_of(kind: str, rng: random.Random) -> str:
    """Whose login is tried."""
    return "root" if kind == KINDS[0] else f"user{rng.getrandbits(40)}"


def _logins(port: int, samples: int, rng: random.Random) -> Took:
    took: Took = {kind: [] for kind in KINDS}
    for number, kind in enumerate(in_random_order(KINDS, samples, rng)):
        took[kind].append(refused_after_s(port, login_of(kind, rng), address_number=number))
    return took


def welch_t(one: list[float], other: list[float]) -> float:
    """0 when the means agree; it grows with the number of samples when they do not."""
    spread = sum(statistics.variance(samples) / len(samples) for samples in (one, other))
    return float((statistics.mean(one) - statistics.mean(other)) / spread**0.5)


def address_of(number: int) -> str:
    """One of the loopback network."""
    return f"127.{1 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}"


def refused_after_s(port: int, name: str, *, address_number: int) -> float:
    headers = {"authUsername": name, "authPassword": f"not {PASSWORD}"}
    frame = encode_frame(encode_body(CommandType.CONNECT, "c", headers=headers), body_bytes_max=1 << 20)
    with socket.create_connection(
        ("127.0.0.1", port), timeout=TIMEOUT_S, source_address=(address_of(address_number), 0)
    ) as peer:
        began = time.perf_counter()
        peer.sendall(frame)
        answer = peer.recv(4096)
        took = time.perf_counter() - began
    if b"AUTH_FAILED" not in answer or b"too many" in answer:
        raise RuntimeError(f"this was no check of a password: {answer!r}")
    return took


def _options() -> argparse.Namespace:
    parser = switches("logins.timing", __doc__)
    parser.add_argument("--samples", type=int, default=1000, help="logins of each kind (1000)")
    parser.add_argument("--seed", type=int, default=1)
    return parsed("logins.timing", parser, whose="the broker's")


if __name__ == "__main__":
    main()
