from vibemq.server.access.limits import AddressLimiter, TokenBucket


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(rate=10, burst=10, now=0.0)
    assert [bucket.take(1, 0.0) for _ in range(11)] == [True] * 10 + [False]
    assert not bucket.take(1, 0.05)
    assert bucket.take(1, 0.11)


def test_a_batch_bigger_than_the_burst_is_paid_for_afterwards() -> None:
    bucket = TokenBucket(rate=10, burst=10, now=0.0)
    assert bucket.take(30, 0.0)
    assert not bucket.take(1, 1.9)
    assert bucket.take(1, 2.2)


def test_each_address_has_its_own_limit() -> None:
    limiter = AddressLimiter(60)
    assert [limiter.allows("10.0.0.1", 0.0) for _ in range(61)] == [True] * 60 + [False]
    assert limiter.allows("10.0.0.2", 0.0)
    assert limiter.allows("10.0.0.1", 1.0)


def test_zero_switches_the_limit_off() -> None:
    limiter = AddressLimiter(0)
    assert all(limiter.allows("10.0.0.1", 0.0) for _ in range(1000))
    assert len(limiter) == 0


def test_the_table_forgets_the_least_recently_seen() -> None:
    limiter = AddressLimiter(1, table_max=2)
    for host in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        assert limiter.allows(host, 0.0)
    assert len(limiter) == 2
    assert limiter.allows("10.0.0.1", 0.0), "forgotten, so it begins anew"
    assert not limiter.allows("10.0.0.3", 0.0)
