"""Blocking clients in a program whose threads are greenlets, as in Gunicorn's and Celery's workers with gevent."""

import subprocess
import sys
import textwrap

import pytest

from tests.integration.fake_broker import FakeBroker
from tests.integration.test_client_sync import address, broker  # noqa: F401  # a fixture

pytest.importorskip("gevent", reason="gevent is not installed")

PROGRAM = """
    import importlib.util
    import sys

    if sys.argv[3] == "late":
        import vibemq.sync

    from gevent import monkey
    monkey.patch_all()

    import gevent

    if sys.argv[2] == "asyncio":
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *more: None if name == "uvloop" else found(name, *more)

    import vibemq.sync

    turns = []

    def others():
        while True:
            turns.append(1)
            gevent.sleep(0)

    # Nothing but the client is waited for: then gevent says that it would be for ever.
    named = sys.argv[1].replace("127.0.0.1", "localhost")
    with vibemq.sync.connect(named) as mq, vibemq.sync.connect(sys.argv[1]) as second:
        assert mq.publish("orders", 0).sequence == 1
        other = gevent.spawn(others)

        def publish():
            for number in range(20):
                mq.publish("orders", number)

        gevent.joinall([gevent.spawn(publish) for _ in range(10)], raise_error=True)
        seen = []
        with second.subscribe("orders") as messages:
            for message in messages:
                message.ack()
                seen.append(message.sequence)
                if len(seen) == 201:
                    break
        assert seen == list(range(1, 202)), seen
        before = len(turns)
        assert mq.fetch("empty", timeout=0.1) == []
        assert len(turns) > before
        other.kill()
    print("done")
"""


PRELOADED = """
    import os
    import sys

    import vibemq.sync

    mq = vibemq.sync.connect(sys.argv[1])
    mq.publish("orders", 0)
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        mq.publish("orders", 1)
        sys.exit()

    from gevent import monkey
    monkey.patch_all()

    import gevent

    greenlets = [gevent.spawn(mq.publish, "orders", number) for number in range(10)]
    gevent.joinall(greenlets, raise_error=True)
    assert sorted(greenlet.value.sequence for greenlet in greenlets) == list(range(2, 12))
    mq.close()
    os._exit(0)
"""


def test_greenlets_of_a_forked_child_connect_once(broker: FakeBroker) -> None:  # noqa: F811
    """Gunicorn's `--preload` loads the program, which connects; its workers make greenlets of threads afterwards."""
    options = ["-W", "ignore:Monkey-patching ssl", "-W", "ignore:This process:DeprecationWarning"]
    command = [sys.executable, *options, "-c", textwrap.dedent(PRELOADED), address(broker)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert broker.accepted == 2


@pytest.mark.parametrize("patched", ["early", "late"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.long_where(loop="asyncio", patched="late")
@pytest.mark.long_where(loop="uvloop", patched="early")
def test_clients_among_greenlets(broker: FakeBroker, loop: str, patched: str) -> None:  # noqa: F811
    """Also where threads become greenlets after vibemq was imported, as with Gunicorn's `--preload`."""
    # Of ssl it is gevent itself that warns who patches late.
    options = ["-W", "ignore:Monkey-patching ssl"]
    command = [sys.executable, *options, "-c", textwrap.dedent(PROGRAM), address(broker), loop, patched]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("done\n", "")
