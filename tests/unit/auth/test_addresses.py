"""Which addresses count as one peer."""

from vibemq.auth.addresses import network_of


def test_loopback_is_exempt_and_a_v6_network_counts_as_one_peer() -> None:
    assert network_of("127.0.0.1") is None
    assert network_of("::1") is None
    assert network_of("::ffff:127.0.0.1") is None
    assert network_of("local") is None
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("fe80::1%eth0") == "fe80::"
