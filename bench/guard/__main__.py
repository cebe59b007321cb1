"""Print what the hot path costs now, beside its budgets, and where the instructions go."""

from bench.common.report import table
from bench.guard.budgets import BUDGETS
from bench.guard.check import counted, reference_loops
from bench.guard.hot_path import scenarios
from bench.guard.lone_messages import lone_scenarios
from bench.guard.single_messages import single_scenarios

SHOWN = 3


def main() -> None:
    rows, hottest = [], []
    for name, make in (scenarios() | lone_scenarios() | single_scenarios()).items():
        cost, loops, budget = counted(make), reference_loops(make), BUDGETS.get(name)
        allowed = [f"{budget.calls}", f"{budget.instructions}", f"{budget.reference_loops}"] if budget else ["-"] * 3
        figures = [f"{cost.calls:.2f}", f"{cost.instructions:.1f}", f"{loops:.2f}"]
        rows.append([name, *(cell for pair in zip(figures, allowed, strict=True) for cell in pair)])
        hottest.append((name, cost.hottest[:SHOWN]))
    print("Per message; each figure with the budget beside it\n")
    print(table(["stretch", "calls", "≤", "instructions", "≤", "reference loops", "≤"], rows))
    for name, functions in hottest:
        print(f"\n{name}")
        for function, number in functions:
            print(f"  {number:8.1f}  {function.rpartition('vibemq/')[2]}")


if __name__ == "__main__":
    main()
