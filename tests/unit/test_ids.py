"""The ids of tests are short: every worker makes all of them and sends them to the process that hands out the tests."""

import pytest


@pytest.mark.parametrize("value", [bytes(1 << 20), "\n" * 100_000, "é" * 500, "é" * 501])
def test_a_long_parameter_is_named_by_its_beginning(request: pytest.FixtureRequest, value: object) -> None:
    assert len(request.node.nodeid) < 5_000
    assert "\n" not in request.node.nodeid


def test_no_id_is_long(request: pytest.FixtureRequest) -> None:
    assert [item.nodeid[:200] for item in request.session.items if len(item.nodeid) > 5_000] == []
