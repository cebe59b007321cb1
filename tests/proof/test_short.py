"""The smallest form of every method of the proof; the long ones are `make crash` and `make torture`."""

from pathlib import Path

import pytest

from tests.proof.contract import Budget
from tests.proof.methods import MODULES, find

SEED = 1
PATIENCE = 5
"""The cases of a short form decide what it does, not the time, however slow the machine is."""


@pytest.mark.slow
@pytest.mark.long_where(name=["slow-peers", "idle"])
@pytest.mark.parametrize("name", MODULES)
def test_nothing_is_found(name: str, tmp_path: Path) -> None:
    method = find(name)
    why = method.missing()
    if why is not None:
        pytest.skip(why)
    result = method.run(Budget(method.short.cases, PATIENCE * method.short.seconds, SEED, tmp_path))
    if not method.alone:  # what measures speed judges nothing beside other tests
        assert result.findings == []
    assert (result.lost, result.resurrected, result.undetected) == (0, 0, 0)
    assert result.cases > 0
