"""beanstalkd through greenstalk, which has one command under way per connection.

S: its log flushed for every job (`-f0`). W: flushed every second (`-f1000`). T: no log.
"""

import shutil
import time
from pathlib import Path

import greenstalk

from bench.common.load import Bodies, Go, Job, Pacer, Span, now, sent_at
from bench.common.peer import Guarantee, Peer
from bench.common.servers import Plan

_FLUSH = {Guarantee.STRONG: "-f0", Guarantee.WEAK: "-f1000"}


class Beanstalkd(Peer):
    server_name = "beanstalkd"
    guarantees = frozenset({Guarantee.STRONG, Guarantee.WEAK, Guarantee.TRANSIENT})

    @classmethod
    def missing(cls) -> str:
        return "" if shutil.which("beanstalkd") else "beanstalkd is not installed (apt-get install beanstalkd)"

    def plan(self, folder: Path) -> Plan:
        flush = _FLUSH.get(self.guarantee)
        log = ["-b", str(folder), flush] if flush else []
        return Plan(["beanstalkd", "-l", "127.0.0.1", "-p", str(self.port), *log])

    def set_up(self, job: Job) -> None:
        self.tear_down()

    def tear_down(self) -> None:
        """Take out what is left: it has no verb that empties a tube."""
        client = self._connect()
        try:
            while True:
                client.delete(client.reserve(timeout=0))
        except greenstalk.TimedOutError:
            client.close()

    def _connect(self) -> greenstalk.Client:
        return greenstalk.Client(("127.0.0.1", self.port), encoding=None)

    def produce(self, job: Job, go: Go) -> Span:
        client, bodies = self._connect(), Bodies(job.size)
        latencies: list[float] = []
        go()
        pacer = Pacer(job.rate, job.messages) if job.rate else None
        began = now()
        for number in range(job.messages):
            if pacer is None:
                client.put(bodies.make(number))
                continue
            time.sleep(max(0.0, pacer.delay(number)))
            due_at = pacer.due_at(number)
            client.put(bodies.make(number, due_at))
            latencies.append(now() - due_at)
        ended = now()
        client.close()
        return Span(began, ended, job.messages, latencies)

    def consume(self, job: Job, go: Go) -> Span:
        client = self._connect()
        latencies: list[float] = []
        go()
        began = now()
        while len(latencies) < job.messages:
            taken = client.reserve(timeout=60)
            assert isinstance(taken.body, bytes)
            latencies.append(now() - sent_at(taken.body))
            client.delete(taken)
        ended = now()
        client.close()
        return Span(began, ended, len(latencies), latencies)
