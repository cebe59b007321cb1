"""A broker beside the tests."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

from vibemq import Broker
from vibemq.config import Http, Limits, Listener, Settings, StorageChoice
from vibemq.integrations.pytest.clock import BrokerClock, MovableTime
from vibemq.model.shared.queue_info import QueueInfo

R = TypeVar("R")

STOP_S_MAX = 30.0
_NEVER_MS = 10_000 * 366 * 86_400_000
"""Connections may be silent for so long, which is longer than the clock goes: time that a test moves ends none of
them."""


class RunningBroker:
    """A broker in a thread of its own, so that blocking and asynchronous tests may use it. A context manager."""

    def __init__(self, provider: str, data_dir: Path | None) -> None:
        """`data_dir`: an empty folder; None for the provider `memory`."""
        self._time = MovableTime()
        self._broker = Broker(settings=_settings(provider, data_dir), time_source=self._time)
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._live, name="vibemq broker of the tests", daemon=True)
        self._started: Future[None] = Future()
        self.clock = BrokerClock(self._time, self._catch_up)
        self.provider = provider

    @property
    def url(self) -> str:
        """Of the native listener, for `vibemq.connect`."""
        return self._broker.url

    @property
    def port(self) -> int:
        return self._broker.port

    def queues(self) -> list[QueueInfo]:
        """Every queue with its figures, by name."""
        return self._in_loop(self._broker.list_queues)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._broker.stop()
        self._thread.join(STOP_S_MAX)

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        try:
            await self._broker.start()
        except BaseException as error:
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        await self._broker.run()

    def _catch_up(self) -> None:
        self._run(self._broker.time_has_moved())

    def _in_loop(self, function: Callable[[], R]) -> R:
        async def call() -> R:
            return function()

        return self._run(call())

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        if not self._thread.is_alive():
            work.close()
            raise RuntimeError("the broker of the tests has ended")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(STOP_S_MAX)


def _settings(provider: str, data_dir: Path | None) -> Settings:
    own = {"allow_durable_queues": True} if provider == "memory" else {}
    return Settings.model_construct(
        data_dir=data_dir or Path("vibemq-data"),
        storage=StorageChoice.model_construct(provider=provider, settings=own),
        listeners=(Listener.model_construct(port=0),),
        http=Http.model_construct(enabled=False),
        limits=Limits.model_construct(idle_timeout_ms=_NEVER_MS, connections_per_ip_per_minute=0),
    )
