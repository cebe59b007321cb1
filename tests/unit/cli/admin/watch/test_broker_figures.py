"""Figures of `vibemq-admin broker`."""

import pytest

from vibemq.cli.admin.watch.broker import died_text, figure_text


@pytest.mark.parametrize(
    ("name", "figure", "text"),
    [
        ("memory_bytes", 68_972_500, "65.8 MiB"),
        ("ready", 1_234_567, "1,234,567"),
        ("ready", 100, "100"),
        ("in", 0.25, "0.25"),
        ("confirm_p99_ms", 3.0, "3"),
        ("in", None, "–"),
    ],
)
def test_figures_are_never_in_powers_of_ten(name: str, figure: float | None, text: str) -> None:
    assert figure_text(name, figure) == text


def test_new_dead_letters_of_one_queue_are_told_apart() -> None:
    assert died_text({"queue": "q", "fingerprint": "00ff", "count": 2}) == "new dead letters in q, fingerprint 00ff"
    assert died_text({"queue": "q", "fingerprint": None, "count": 2}) == "new dead letters in q"
