"""A real broker for the tests that need one."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.crash.ledger import BrokerProcess
from tests.integration.conditions import running


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running(BrokerProcess(tmp_path_factory.mktemp("broker") / "data")) as process:
        yield process


@pytest.fixture
def mq(broker: BrokerProcess) -> Iterator[Any]:
    import vibemq.sync

    with vibemq.sync.connect(broker.url) as client:
        yield client


@pytest.fixture
def broker_of_ones_own(tmp_path: Path) -> Iterator[BrokerProcess]:
    """To be killed."""
    with running(BrokerProcess(tmp_path / "data")) as process:
        yield process


@pytest.fixture
def publish_to() -> Callable[..., None]:
    """publish_to(broker, queue, first, end), into a queue that only cursors read."""

    def send(broker: BrokerProcess, queue: str, first: int, end: int) -> None:
        import vibemq.sync

        with vibemq.sync.connect(broker.url) as client:
            client.create_queue(queue, retention="log")
            client.publish_many(queue, [f"{number}".encode() for number in range(first, end)])

    return send


@pytest.fixture
def asked_and_answered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`ask` and `answer`, in the order in which sources call them."""
    from vibemq.spark.connection.client import BrokerClient

    seen: list[str] = []
    for word in ("ask", "answer"):
        real = getattr(BrokerClient, word)

        def told(*arguments: Any, word: str = word, real: Any = real, **more: Any) -> Any:
            seen.append(word)
            return real(*arguments, **more)

        monkeypatch.setattr(BrokerClient, word, told)
    return seen


_numbers = count(1)


@pytest.fixture
def queue(mq: Any) -> str:
    """A queue that only cursors read, with a name of its own."""
    name = f"orders-{next(_numbers)}"
    mq.create_queue(name, retention="log")
    return name


@pytest.fixture
def publish(mq: Any) -> Callable[..., None]:
    """publish(queue, first, end): bodies "first" to "end - 1"."""

    def send(queue: str, first: int, end: int, size: int = 0) -> None:
        mq.publish_many(queue, [f"{number}".encode().ljust(size) for number in range(first, end)])

    return send
