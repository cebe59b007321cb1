"""Where requests come from, and which names an open broker answers to."""

import pytest
from starlette.datastructures import Headers

from vibemq.web.api.errors import HttpCode, Problem
from vibemq.web.api.guardrails.clients import OpenBrokerRules
from vibemq.web.proxies import Proxies

PROXY = "10.0.0.9"


def forwarded(*hops: str, proto: str = "https") -> Headers:
    raw = [(b"x-forwarded-for", hop.encode()) for hop in hops]
    return Headers(raw=[*raw, (b"x-forwarded-proto", proto.encode())])


def test_nobody_is_believed_without_the_setting() -> None:
    proxies = Proxies([])
    assert proxies.client_of(PROXY, forwarded("1.2.3.4")) == PROXY
    assert not proxies.is_secure("http", PROXY, forwarded("1.2.3.4"))
    assert proxies.is_secure("https", PROXY, Headers())


@pytest.mark.parametrize(
    ("peer", "hops", "client"),
    [
        (PROXY, ("1.2.3.4",), "1.2.3.4"),
        (PROXY, ("6.6.6.6, 1.2.3.4",), "1.2.3.4"),
        (PROXY, ("6.6.6.6", "1.2.3.4, 10.0.0.7"), "1.2.3.4"),
        (PROXY, ("evil\x01", "nonsense"), PROXY),
        (PROXY, (), PROXY),
        ("9.9.9.9", ("1.2.3.4",), "9.9.9.9"),
        (PROXY, ("2001:db8::1",), "2001:db8::1"),
    ],
)
def test_the_nearest_that_is_no_proxy(peer: str, hops: tuple[str, ...], client: str) -> None:
    assert Proxies(["10.0.0.0/24"]).client_of(peer, forwarded(*hops)) == client


def test_only_a_trusted_proxy_says_that_the_browser_speaks_tls() -> None:
    proxies = Proxies([PROXY])
    assert proxies.is_secure("http", PROXY, forwarded("1.2.3.4"))
    assert not proxies.is_secure("http", PROXY, forwarded("1.2.3.4", proto="http"))
    assert not proxies.is_secure("http", "9.9.9.9", forwarded("1.2.3.4"))


def code_of(rules: OpenBrokerRules, *hosts: str) -> str:
    try:
        rules.check(Headers(raw=[(b"host", host.encode()) for host in hosts]))
    except Problem as problem:
        return problem.code
    return ""


@pytest.mark.parametrize("host", ["localhost", "localhost:2926", "127.0.0.1", "[::1]:2926", "127.0.0.1:99"])
def test_names_of_this_machine(host: str) -> None:
    assert code_of(OpenBrokerRules("127.0.0.1", None, allow_unauthenticated=False), host) == ""


@pytest.mark.parametrize(
    "hosts", [("evil.example",), (), ("localhost", "evil.example"), ("",), ("localhost@evil.example",)]
)
def test_other_names_are_refused(hosts: tuple[str, ...]) -> None:
    rules = OpenBrokerRules("127.0.0.1", None, allow_unauthenticated=False)
    assert code_of(rules, *hosts) == HttpCode.UNKNOWN_HOST


def test_beyond_this_machine_an_open_broker_is_closed() -> None:
    closed = OpenBrokerRules("0.0.0.0", None, allow_unauthenticated=False)
    assert code_of(closed, "localhost") == HttpCode.OPEN_BROKER
    opened = OpenBrokerRules("0.0.0.0", ("mq.lan",), allow_unauthenticated=True)
    assert [code_of(opened, host) for host in ("10.1.2.3", "mq.lan", "evil.example")] == [
        "",
        "",
        HttpCode.UNKNOWN_HOST,
    ]
