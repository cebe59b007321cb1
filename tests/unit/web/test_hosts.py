"""The names that the HTTP port answers to."""

import pytest

from vibemq.auth.addresses import is_loopback
from vibemq.web.hosts import AllowedHosts, HostCheck

OWN = ("localhost", "LOCALHOST:2926", "a.localhost.", "127.0.0.1:2926", "127.8.9.1", "[::1]:2926", "[::1]", "192.0.2.1")
FOREIGN = (
    "evil.example",
    "evil.example:2926",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "xlocalhost",
    "",
    "[",
)


@pytest.mark.parametrize("listener", ["127.0.0.1", "::1", "localhost", "127.0.0.9"])
def test_a_loopback_listener_without_a_token_answers_to_names_of_the_machine(listener: str) -> None:
    hosts = AllowedHosts(listener, None, needs_token=False)
    assert [host for host in OWN if not hosts.allows(host)] == []
    assert [host for host in FOREIGN if hosts.allows(host)] == []


@pytest.mark.parametrize(("listener", "needs_token"), [("127.0.0.1", True), ("0.0.0.0", False), ("::", False)])
def test_with_a_token_or_on_the_network_any_name_will_do(listener: str, needs_token: bool) -> None:
    hosts = AllowedHosts(listener, None, needs_token=needs_token)
    assert all(hosts.allows(host) for host in (*OWN, *FOREIGN))


@pytest.mark.parametrize(
    "host", ["localhost:abc", "localhost:80x", "127.0.0.1:-1", "[::1]x", "[::1]:a", "localhost:123456"]
)
def test_a_port_is_a_number(host: str) -> None:
    for needs_token in (True, False):
        assert not AllowedHosts("127.0.0.1", None, needs_token=needs_token).allows(host)


@pytest.mark.parametrize("needs_token", [True, False])
@pytest.mark.parametrize("listener", ["127.0.0.1", "0.0.0.0", "broker.example"])
def test_names_of_the_settings_are_added_to_the_machine_s_own(listener: str, needs_token: bool) -> None:
    hosts = AllowedHosts(listener, ["MQ.example", "*.mq.example"], needs_token=needs_token)
    for host in (*OWN, listener, "mq.example:80", "a.mq.example", "a.b.mq.example."):
        assert hosts.allows(host), host
    for host in (*FOREIGN, "xmq.example", "mq.example.evil"):
        assert not hosts.allows(host), host


def test_a_star_is_any_name() -> None:
    hosts = AllowedHosts("127.0.0.1", ["*"], needs_token=False)
    assert all(hosts.allows(host) for host in FOREIGN)


def test_names_of_a_path_are_those_of_what_is_below_it() -> None:
    own, others = (AllowedHosts("127.0.0.1", names, needs_token=False) for names in (None, ("*",)))
    check = HostCheck(None, own, {"/api": others})  # type: ignore[arg-type]
    of = {path: check._hosts_of({"path": path}) for path in ("/api", "/api/v1", "/api-events", "/apis/x")}
    assert [path for path in of if of[path] is others] == ["/api", "/api/v1"]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("Localhost.", True),
        ("0.0.0.0", False),
        ("::", False),
        ("broker.example", False),
        ("localhost.example", False),
    ],
)
def test_which_hosts_are_this_machine_only(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
