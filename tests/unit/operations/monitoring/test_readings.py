"""A picture beside an earlier one: which row of one is which of the other."""

import pytest

from tests.unit.operations.monitoring.pictures import picture, reading


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize(
    "before",
    [
        [1, 2, 3, 4],
        [0, 2, 3, 9],
        [2, 4],
        [],
        # Not as in a broker, and all the same.
        [4, 9, 2, 3],
    ],
)
def test_rows_are_found_by_the_id_of_their_queue(before: list[int], prepared: bool) -> None:
    ids = [1, 2, 4, 7]
    earlier = picture({f"q{number}": {"queue_id": number, "published": number} for number in before})
    now = reading(picture({f"q{number}": {"queue_id": number, "published": 10} for number in ids}), earlier)
    if prepared:
        for _ in now.prepare():
            pass
    found = [now.row_before(row) for row in range(len(ids))]
    assert found == [before.index(number) if number in before else None for number in ids]
    assert [now.moved("published", row) for row in range(len(ids))] == [
        10 - (number if number in before else 0) for number in ids
    ]
