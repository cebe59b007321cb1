"""Puts the API of one broker together."""

import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial

from starlette.datastructures import Headers

from vibemq.config import Http
from vibemq.web.api.app import HttpApi
from vibemq.web.api.contract import Contract
from vibemq.web.api.credentials import Credentials
from vibemq.web.api.endpoints import ENDPOINTS
from vibemq.web.api.errors import MEANINGS, Problem
from vibemq.web.api.guardrails.clients import OpenBrokerRules
from vibemq.web.api.guardrails.rates import RequestRates
from vibemq.web.api.messages.door import MessageDoor
from vibemq.web.api.services import ApiServices
from vibemq.web.api.sessions import WebSessions
from vibemq.web.api.state import ApiState
from vibemq.web.api.streams.hub import EventHub
from vibemq.web.api.streams.newest import TailedQueues
from vibemq.web.api.streams.stream import OpenStreams
from vibemq.web.proxies import Proxies


@dataclass(frozen=True, slots=True)
class MadeApi:
    app: HttpApi
    state: ApiState
    configure: Callable[[Http], None]
    """Let settings count that a reload has changed."""
    tidy: Callable[[], Awaitable[None]]
    """To be called about once a second."""
    refusal: Callable[[Headers], tuple[int, str] | None]
    """Why the console is as closed as the API, by the rules of an open broker: status and sentence."""
    end_revoked: Callable[[Collection[str]], None]
    """See `WebSessions.end_revoked`."""


def make_api(http: Http, services: ApiServices) -> MadeApi:
    """Raises LookupError for a contract that is not whole."""
    token = _token(http)
    sessions = WebSessions(
        lambda principal: services.accounts.ended(principal, services.now()),
        idle_s=http.session_idle_ms / 1000,
        most_s=http.session_max_ms / 1000,
    )
    state = ApiState(
        services=services,
        sessions=sessions,
        credentials=Credentials(services, sessions, token),
        proxies=Proxies(http.trusted_proxies),
        door=MessageDoor(services, os.urandom(32), os.urandom(8)),
        hub=EventHub(services),
        tailed=TailedQueues(services.messages.tap),
        streams=OpenStreams(services.peers.begin),
        show_bodies=http.show_bodies,
    )
    state.hub.hides = state.hides_bodies
    rates = RequestRates(
        services.monotonic,
        per_second=http.requests_per_second,
        streams_max=http.streams_max,
        refused=services.operations.refused,
    )
    contract = Contract(ENDPOINTS)
    state.description = partial(describe, contract)
    app = HttpApi(contract, state, rates, _rules(http))

    def configure(changed: Http) -> None:
        sessions.idle_s, sessions.most_s = changed.session_idle_ms / 1000, changed.session_max_ms / 1000
        if state.credentials.change_token(_token(changed)) and not services.accounts.enabled:
            sessions.end_every("the token was changed")
        state.proxies = Proxies(changed.trusted_proxies)
        rates.per_second = changed.requests_per_second
        rates.set_streams_max(changed.streams_max)
        app.rules = _rules(changed)
        state.show_bodies = changed.show_bodies

    async def tidy() -> None:
        sessions.tidy(services.now_s)

    def refusal(headers: Headers) -> tuple[int, str] | None:
        try:
            if state.credentials.open:
                app.rules.check(headers)
        except Problem as problem:
            return MEANINGS[problem.code].status, str(problem)
        return None

    return MadeApi(app, state, configure, tidy, refusal, sessions.end_revoked)


def describe(contract: Contract) -> bytes:
    """The description is made when somebody asks for it: few do."""
    from vibemq.web.api.openapi import description_of

    return description_of(contract)


def _token(http: Http) -> str | None:
    return http.token.get_secret_value() if http.token is not None else None


def _rules(http: Http) -> OpenBrokerRules:
    return OpenBrokerRules(http.host, http.allowed_hosts, allow_unauthenticated=http.allow_unauthenticated)
