"""What Spark's Python workers need not collect after every task."""

import gc
import sys
from importlib.machinery import ModuleSpec

import pytest

from vibemq.spark import collector


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> ModuleSpec:
    """What this process says that it runs."""
    spec = ModuleSpec("pyspark.daemon", None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec, raising=False)
    monkeypatch.delitem(sys.modules, collector._DONE, raising=False)
    return spec


def test_a_worker_is_relieved_once(main: ModuleSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_freeze_count()
    made = [[number] for number in range(10_000)]
    collector.relieve()
    frozen = gc.get_freeze_count()
    assert frozen - before > 9_000
    made += [[number] for number in range(10_000)]
    collector.relieve()
    assert gc.get_freeze_count() - frozen < 1_000


def test_garbage_is_not_kept(main: ModuleSpec) -> None:
    class Ring:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            gone.append(1)

    gone: list[int] = []
    gc.disable()
    try:
        Ring()
        collector.relieve()
    finally:
        gc.enable()
    assert gone == [1]


def test_a_process_that_is_not_sparks_is_left_alone(main: ModuleSpec) -> None:
    main.name = "pytest"
    made = [[number] for number in range(10_000)]
    before = gc.get_freeze_count()
    collector.relieve()
    assert gc.get_freeze_count() - before < len(made) // 10
