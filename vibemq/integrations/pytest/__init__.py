"""Fixtures for pytest; `plugin` is what pytest loads. See docs/howto/pytest.md."""
