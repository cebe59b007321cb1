import gc
from collections.abc import Iterator

import pytest

from vibemq.server.collector import collector_at_rest


@pytest.fixture(autouse=True)
def nothing_stays_frozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_is_made_at_the_start_is_never_collected_again() -> None:
    frozen = gc.get_freeze_count()
    with collector_at_rest():
        assert not gc.isenabled()
        made = [[number] for number in range(10_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() - frozen > len(made)


def test_a_failed_start_leaves_the_collector_on() -> None:
    with pytest.raises(ValueError, match="no"), collector_at_rest():
        raise ValueError("no")
    assert gc.isenabled()
