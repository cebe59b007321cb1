"""Spark applications that leave nothing behind, whatever becomes of them: for the demo, tests and benchmarks.

A killed JVM leaves folders, libraries and sockets where its temporary files were; here that is one folder, which its
owner removes. Processes are found by their session, since Spark's Python workers leave the group of their parent.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vibemq.cli.exits import how_to_install

CLASSES = "classes.jsa"
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""For applications that live for seconds."""
INITIALIZING = "Initializing sources"
LASTING_JVM = "-XX:-UsePerfData"
PREPARED = "SPARK_PREPARED"
"""Environment variable: a folder that `prepare` has filled, from which Spark starts in half the time."""


def why_no_spark() -> str:
    """Why Spark cannot run here, as a sentence; empty if it can."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        return "pyspark and pyarrow are not installed; " + how_to_install("spark")
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else shutil.which("java")
    if java is None or not Path(java).exists():
        return "there is no Java; Spark 4 needs version 17 or later, on PATH or at JAVA_HOME"
    return ""


@contextmanager
def folder() -> Iterator[Path]:
    """A new folder with a short name (sockets have to fit into 108 characters), removed at the end."""
    path = Path(tempfile.mkdtemp(prefix="vmq-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def spark_home() -> Path:
    """Where pip has put Spark."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def quick_home(path: Path) -> Path:
    """A home of Spark whose Python workers find pyspark's modules compiled; made in `path`.

    Spark puts pyspark.zip first on their path, and what is imported from a zip is compiled anew in every process, for
    about a second of processor time. Here a folder of that name leads to the installed package.
    """
    home, real = Path(os.environ.get(PREPARED, path)) / "home", spark_home()
    if not home.exists():
        (home / "python" / "lib" / "pyspark.zip").mkdir(parents=True)
        (home / "python" / "lib" / "pyspark.zip" / "pyspark").symlink_to(real)
        for entry in (real / "python" / "lib").glob("py4j*"):
            (home / "python" / "lib" / entry.name).symlink_to(entry)
        for name in ("bin", "jars"):
            (home / name).symlink_to(real / name)
    return home


def environment(path: Path) -> dict[str, str]:
    """For a process that starts Spark, or is part of it. Settings of a broker of this machine stay out."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("VIBEMQ_", "PYSPARK_"))}
    for name in ("tmp", "local", "work"):
        (path / name).mkdir(exist_ok=True)
    return clean | {
        "TMPDIR": str(path / "tmp"),
        "SPARK_HOME": str(quick_home(path)),
        "SPARK_LOCAL_DIRS": str(path / "local"),
        "SPARK_WORKER_DIR": str(path / "work"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "TZ": "UTC",
    }


def settings(path: Path, *, jvm: str = QUICK_JVM) -> dict[str, str]:
    """Configuration of an application whose files stay in `path`."""
    java = f"-Djava.io.tmpdir={path / 'tmp'} {jvm}"
    if PREPARED in os.environ:
        # An archive that does not fit this Java or this Spark is left aside by the JVM.
        java += f" -Xshare:auto -XX:SharedArchiveFile={os.environ[PREPARED]}/{CLASSES} -Xlog:disable"
    (path / "tmp").mkdir(exist_ok=True)
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(path / "local"),
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.executorEnv.TMPDIR": str(path / "tmp"),
        "spark.sql.warehouse.dir": str(path / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(path / "tmp"),
        "spark.log.level": "ERROR",
    }


def session(name: str, master: str, path: Path, **more: str) -> Any:
    """A SparkSession of this process. `more`: settings with `__` for dots."""
    from pyspark.sql import SparkSession

    # Spark asks the environment, and would otherwise take the first python3 on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.Builder().appName(name).master(master)
    for key, value in settings(path).items():
        builder = builder.config(key, value)
    for key, value in more.items():
        builder = builder.config(key.replace("__", "."), value)
    before = os.environ.get("SPARK_HOME")
    os.environ["SPARK_HOME"] = str(quick_home(path))
    try:
        return builder.getOrCreate()
    finally:
        if before is None:
            del os.environ["SPARK_HOME"]
        else:
            os.environ["SPARK_HOME"] = before


def end(session: Any) -> None:
    """Stop it and its JVM, which would keep writing into the session's folder, and which the next session of this
    process would get with its old settings."""
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    process: subprocess.Popen[bytes] = gateway.proc  # pyspark keeps it there
    assert process.stdin is not None
    process.stdin.close()
    process.wait(120)
    SparkContext._gateway = SparkContext._jvm = None


def prepare(prepared: Path) -> None:
    """Run a small job and keep its classes as the JVM has loaded them, unless that is done, for this process and its
    children. Takes half a minute, and pays when many JVMs are to start."""
    os.environ[PREPARED] = str(prepared)
    archive = prepared / CLASSES
    if archive.exists():
        return
    prepared.mkdir(parents=True, exist_ok=True)
    with folder() as path:
        job, new = Path(__file__).with_name("warm.py"), prepared / f"{CLASSES}.{os.getpid()}"
        surroundings = environment(path)
        options = f"-Djava.io.tmpdir={path / 'tmp'} {QUICK_JVM} -Xlog:disable -XX:ArchiveClassesAtExit={new}"
        submit = str(quick_home(path) / "bin" / "spark-submit")
        subprocess.run(  # noqa: S603  # Spark's own script
            [submit, "--master", "local[2]", "--driver-java-options", options, str(job), str(path / "warm")],
            env=surroundings,
            check=True,
            capture_output=True,
        )
        new.replace(archive)


def wait_until_planned(query: Any, timeout_s: float = 120.0) -> None:
    """Until the query has its sources: Spark gives each source's process ten seconds to start, and several that start
    at once, beside a JVM that warms up, may need more on a small machine."""
    deadline = time.monotonic() + timeout_s
    while query.isActive and query.status["message"] == INITIALIZING and time.monotonic() < deadline:
        time.sleep(0.05)


def members(session_id: int) -> dict[int, str]:
    """Processes of a session and their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # pid (name) state ppid pgrp session …; the name may hold spaces.
            if int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == session_id:
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (OSError, IndexError, ValueError):
            continue  # It has ended meanwhile.
    return found


def sweep(session_id: int) -> int:
    """kill -9 for whatever is left of a session; returns how many that were."""
    swept = 0
    while left := members(session_id):
        alive = 0
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
                alive += left[pid] != ""  # a zombie has no command line, and its parent to wait for
            except ProcessLookupError:
                pass
        swept += alive
        if not alive:
            return swept
    return swept
