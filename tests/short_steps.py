"""Steps of the engine so short that what tests ask for takes many."""

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import vibemq.engine
from vibemq.engine import Engine


@contextmanager
def steps_of(units: int) -> Iterator[None]:
    """Steps end after about so many units of work, wherever the engine looks at that."""
    with ExitStack() as stack:
        for module in pkgutil.walk_packages(vibemq.engine.__path__, "vibemq.engine."):
            if hasattr(found := importlib.import_module(module.name), "STEP_UNITS"):
                stack.enter_context(patch.object(found, "STEP_UNITS", units))
        stack.enter_context(patch.object(Engine._finish, "__defaults__", (units,)))
        yield
