"""Settings of all tests.

Hypothesis draws the same examples every time, so that a change is judged by its own merits; `make torture` sets
VIBEMQ_HYPOTHESIS=random and looks for new ones.
"""

import os

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None)
settings.load_profile(os.environ.get("VIBEMQ_HYPOTHESIS", "steady"))
