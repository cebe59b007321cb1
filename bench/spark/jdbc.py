"""PostgreSQL beside us: the same rows in a table, read and written by Spark's own JDBC source, in the same session."""

import subprocess
import time
from pathlib import Path
from typing import Any

from bench.common.lab import Lab
from bench.common.peer import Guarantee
from bench.peers.postgresql import server_programs

DRIVER = "org.postgresql:postgresql:42.7.4"
PLACES = ("/usr/share/java/postgresql.jar",)
"""Where Debian's package libpostgresql-jdbc-java puts it."""
TABLE, SINK = "bench", "bench_sink"
FETCHED_ROWS = 10_000
START_TIMEOUT_S = 30.0
_COLUMNS = (
    "seq bigint primary key, message_id text, body bytea, enqueued_at timestamptz, priority smallint, attempts int,"
    " key text, content_type text"
)
"""Ours without the map of headers, for which JDBC has no type, and without the name of the queue."""
_ROWS = (
    "select n, lpad(to_hex(n), 32, '0'), decode(repeat(md5('x'), {times}), 'hex'), now(), 1, 1, null::text,"
    " 'application/octet-stream' from generate_series(1, {rows}) n"
)


def jdbc_settings(jar: Path | None, fetch: bool) -> tuple[dict[str, str], str]:
    """Settings of the session that bring the driver; or none, and why PostgreSQL is skipped."""
    if server_programs() is None:
        return {}, "PostgreSQL is not installed (apt-get install postgresql)"
    if fetch:
        print(f"Spark loads {DRIVER} from Maven Central", flush=True)
        return {"spark__jars__packages": DRIVER}, ""
    found = next((path for path in (jar, *map(Path, PLACES)) if path is not None and path.exists()), None)
    if found is None:
        return {}, f"there is no JDBC driver: name a jar with --jdbc, or have Spark load {DRIVER} with --fetch-jdbc"
    return {"spark__jars": str(found)}, ""


class Postgres:
    """A server of our own with `rows` rows of `size` bytes in `bench`; commits are flushed, as by default."""

    def __init__(self, spark: Any, lab: Lab, *, rows: int, size: int) -> None:
        peer = lab.peer("postgresql", Guarantee.STRONG)
        self._spark = spark
        self._rows = rows
        self._port = peer.port
        self.pids = lab.server(peer).pids
        self._wait()
        self._sql(f"create table {TABLE} ({_COLUMNS})")
        self._sql(f"insert into {TABLE} {_ROWS.format(times=size // 16, rows=rows)}")
        self._sql(f"vacuum analyze {TABLE}")
        self._sql("checkpoint")

    def read(self, columns: tuple[str, ...] = ()) -> Any:
        """One partition for each of the two cores, and as many rows a round trip as Spark makes of a batch."""
        options = {"partitionColumn": "seq", "lowerBound": 1, "upperBound": self._rows + 1, "numPartitions": 2}
        frame = self._options(self._spark.read.format("jdbc")).options(**options).option("dbtable", TABLE)
        loaded = frame.option("fetchsize", FETCHED_ROWS).load()
        return loaded.select(*columns) if columns else loaded

    def write(self, frame: Any) -> None:
        """Into an empty table without an index. Spark's default is 1,000 rows a batch, as ours."""
        self._sql(f"drop table if exists {SINK}")
        self._sql(f"create table {SINK} (body bytea)")
        self._options(frame.write.format("jdbc")).option("dbtable", SINK).mode("append").save()

    def _options(self, io: Any) -> Any:
        url = f"jdbc:postgresql://127.0.0.1:{self._port}/postgres?reWriteBatchedInserts=true"
        return io.option("url", url).option("user", "bench").option("driver", "org.postgresql.Driver")

    def _wait(self) -> None:
        """The port is open before the server takes connections."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                return self._sql("select 1")
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _sql(self, statement: str) -> None:
        programs = server_programs()
        assert programs is not None
        psql = [str(programs / "psql"), "-q", "-h", "127.0.0.1", "-p", str(self._port), "-U", "bench", "-d", "postgres"]
        subprocess.run([*psql, "-v", "ON_ERROR_STOP=1", "-c", statement], check=True, capture_output=True, cwd="/")
