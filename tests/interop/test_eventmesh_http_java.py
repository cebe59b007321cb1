"""The real Java SDK of EventMesh (1.10.0) over HTTP, against a broker in a process of its own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from anyio.to_thread import run_sync

from tests.integration.eventmesh_http import subscriber
from tests.integration.test_eventmesh_http_life import MeshDoors
from tests.interop.eventmesh import SOURCES, JavaDriver, compile_java, java_classpath
from tests.waiting import WAIT_S, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.xdist_group("eventmesh-java")]


@pytest.fixture(scope="module")
def classpath(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    cache = getattr(pytestconfig, "cache", None)
    kept = cache.mkdir("eventmesh-sdk") if cache else tmp_path_factory.mktemp("sdk")
    classpath = java_classpath(kept)
    classes = tmp_path_factory.mktemp("classes")
    compile_java(SOURCES / "EventMeshHttpDriver.java", classpath, classes)
    return f"{classes}:{classpath}"


class HttpDriver:
    """A JVM with a producer and a consumer."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, *words: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(("done", "failed")):
                return line.strip()
        raise AssertionError("the JVM ended")

    async def do(self, *words: str) -> None:
        said = await run_sync(self.ask, *words)
        assert said == "done", (words, said)

    async def insist(self, *words: str) -> None:
        """The SDK keeps connections that a kill has ended, and fails once on each."""

        async def done() -> bool:
            return await run_sync(self.ask, *words) == "done"

        await until(done)


@contextmanager
def jvm(classpath: str, port: int) -> Iterator[HttpDriver]:
    flags = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    command = ["java", *flags, "-cp", classpath, "EventMeshHttpDriver", str(port), "eventmesh", "pass"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield HttpDriver(process)
        finally:
            process.kill()
            process.wait(WAIT_S)


@pytest.mark.long(covered_by="tests/interop/test_eventmesh_java.py::test_publish_and_push_in_order")
async def test_publish_push_heartbeat_unsubscribe_and_a_kill(classpath: str, tmp_path: Path) -> None:
    broker = MeshDoors(tmp_path)
    await run_sync(broker.start)
    try:
        async with subscriber() as app:
            with jvm(classpath, broker.ports["eventmesh-http"]) as java:
                await java.do("subscribe", "java", app.url())
                await java.do("publish", "java", "hällo wörld")
                await java.do("event", "java", '{"content":"event"}')
                await java.do("heartbeat", "java", app.url())
                await until(lambda: len(app.pushes) == 2)
                assert app.contents[0] == "hällo wörld"
                assert app.pushes[0].fields["bizseqno"] == "123456789012345678901234567890"
                event = orjson.loads(app.contents[1])
                assert (event["id"], event["subject"], event["source"]) == ("java-1", "java", "/java")
                await run_sync(broker.kill)
                await run_sync(broker.start)
                await java.insist("publish", "java", "again")
                for number in range(20):
                    await java.do("publish", "java", f"after {number}")
                # What was pushed before the kill may come again: the broker may not have kept the answer.
                await until(lambda: app.contents[-20:] == [f"after {number}" for number in range(20)])
                await java.insist("unsubscribe", "java", app.url())
                await java.do("publish", "java", "nobody")
                assert (await run_sync(java.ask, "subscribe", "java", "http://169.254.169.254/")).startswith("failed")
            assert "nobody" not in app.contents
    finally:
        await run_sync(broker.stop)


@pytest.mark.long(covered_by="tests/interop/test_eventmesh_java.py::test_publish_and_push_in_order")
async def test_clients_of_both_doors_understand_each_other(classpath: str, tmp_path: Path) -> None:
    """TCP to HTTP, HTTP to TCP, in both forms; two URLs of a group share; a client of TCP answers one of HTTP."""
    broker = MeshDoors(tmp_path)
    await run_sync(broker.start)
    mesh = broker.client()
    try:
        async with subscriber() as first, subscriber() as second:
            with jvm(classpath, broker.ports["eventmesh-http"]) as java, JavaDriver.started(classpath) as tcp:
                port = broker.ports["eventmesh"]
                for name, kind, purpose in (("em", "em", "sub"), ("ce", "ce", "sub"), ("pub", "em", "pub")):
                    await run_sync(tcp.do, "client", name, kind, purpose, name, port)
                for name, topic, how in (("em", "texts", "ASYNC"), ("ce", "events", "ASYNC"), ("em", "asked", "SYNC")):
                    await run_sync(tcp.do, "subscribe", name, topic, "CLUSTERING", how)
                for name in ("em", "ce"):
                    await run_sync(tcp.do, "listen", name)
                await java.do("subscribe", "texts", first.url())
                await java.do("subscribe", "texts", second.url())
                await java.do("publish", "texts", "hällo")
                await java.do("event", "events", '{"a":1}')
                assert await run_sync(tcp.bodies, "em", 1) == ["hällo"]
                assert await run_sync(tcp.bodies, "ce", 1) == ['{"a":1}']
                for number in range(9):
                    await run_sync(tcp.do, "publish", "pub", "texts", f"tcp {number}")
                texts = ["hällo", *(f"tcp {number}" for number in range(9))]
                await until(lambda: sorted(first.contents + second.contents) == sorted(texts))
                assert first.contents, "the two URLs share"
                assert second.contents
                await run_sync(tcp.do, "answer", "em", "reply to ")
                answer = await mesh.send(101, topic="asked", content="?", ttl="20000", bizseqno="1", uniqueid="1")
                assert orjson.loads(answer["retMsg"])["body"] == "reply to ?"
    finally:
        await mesh.http.aclose()
        await run_sync(broker.stop)
