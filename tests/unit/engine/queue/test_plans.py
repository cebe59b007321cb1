"""Plans by number: very many are forgotten at once, and let go of a few at a time."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.test_scaling import cost
from vibemq.engine.queue import plans as plans_module
from vibemq.engine.queue.plans import Plans, size_of
from vibemq.model.records import Plan


def made(count: int) -> Plans:
    plans = Plans()
    for number in range(1, count + 1):
        plans.add(number, Plan(f"tag {number}", f"end {number}"))
    return plans


def test_to_forget_very_many_costs_no_more_than_to_forget_some() -> None:
    def dearest(count: int) -> int:
        plans = made(count)
        costs = [cost(lambda: plans.forget(count))]
        while not plans.is_swept:
            costs.append(cost(lambda: plans.sweep(100)))
        assert (len(plans), plans.newest()) == (1, Plan(f"tag {count}", f"end {count}"))
        return max(costs)

    assert dearest(4_000) <= 1.2 * dearest(1_000)


actions = st.lists(st.tuples(st.sampled_from(["add", "forget", "all", "sweep"]), st.integers(0, 40)), max_size=60)


@given(st.integers(1, 50), actions, st.integers(0, 3))
def test_what_is_forgotten_is_not_found_and_all_else_is(start: int, done: list[tuple[str, int]], beside: int) -> None:
    plans, model = Plans(), dict[int, Plan]()
    before, plans_module._SWEPT_TOGETHER = plans_module._SWEPT_TOGETHER, beside
    try:
        number = start
        for action, value in done:
            if action == "add":
                # Tags come again.
                model[number] = Plan(f"tag {value}", f"end {number}")
                plans.add(number, model[number])
                number += 1
            elif action == "sweep":
                plans.sweep(value)
            else:
                newest = action == "all"
                below = min(value, number - (not newest))
                gone = [known for known in model if known < below]
                for known in gone:
                    del model[known]
                assert plans.forget(value, newest=newest) == (below if gone else 0)
            assert len(plans) == len(model)
            assert [plans.at(known) for known in range(1, number + 1)] == [model.get(n) for n in range(1, number + 1)]
            for tag in {plan.tag for plan in model.values()}:
                assert plans.number_of(tag) == max(known for known, plan in model.items() if plan.tag == tag)
        plans.sweep(1_000)
        assert plans.is_swept
        assert plans._bytes == sum(map(size_of, model.values()))
        assert plans._by_number == model
    finally:
        plans_module._SWEPT_TOGETHER = before
