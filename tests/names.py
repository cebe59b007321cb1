"""Names for what one test makes."""

import hashlib

import pytest

LENGTH_MAX = 200
"""Below the 256 of a queue name, so that a test can add to it."""


def queue_named_after(request: pytest.FixtureRequest) -> str:
    """A queue name that no other test has: letters, digits and `-`, of bounded length."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    digest = hashlib.sha256(request.node.name.encode()).hexdigest()[:8]
    return f"q-{name[:LENGTH_MAX]}-{digest}"
