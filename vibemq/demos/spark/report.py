"""The end of the demo: what was killed, the books, and whether they balance."""

from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from vibemq.cli.output import table
from vibemq.demos.spark.books import BookAccount


def kills(account: BookAccount) -> RenderableType:
    rows = [
        (kill.what, kill.seen, kill.published, kill.processed, f"{kill.back_s:.1f} s", f"{kill.progress_s:.1f} s")
        for kill in account.result.kills
    ]
    columns = ("kill -9 of", "when this was seen", "published", "processed", "back after", "progress after")
    return table(columns, rows, title="Kills")


def carriers(account: BookAccount) -> RenderableType:
    found = account.books.results.hours
    departed: Counter[str] = Counter()
    minutes: Counter[str] = Counter()
    hours: Counter[str] = Counter()
    unequal: Counter[str] = Counter()
    for key in account.direct.keys() | found.keys():
        hour = found.get(key)
        unequal[key[0]] += hour != account.direct.get(key)
        hours[key[0]] += 1
        if hour is not None:
            departed[key[0]] += hour.departed
            minutes[key[0]] += hour.departure_minutes
    rows = [
        (name, count, hours[name], f"{minutes[name] / count:.2f}", "DIFFERS" if unequal[name] else "equal")
        for name, count in departed.most_common()
    ]
    columns = ("carrier", "departed", "hours", "mean departure delay, min", "every hour, computed directly")
    return table(columns, rows, title="Hours, as Spark computed them")


def books(account: BookAccount) -> RenderableType:
    books, result = account.books, account.result
    rows: list[tuple[str, object]] = [
        ("published and confirmed", result.published),
        ("processed: counted into the hour of their carrier", account.counted),
        *[(f"processed: dead letters, {reason}", account.rejected) for reason in sorted(books.dead_by_reason)],
        ("left in the queue", books.left),
        ("lost", account.lost),
        ("stored twice", books.stored_twice),
        ("counted twice", account.counted_twice),
        ("rejected twice", account.rejected_twice),
        (f"results published, by {books.results.versions:,} batches", books.results.messages),
        ("results published twice", books.results.duplicates),
        (f"hours of carriers, of {len(account.direct):,}, that differ", account.different),
    ]
    return table(("flights", "count"), rows, title="The books")


def verdict(account: BookAccount, seconds: float) -> RenderableType:
    problems = account.findings()
    if problems:
        return Group(*(Text(f"✗ {problem}", style="bold red") for problem in problems))
    sentence = f"Everything balances: {account.result.rows:,} flights, lost 0, duplicates 0; {seconds:.0f} s."
    return Text(sentence, style="bold green")


def as_object(account: BookAccount, seconds: float) -> dict[str, Any]:
    books, result = account.books, account.result
    return {
        "rows": result.rows,
        "published": result.published,
        "counted": account.counted,
        "rejected": account.rejected,
        "left_in_queue": books.left,
        "lost": account.lost,
        "stored_twice": books.stored_twice,
        "counted_twice": account.counted_twice,
        "rejected_twice": account.rejected_twice,
        "results": books.results.messages,
        "results_twice": books.results.duplicates,
        "batches": books.results.versions,
        "hours": len(account.direct),
        "hours_different": account.different,
        "kills": [
            {"of": kill.what, "seen": kill.seen, "published": kill.published, "processed": kill.processed}
            | {"back_seconds": round(kill.back_s, 2), "progress_seconds": round(kill.progress_s, 2)}
            for kill in result.kills
        ],
        "start_seconds": round(result.start_s, 2),
        "flow_seconds": round(result.flow_s, 2),
        "seconds": round(seconds, 2),
        "problems": account.findings(),
        "ok": not account.findings(),
    }
