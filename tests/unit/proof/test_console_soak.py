"""What the soak of the console says of the turns of a loop."""

from collections import Counter

from tests.proof.console_soak import turn_ms


def test_of_a_thousand_turns_one_may_be_longer() -> None:
    turns = Counter({0: 900, 1: 99, 7: 1})
    assert [turn_ms(turns, share) for share in (0.5, 0.9, 0.99, 0.999, 1.0)] == [0, 0, 1, 1, 7]
    assert turn_ms(Counter(), 0.999) == 0
