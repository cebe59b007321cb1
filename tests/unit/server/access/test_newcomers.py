from vibemq.server.access.newcomers import Newcomers


def filled(*hosts: str, places: int) -> Newcomers[int]:
    newcomers: Newcomers[int] = Newcomers(places)
    for number, host in enumerate(hosts):
        newcomers.add(number, host, float(number))
    return newcomers


def test_the_address_with_the_most_makes_room_for_one_with_few() -> None:
    newcomers = filled("192.0.2.1", "192.0.2.9", "192.0.2.9", "192.0.2.9", places=4)
    assert newcomers.full
    assert newcomers.who_makes_room("198.51.100.1") == 1
    assert newcomers.who_makes_room("192.0.2.9") is None
    newcomers.remove(1)
    assert not newcomers.full
    assert [number for number, _ in newcomers.oldest_first()] == [0, 2, 3]


def test_addresses_with_one_each_keep_their_places() -> None:
    newcomers = filled("192.0.2.1", "192.0.2.2", places=2)
    assert newcomers.who_makes_room("192.0.2.3") is None


def test_any_number() -> None:
    assert not filled("192.0.2.1", places=0).full
    newcomers = filled("192.0.2.1", places=1)
    newcomers.remove(7)
    newcomers.remove(0)
    assert len(newcomers) == 0
    assert newcomers.who_makes_room("192.0.2.1") is None
