"""The plugin in real runs of pytest, as its users have them: each test here writes a file of tests and runs it."""

import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a file of tests with warnings as errors; what pytest printed."""

    def run(source: str, *arguments: str, plugins: tuple[str, ...] = ("no:asyncio",), conftest: str = "") -> str:
        (tmp_path / "test_it.py").write_text(textwrap.dedent(source))
        (tmp_path / "conftest.py").write_text(textwrap.dedent(conftest))
        (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-rA",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
            "-p",
            "no:schemathesis",  # it takes a second to import
            *arguments,
        ]
        for plugin in plugins:
            command += ["-p", plugin]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        return done.stdout + done.stderr

    return run


def outcomes(printed: str) -> dict[str, str]:
    """Test -> PASSED, FAILED or ERROR."""
    return {test: what for what, test in re.findall(r"^(PASSED|FAILED|ERROR) test_it\.py::([^ \n]+)", printed, re.M)}


def test_clients_queues_and_time(run: Run) -> None:
    printed = run(
        """
        import pytest, vibemq
        from datetime import timedelta

        def test_blocking(vibemq_client, vibemq_queue):
            vibemq_client.publish(vibemq_queue, {"a": 1})
            [message] = vibemq_client.fetch(vibemq_queue)
            assert message.json() == {"a": 1}

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
        async def test_asynchronous(vibemq_async, vibemq_queue, anyio_backend):
            await vibemq_async.publish(vibemq_queue, 1)
            [message] = await vibemq_async.fetch(vibemq_queue)
            await message.ack()

        def test_time(vibemq_client, vibemq_queue, vibemq_clock):
            vibemq_client.publish(vibemq_queue, "an hour", delay=3600)
            vibemq_client.publish(vibemq_queue, "at", deliver_at=vibemq_clock.now() + timedelta(hours=2))
            vibemq_client.publish(vibemq_queue, "gone", ttl=60)
            vibemq_clock.advance(minutes=59)
            assert vibemq_client.fetch(vibemq_queue, timeout=0) == []
            vibemq_clock.advance(minutes=1)
            assert [m.body for m in vibemq_client.fetch(vibemq_queue, max=9, timeout=9)] == ["an hour"]
            vibemq_clock.advance(hours=1)
            assert [m.body for m in vibemq_client.fetch(vibemq_queue, max=9, timeout=9)] == ["at"]
            assert vibemq_client.reconnects == 0
            with pytest.raises(ValueError, match="cannot go back"):
                vibemq_clock.advance(seconds=-1)
            for no_number in (float("nan"), float("inf")):
                with pytest.raises(ValueError, match="nan or inf"):
                    vibemq_clock.advance(hours=no_number)

        def test_centuries(vibemq_client, vibemq_queue, vibemq_clock):
            vibemq_client.publish(vibemq_queue, "late", delay=100 * 365 * 86_400)
            vibemq_clock.advance(days=100 * 365)
            assert [m.body for m in vibemq_client.fetch(vibemq_queue)] == ["late"]
            for days in (365 * 9_000, 1e30):
                with pytest.raises(ValueError, match="ends with the year 9999, and advance was called with .* s"):
                    vibemq_clock.advance(days=days)
            assert (vibemq_client.ping() >= 0, vibemq_client.reconnects) == (True, 0)

        def test_a_lease_runs_out(vibemq_client, vibemq_queue, vibemq_clock):
            vibemq_client.publish(vibemq_queue, 1)
            assert [m.attempt for m in vibemq_client.fetch(vibemq_queue, ack_timeout=600)] == [1]
            vibemq_clock.advance(minutes=10)
            assert [m.attempt for m in vibemq_client.fetch(vibemq_queue, timeout=9)] == [2]

        @pytest.mark.vibemq(durability="weak", max_attempts=3)
        class TestMarked:
            @pytest.mark.vibemq(max_attempts=7)
            def test_options(self, vibemq_client, vibemq_queue):
                options = vibemq_client.queue_info(vibemq_queue).options
                assert (options.durability.name, options.max_attempts) == ("WEAK", 7)

        def test_every_durability(vibemq_client):
            for durability in ("strong", "weak", "async", "transient"):
                vibemq_client.create_queue(durability, durability=durability)
                vibemq_client.publish(durability, 1)
        """
    )
    assert set(outcomes(printed).values()) == {"PASSED"}, printed
    assert len(outcomes(printed)) == 8


def test_queues_of_a_test_go_with_it_and_those_of_wider_fixtures_stay(run: Run) -> None:
    printed = run(
        """
        import pytest, vibemq.sync

        @pytest.fixture(scope="module")
        def orders(vibemq_url):
            with vibemq.sync.connect(vibemq_url) as mq:
                mq.create_queue("orders")
                yield mq

        @pytest.fixture
        def own(vibemq_client):
            vibemq_client.create_queue("own")

        @pytest.fixture
        def breaks():
            yield
            raise RuntimeError("at its end")

        def test_first(orders, own, vibemq_broker, breaks):
            orders.publish("made-here", 1)
            [message] = orders.fetch("made-here")
            message.reject("broken")
            orders.ping()
            assert [q.name for q in vibemq_broker.queues()] == ["made-here", "orders", "own"]

        def test_second(orders, vibemq_broker):
            assert [q.name for q in vibemq_broker.queues()] == ["orders"]
            assert orders.admin("dlq.list")["letters"] == []
        """
    )
    assert outcomes(printed) == {"test_first": "ERROR", "test_second": "PASSED"}, printed
    assert "RuntimeError: at its end" in printed


def test_what_a_test_has_made_goes_with_it_whatever_is_set_up_in_the_middle(run: Run) -> None:
    printed = run(
        """
        import pytest, vibemq.sync

        @pytest.fixture(scope="module")
        def late(vibemq_url):
            with vibemq.sync.connect(vibemq_url) as mq:
                mq.create_queue("of-the-module")
                yield

        @pytest.fixture
        def own(vibemq_client):
            vibemq_client.create_queue("own")

        @pytest.mark.asyncio(loop_scope="session")
        async def test_loop(vibemq_async, vibemq_queue, own):
            await vibemq_async.publish(vibemq_queue, 1)

        def test_fixture(vibemq_broker, vibemq_client, request):
            assert vibemq_broker.queues() == []
            vibemq_client.publish("own", 1)
            request.getfixturevalue("late")
            vibemq_client.publish("own", 2)

        def test_the_fixtures_queue_stays(vibemq_broker, vibemq_client):
            assert [q.name for q in vibemq_broker.queues()] == ["of-the-module"]
            vibemq_client.publish_many("of-the-module", range(3))
            for message in vibemq_client.fetch("of-the-module", max=2):
                message.reject("no")
            vibemq_client.delete_queue("of-the-module")

        def test_it_is_not_the_fixtures_any_more(vibemq_broker, vibemq_client):
            assert vibemq_broker.queues() == []
            assert vibemq_client.admin("dlq.list")["letters"] == []
            vibemq_client.publish("of-the-module", 1)

        def test_nothing(vibemq_broker):
            assert vibemq_broker.queues() == []
        """,
        "-o",
        "asyncio_default_fixture_loop_scope=function",
        plugins=(),
    )
    assert set(outcomes(printed).values()) == {"PASSED"}, printed
    assert len(outcomes(printed)) == 5


def test_what_is_left_is_listed_when_a_test_fails(run: Run) -> None:
    printed = run(
        """
        import pytest

        def test_fails(vibemq_client, vibemq_queue):
            for body in range(3):
                vibemq_client.publish(vibemq_queue, body)
            [message] = vibemq_client.fetch(vibemq_queue)
            message.reject("no such customer")
            vibemq_client.ping()
            assert not "well"

        def test_leaves_no_trace(vibemq_client):
            assert not "well"

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio"])
        async def test_has_nothing_but_a_client(vibemq_async, anyio_backend):
            await vibemq_async.publish("of-a-coroutine", 1)
            assert not "well"

        def test_asks_later(request):
            request.getfixturevalue("vibemq_client").publish("asked-for", 1)
            assert not "well"

        def test_finds_nothing(vibemq_broker):
            assert vibemq_broker.queues() == []
        """
    )
    assert list(outcomes(printed).values()) == ["PASSED", *["FAILED"] * 4], printed
    assert "test-fails-1: 2 ready, 1 dead\n    dead " in printed
    assert "rejected no such customer" in printed
    assert "of-a-coroutine: 1 ready" in printed
    assert "asked-for: 1 ready" in printed
    assert printed.count("VibeMQ: what is left in the queues") == 3


@pytest.mark.parametrize("provider", ["lmdb", pytest.param("sqlite", marks=pytest.mark.long)])
def test_other_providers(run: Run, provider: str) -> None:
    source = """
        def test_it(vibemq_client, vibemq_queue, vibemq_broker):
            vibemq_client.publish(vibemq_queue, 1)
            assert vibemq_broker.provider == vibemq_client.admin("broker.info")["storage"]["provider"] == "{}"
        """
    printed = run(source.format(provider), f"--vibemq-provider={provider}")
    assert outcomes(printed) == {"test_it": "PASSED"}, printed


def test_bad_use_is_told(run: Run) -> None:
    printed = run(
        """
        import pytest

        def test_no_loop(vibemq_async): pass

        @pytest.mark.vibemq(colour="red")
        def test_option(vibemq_queue): pass
        """
    )
    assert set(outcomes(printed).values()) == {"ERROR"}, printed
    assert "vibemq_async needs a test that runs in an event loop" in printed
    assert "colour" in printed
    told = run("def test_it(vibemq_url): pass", "-o", "vibemq_provider=oracle")
    assert "vibemq_provider is 'oracle'; it must be one of memory, lmdb, sqlite" in told


def test_a_run_that_does_not_use_it_loads_pytest_alone(run: Run) -> None:
    printed = run(
        """
        import sys

        def test_it():
            ours = {name for name in sys.modules if name.startswith("vibemq")}
            assert ours <= {
                "vibemq", "vibemq._version", "vibemq.integrations", "vibemq.integrations.pytest",
                "vibemq.integrations.pytest.plugin", "vibemq.integrations.pytest.anyio_fixtures",
            }
            assert "pydantic" not in sys.modules
        """
    )
    assert outcomes(printed) == {"test_it": "PASSED"}, printed


def test_beside_pytest_asyncio(run: Run) -> None:
    printed = run(
        """
        import pytest

        @pytest.mark.asyncio
        async def test_it(vibemq_async, vibemq_queue):
            await vibemq_async.publish(vibemq_queue, 1)
            [message] = await vibemq_async.fetch(vibemq_queue)
            assert message.body == 1

        @pytest.mark.anyio
        async def test_anyio(anyio_backend, vibemq_async, vibemq_queue):
            await vibemq_async.publish(vibemq_queue, 1)
        """,
        "-o",
        "asyncio_default_fixture_loop_scope=function",
        plugins=(),
    )
    assert outcomes(printed) == {"test_it": "PASSED", "test_anyio[asyncio]": "PASSED", "test_anyio[trio]": "PASSED"}


@pytest.mark.long(covered_by="tests/unit/integrations/pytest/test_plugin.py::test_beside_pytest_asyncio")
def test_in_every_loop_of_pytest_asyncio(run: Run) -> None:
    printed = run(
        """
        import pytest

        async def works(client, queue):
            await client.publish(queue, 1)
            [message] = await client.fetch(queue)
            assert message.body == 1

        @pytest.mark.asyncio
        async def test_default(vibemq_async, vibemq_queue):
            await works(vibemq_async, vibemq_queue)

        @pytest.mark.asyncio(loop_scope="class")
        class TestOfAClass:
            async def test_it(self, vibemq_async, vibemq_queue):
                await works(vibemq_async, vibemq_queue)

        @pytest.mark.parametrize("scope", [
            pytest.param(scope, marks=pytest.mark.asyncio(loop_scope=scope))
            for scope in ("function", "module", "package", "session")
        ])
        async def test_marked(vibemq_async, vibemq_queue, scope):
            await works(vibemq_async, vibemq_queue)
        """,
        "-o",
        "asyncio_default_fixture_loop_scope=session",
        "-o",
        "asyncio_default_test_loop_scope=session",
        plugins=(),
    )
    assert set(outcomes(printed).values()) == {"PASSED"}, printed
    assert len(outcomes(printed)) == 6


@pytest.mark.long(covered_by="tests/unit/integrations/pytest/test_plugin.py::test_beside_pytest_asyncio")
def test_beside_pytest_asyncio_in_its_mode_auto(run: Run) -> None:
    printed = run(
        """
        import pytest

        async def test_unmarked(vibemq_async, vibemq_queue):
            await vibemq_async.publish(vibemq_queue, 1)

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio", ("trio", {})], ids=["asyncio", "trio"])
        async def test_marked(vibemq_async, anyio_backend):
            await vibemq_async.ping()
        """,
        "--asyncio-mode=auto",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
        plugins=(),
    )
    assert outcomes(printed) == {
        "test_unmarked": "PASSED",
        "test_marked[asyncio]": "ERROR",
        "test_marked[trio]": "ERROR",
    }, printed
    assert "two plugins would run this test" in printed


@pytest.mark.long(covered_by="tests/unit/integrations/pytest/test_plugin.py::test_clients_queues_and_time")
def test_each_worker_of_xdist_has_its_broker(run: Run) -> None:
    printed = run(
        """
        import pytest

        @pytest.mark.parametrize("number", range(6))
        def test_it(vibemq_broker, vibemq_client, number):
            vibemq_client.publish("q", number)
            assert [(q.name, q.ready) for q in vibemq_broker.queues()] == [("q", 1)]
        """,
        "-n2",
    )
    assert set(outcomes(printed).values()) == {"PASSED"}, printed
    assert len(outcomes(printed)) == 6
