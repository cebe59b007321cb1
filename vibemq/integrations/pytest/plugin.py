"""What pytest loads in every run of an environment that has VibeMQ installed: fixtures, options, hooks.

It imports pytest alone, and does nothing until a test asks for a fixture.
"""

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import vibemq.sync
    from vibemq.integrations.pytest.clock import BrokerClock
    from vibemq.integrations.pytest.running import RunningBroker
    from vibemq.integrations.pytest.tidying import Tidying

PROVIDERS = ("memory", "lmdb", "sqlite")
BROKER = "vibemq_broker"
_MARKER = (
    "vibemq(**options): options of the queue that the fixture vibemq_queue creates, as `create_queue` takes them:"
    ' durability="weak", max_attempts=3'
)


class _State:
    """Of this run, in the process of this worker."""

    broker: "RunningBroker | None" = None
    tidying: "Tidying | None" = None


_STATE = pytest.StashKey[_State]()
_OF_A_TEST = frozenset(("vibemq_client", "vibemq_async", "vibemq_queue"))
"""Fixtures that are set up for each test which uses them."""
_HAS_ASKED = pytest.StashKey[bool]()
"""Of a test: one of these was set up for it, also when the test, or a fixture, has asked for it while it ran."""


def pytest_addoption(parser: pytest.Parser) -> None:
    help_text = "storage provider of the fixture vibemq_broker: memory (the default), lmdb or sqlite"
    parser.getgroup("vibemq").addoption("--vibemq-provider", choices=PROVIDERS, default=None, help=help_text)
    parser.addini("vibemq_provider", help_text, default=PROVIDERS[0])


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STATE] = _State()
    config.addinivalue_line("markers", _MARKER)
    if config.pluginmanager.hasplugin("asyncio"):
        from vibemq.integrations.pytest import asyncio_fixtures

        config.pluginmanager.register(asyncio_fixtures, "vibemq-asyncio")
    if config.pluginmanager.hasplugin("anyio"):
        from vibemq.integrations.pytest import anyio_fixtures

        config.pluginmanager.register(anyio_fixtures, "vibemq-anyio")


@pytest.fixture(scope="session")
def vibemq_broker(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RunningBroker]":
    """A broker of this test run, in a thread of its own; each worker of pytest-xdist has one. `url`, `port`, `clock`,
    `queues()`."""
    from vibemq.integrations.pytest.running import RunningBroker
    from vibemq.integrations.pytest.tidying import Tidying

    provider = pytestconfig.getoption("--vibemq-provider") or pytestconfig.getini("vibemq_provider")
    if provider not in PROVIDERS:
        raise pytest.UsageError(f"vibemq_provider is {provider!r}; it must be one of {', '.join(PROVIDERS)}")
    data_dir = tmp_path_factory.mktemp("vibemq", numbered=True) if provider != "memory" else None
    state = pytestconfig.stash[_STATE]
    with RunningBroker(provider, data_dir) as broker, Tidying(broker) as tidying:
        state.broker, state.tidying = broker, tidying
        yield broker
        state.broker = state.tidying = None


@pytest.fixture(scope="session")
def vibemq_url(vibemq_broker: "RunningBroker") -> str:
    """Where `vibemq.connect` and `vibemq.sync.connect` find the broker."""
    return vibemq_broker.url


@pytest.fixture(scope="session")
def vibemq_clock(vibemq_broker: "RunningBroker") -> "BrokerClock":
    """The broker's clock: `advance(hours=2)`, `now()`."""
    return vibemq_broker.clock


@pytest.fixture
def vibemq_client(vibemq_url: str) -> "Iterator[vibemq.sync.Client]":
    """A blocking client, which is closed after the test."""
    import vibemq.sync

    with vibemq.sync.connect(vibemq_url) as client:
        yield client


@pytest.fixture
def vibemq_async(request: pytest.FixtureRequest) -> Any:
    """A client of the test's event loop, open, and closed after the test: under pytest-asyncio, whatever `loop_scope`
    the test has, and under the plugin of anyio, also with trio."""
    plugins = request.config.pluginmanager
    has_asyncio = plugins.hasplugin("vibemq-asyncio")
    # In its mode `auto`, pytest-asyncio marks and runs every test that is a coroutine, those of anyio's plugin, too.
    is_asyncios = has_asyncio and request.node.get_closest_marker("asyncio") is not None
    if plugins.hasplugin("vibemq-anyio") and "anyio_backend" in request.fixturenames:
        if not is_asyncios:
            return request.getfixturevalue("_vibemq_client_of_anyio")
        raise pytest.UsageError(
            "two plugins would run this test, in a loop each: that of anyio, because of pytest.mark.anyio or"
            " anyio_backend, and pytest-asyncio, because of asyncio_mode = auto or pytest.mark.asyncio. Set"
            " asyncio_mode = strict and keep pytest.mark.anyio, which trio needs; or leave pytest-asyncio alone with it"
        )
    if has_asyncio:
        from vibemq.integrations.pytest.asyncio_fixtures import client_fixture_of

        return request.getfixturevalue(client_fixture_of(request.node))
    raise pytest.UsageError(
        "vibemq_async needs a test that runs in an event loop: mark it with pytest.mark.anyio, or install"
        " pytest-asyncio and mark it with pytest.mark.asyncio; vibemq_client is for tests without a loop"
    )


@pytest.fixture
def vibemq_queue(request: pytest.FixtureRequest, vibemq_broker: "RunningBroker") -> str:
    """The name of a queue that no other test has, created with the options of the marker `vibemq`."""
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("vibemq"))):
        options.update(marker.kwargs)
    tidying = request.config.stash[_STATE].tidying
    assert tidying is not None
    return tidying.new_queue(request.node.name, options)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    state = request.config.stash[_STATE]
    if fixturedef.scope == "function":
        if fixturedef.argname in _OF_A_TEST:
            request.node.stash[_HAS_ASKED] = True
        return (yield)
    # It may be set up in the middle of a test, which has made queues of its own by then.
    before = state.tidying.queues() if state.tidying is not None else set()
    result = yield
    if state.tidying is not None:
        # What a fixture of several tests has made stays for all of them.
        state.tidying.keep(state.tidying.queues() - before)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    state = item.config.stash[_STATE]
    if report.failed and call.when == "call" and state.tidying is not None and _uses_broker(item):
        left = state.tidying.report()
        if left:
            report.sections.append(("VibeMQ: what is left in the queues", left))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        tidying = item.config.stash[_STATE].tidying
        if tidying is not None and _uses_broker(item):
            tidying.remove_the_rest()


def _uses_broker(item: pytest.Item) -> bool:
    return _HAS_ASKED in item.stash or BROKER in getattr(item, "fixturenames", ())
