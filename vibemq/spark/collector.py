"""Spark collects garbage after every task of a Python worker, and so walks all that was ever imported there: about
40 ms of processor with pyspark, pandas and pyarrow, as much as a task of 16 MiB needs for everything else. Planning a
batch and committing it are such tasks, too.
"""

import gc
import sys
from types import ModuleType

_DONE = "_vibemq_spark_relieved"
"""In `sys.modules`: the globals of code that was shipped with the plan are new for each task."""


def relieve() -> None:
    """Take what a Python worker of Spark holds when its first task is done, or nearly, out of its collections, once.

    Nothing but modules is there to stay; the rest is freed by its reference counts as ever. In any other process it
    does nothing.
    """
    if _is_worker() and _DONE not in sys.modules:
        sys.modules[_DONE] = ModuleType(_DONE)
        # First, or garbage would be kept with the rest.
        gc.collect()
        gc.freeze()


def _is_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name in ("pyspark.daemon", "pyspark.worker")
