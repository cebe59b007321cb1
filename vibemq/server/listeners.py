"""What a broker listens on: the listeners of its settings with the services of their plug-ins, and the HTTP server."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from vibemq.config import Http, Listener, Settings
from vibemq.errors import ConfigInvalid
from vibemq.model.options import Durability
from vibemq.server.around.look import ListenerFacts
from vibemq.server.assembly import Assembly, storage_plugin
from vibemq.server.monitoring.health import Report
from vibemq.server.net.connections import ListenerEndpoint, ListenerTroubles
from vibemq.server.net.listener import HttpDoor, Listening, endpoint_of, listen
from vibemq.server.net.plugin_services import OUTBOUND_MAX, PluginServices
from vibemq.server.net.tls import ServerTls
from vibemq.server.reload.reloader import OF_HTTP

if TYPE_CHECKING:
    from vibemq.web.server import WebServer

log = logging.getLogger("vibemq.broker")


class Listeners:
    """Nothing listens before `begin`, and no client is served before `open`."""

    def __init__(self, report: Report, fatal: Callable[[BaseException], None]) -> None:
        self.listening: list[Listening] = []
        self.services: list[PluginServices] = []
        """Of the plug-ins, and of the HTTP API: the peers of both are told at the stop."""
        self.tls: dict[int, ServerTls] = {}
        """Of the open listeners, by their places in the settings."""
        self.web: WebServer | None = None
        self._http_troubles = ListenerTroubles()
        self._report = report
        self._fatal = fatal
        self._configured: list[tuple[Listener, ListenerEndpoint]] = []

    def begin(self, settings: Settings, tasks: TaskGroup) -> None:
        """Check the settings of each listener, and serve HTTP: probes are answered while the broker recovers.

        Raises:
            ConfigInvalid: the settings of a listener, or the address of HTTP, cannot be used.
        """
        self._configured = [
            (listener, endpoint_of(listener, settings.protocol_options(listener))) for listener in settings.listeners
        ]
        endpoints = [endpoint for _, endpoint in self._configured]
        _check_shared(endpoints)
        check_durabilities(endpoints, settings)
        if settings.http.enabled:
            self.web = self._make_web(settings)
            tasks.start_soon(_serve_http, self.web)

    async def open(self, settings: Settings, parts: Assembly, tasks: TaskGroup) -> None:
        """Start the plug-ins, and serve clients from now on. Raises ConfigInvalid."""
        started = await self._start_plugins(parts, tasks)
        for number, ((listener, _), endpoint) in enumerate(zip(self._configured, started, strict=True)):
            if endpoint.plugin.create is not None:
                listening = await listen(listener, number, endpoint, parts.socket_services)
                self.listening.append(listening)
                if listening.tls is not None:
                    self.tls[number] = listening.tls
        if self.web is not None:
            self.web.slow_guesses(parts.authenticator.check_secret)
        if self.web is not None and settings.http.api:
            self._open_api(self.web, settings.http, parts, tasks)

    def facts(self, parts: Assembly) -> list[ListenerFacts]:
        facts = [
            ListenerFacts(
                one.protocol,
                one.host,
                one.port,
                None if one.tls is None else one.tls.certificate,
                partial(parts.connection_table.count_of, one.endpoint),
                partial(getattr, one.endpoint.troubles, "refused"),
                None if one.tls is None else partial(getattr, one.endpoint.troubles, "handshakes_failed"),
            )
            for one in self.listening
        ]
        if self.web is not None:
            tls = self.tls.get(OF_HTTP)
            certificate = None if tls is None else tls.certificate
            facts.append(
                ListenerFacts(
                    "http",
                    self.web.host,
                    self.web.port,
                    certificate,
                    self.web.pool.__len__,
                    partial(getattr, self.web.pool, "dropped"),
                    None if tls is None else partial(getattr, self._http_troubles, "handshakes_failed"),
                )
            )
        return facts

    @property
    def ports(self) -> set[int]:
        ports = {listening.port for listening in self.listening}
        return ports if self.web is None else ports | {self.web.port}

    def close(self) -> None:
        """Accept nobody any more, and end the plug-ins. HTTP is served on."""
        for listening in self.listening:
            listening.acceptor.close()
        for services in self.services:
            services.cut()

    def close_http(self) -> None:
        if self.web is not None:
            self.web.stop()
            self.web.close()

    def _make_web(self, settings: Settings) -> "WebServer":
        # A broker without it starts sooner: an HTTP server is a fifth of all that would be imported.
        from vibemq.web.server import WebServer

        http = settings.http
        tls = None if http.tls is None else ServerTls(http.tls, "http.tls")
        if tls is not None:
            self.tls[OF_HTTP] = tls
        door = HttpDoor(tls, settings.limits.handshake_timeout_ms, self._http_troubles, self._report.metrics)
        return WebServer(http, self._report, door.accept, tls=tls is not None)

    async def _start_plugins(self, parts: Assembly, tasks: TaskGroup) -> list[ListenerEndpoint]:
        """The endpoints, with what their plug-ins have said makes their sessions."""
        mount = self.web.mount if self.web is not None else None
        outbound = anyio.CapacityLimiter(OUTBOUND_MAX)
        started: list[ListenerEndpoint] = []
        for _, endpoint in self._configured:
            create = endpoint.plugin.create
            before = next((other for other in started if other.protocol == endpoint.protocol), None)
            if endpoint.plugin.starts_once and before is not None:
                create = before.plugin.create
            elif endpoint.plugin.start is not None:
                services = PluginServices(
                    endpoint.protocol,
                    parts.socket_services,
                    mount,
                    outbound,
                    tasks,
                    self._fatal,
                    parts.accounts.acting,
                    parts.revocation.watchers.append,
                )
                self.services.append(services)
                create = await endpoint.plugin.start(services, endpoint.settings) or create
            started.append(replace(endpoint, plugin=replace(endpoint.plugin, create=create)))
        return started

    def _open_api(self, web: "WebServer", http: Http, parts: Assembly, tasks: TaskGroup) -> None:
        from vibemq.server.api.lending import lend

        peers = PluginServices(
            "http",
            parts.socket_services,
            None,
            anyio.CapacityLimiter(OUTBOUND_MAX),
            tasks,
            self._fatal,
            parts.accounts.acting,
            parts.revocation.watchers.append,
        )
        self.services.append(peers)
        made = web.open_api(http, lend(parts, peers, self._report.status))
        parts.revocation.watchers.append(made.end_revoked)
        parts.housekeeping.chores.append(made.tidy)


async def _serve_http(web: "WebServer") -> None:
    try:
        await web.run()
    except Exception:
        # Probes fail from now on, and say so to whoever watches; messages are served on.
        log.exception("the HTTP server has failed")


def check_durabilities(endpoints: list[ListenerEndpoint], settings: Settings) -> None:
    """Raises ConfigInvalid: a listener's settings name a durability that no queue of this broker can have."""
    plugin, options = storage_plugin(settings)
    if plugin.accepts_durable_queues(options):
        return
    for endpoint in endpoints:
        named = {} if endpoint.plugin.durabilities is None else endpoint.plugin.durabilities(endpoint.settings)
        for setting, durability in named.items():
            if durability is not Durability.TRANSIENT:
                raise ConfigInvalid(
                    f"the {endpoint.protocol} listener's setting {setting} is {durability.name.lower()}, and the"
                    f" storage provider {settings.storage.provider!r} keeps nothing over a restart: write transient, or"
                    " choose another storage.provider"
                )


def _check_shared(endpoints: list[ListenerEndpoint]) -> None:
    """Raises ConfigInvalid: listeners that share a plug-in have different settings."""
    first: dict[str, ListenerEndpoint] = {}
    for endpoint in endpoints:
        before = first.setdefault(endpoint.protocol, endpoint)
        if endpoint.plugin.starts_once and endpoint.settings != before.settings:
            raise ConfigInvalid(
                f"the {endpoint.protocol} listeners have different settings, and share all that these are about; give "
                f"them the same ones, for example as `protocols.{endpoint.protocol}`"
            )
