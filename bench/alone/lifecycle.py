"""How long a start takes: on an empty folder, and after `kill -9` with messages in the journal."""

from typing import Any

from bench.common.lab import Lab
from bench.common.load import Job, now
from bench.common.peer import Guarantee
from bench.common.worker import LoadFailed


def start_up_s(lab: Lab, rounds: int) -> list[float]:
    """A fresh broker each time, from the start of its process until it listens."""
    taken = []
    for _ in range(rounds):
        began = now()
        peer = lab.peer("vibemq", Guarantee.STRONG)
        taken.append(now() - began)
        lab.stop(peer)
    return taken


def recovery(lab: Lab, messages: int, size: int) -> dict[str, Any]:
    """Fill, kill, start again, and count that everything confirmed is still there.

    Raises:
        LoadFailed: it is not.
    """
    job = Job(messages=messages, size=size)
    peer = lab.peer("vibemq", Guarantee.STRONG)
    peer.set_up(job)
    lab.work(peer, "produce", job)
    seconds = lab.kill_and_restart(peer)
    found = lab.work(peer, "consume", job)["messages"]
    if found != messages:
        raise LoadFailed(f"{found:,} messages after the recovery; {messages:,} had been confirmed")
    peer.tear_down()
    return {"messages": messages, "size": size, "recovery_s": seconds}
