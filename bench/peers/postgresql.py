"""PostgreSQL as a queue: rows inserted many at a time, taken with DELETE … FOR UPDATE SKIP LOCKED … RETURNING.

A statement is a transaction; its commit confirms its messages, and for the consumer acknowledges them.
S: synchronous_commit on. W: off, the log is flushed about every 200 ms. T: an unlogged table.
"""

import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.common.load import Bodies, Go, Job, Pacer, Span, now, sent_at
from bench.common.peer import Guarantee, Peer
from bench.common.servers import Plan

USER = "postgres"
WINDOW = 1000
SMALL_WINDOW, SMALL_BYTES = 4000, 256
"""Rows a statement at which it is fastest: measured, 128 B gain a fifth from four times as many, 1 KiB nothing."""
IDLE_S = 0.002
_INSERT = "insert into messages(body) select unnest(%b::bytea[])"
_TAKE = (
    "delete from messages where id in"
    " (select id from messages order by id for update skip locked limit %s) returning body"
)


class SkipLocked(Peer):
    server_name = "postgresql"
    guarantees = frozenset({Guarantee.STRONG, Guarantee.WEAK, Guarantee.TRANSIENT})

    @classmethod
    def missing(cls) -> str:
        return "" if server_programs() is not None else "PostgreSQL is not installed (apt-get install postgresql)"

    def instance(self) -> str:
        return self.server_name

    def plan(self, folder: Path) -> Plan:
        programs = server_programs()
        assert programs is not None
        user = USER if os.getuid() == 0 else None
        if user is not None:
            shutil.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        data = str(folder / "data")
        initdb = [str(programs / "initdb"), "-D", data, "-A", "trust", "-U", "bench"]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd="/", user=user)
        command = [str(programs / "postgres"), "-D", data, "-p", str(self.port), "-k", str(folder)]
        settings = ("listen_addresses=127.0.0.1", "shared_buffers=1GB", "max_wal_size=4GB")
        return Plan([*command, *(part for setting in settings for part in ("-c", setting))], user=USER)

    def set_up(self, job: Job) -> None:
        kind = "unlogged" if self.guarantee is Guarantee.TRANSIENT else ""
        with self._connect() as connection:
            connection.execute("drop table if exists messages")
            connection.execute(f"create {kind} table messages (id bigserial primary key, body bytea not null)")

    def tear_down(self) -> None:
        with self._connect() as connection:
            connection.execute("drop table if exists messages")
            connection.execute("checkpoint")

    def _connect(self) -> Any:
        import psycopg  # Whoever only starts a server needs no client of Python's.

        address = f"host=127.0.0.1 port={self.port} user=bench dbname=postgres"
        for _ in range(100):
            try:
                connection = psycopg.connect(address, autocommit=True)
                break
            except psycopg.OperationalError:
                # The port is open before the server takes connections.
                time.sleep(0.1)
        else:
            connection = psycopg.connect(address, autocommit=True)
        connection.execute(f"set synchronous_commit = {'on' if self.guarantee is Guarantee.STRONG else 'off'}")
        return connection

    def produce(self, job: Job, go: Go) -> Span:
        with self._connect() as connection:
            go()
            return self._paced(connection, job) if job.rate else self._inserted(connection, job)

    def _inserted(self, connection: Any, job: Job) -> Span:
        bodies, sent, cursor, window = (
            Bodies(job.size),
            0,
            connection.cursor(),
            job.window or (WINDOW if job.size > SMALL_BYTES else SMALL_WINDOW),
        )
        began = now()
        while sent < job.messages:
            count = min(window, job.messages - sent)
            cursor.execute(_INSERT, ([bodies.make(number) for number in range(sent, sent + count)],))
            sent += count
        return Span(began, now(), sent)

    def _paced(self, connection: Any, job: Job) -> Span:
        bodies, pacer, sent, cursor = Bodies(job.size), Pacer(job.rate, job.messages), 0, connection.cursor()
        latencies: list[float] = []
        while sent < job.messages:
            time.sleep(max(0.0, pacer.delay(sent)))
            dues = [pacer.due_at(number) for number in range(sent, sent + pacer.due(sent))]
            cursor.execute(_INSERT, ([bodies.make(sent + index, due) for index, due in enumerate(dues)],))
            at = now()
            latencies += [at - due for due in dues]
            sent += len(dues)
        return Span(pacer.began, now(), sent, latencies)

    def consume(self, job: Job, go: Go) -> Span:
        latencies: list[float] = []
        with self._connect() as connection:
            cursor = connection.cursor(binary=True)
            go()
            began = now()
            while len(latencies) < job.messages:
                rows = cursor.execute(_TAKE, (job.batch,)).fetchall()
                if not rows:
                    time.sleep(IDLE_S)
                    continue
                at = now()
                latencies += [at - sent_at(body) for (body,) in rows]
            return Span(began, now(), len(latencies), latencies)


def server_programs() -> Path | None:
    """Folder of the newest installed server; Debian keeps it out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    if found:
        return found[-1].parent
    elsewhere = shutil.which("postgres")
    return Path(elsewhere).parent if elsewhere else None
