"""The end of the demo: the books, whether they balance, and the delays."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from vibemq.cli.output import table
from vibemq.demos.flights.delays import Delays
from vibemq.demos.flights.job import CANCELLED_QUEUE, JobResult
from vibemq.demos.flights.ledger import NO_DEPARTURE, Ledger


def findings(ledger: Ledger, result: JobResult, direct: Delays, cancelled: int) -> list[str]:
    """What does not balance; nothing when all does."""
    dead = sum(result.dead_by_reason.values())
    checks = [
        (ledger.lost == 0, f"{ledger.lost:,} flights were confirmed and never delivered"),
        (ledger.refused == 0, f"{ledger.refused:,} flights were refused by the broker"),
        (ledger.published == ledger.rows, f"{ledger.published:,} of {ledger.rows:,} flights were confirmed"),
        (ledger.departed + ledger.cancelled == ledger.rows, f"only {ledger.distinct:,} flights reached a consumer"),
        (result.left_in_queue == 0, f"{result.left_in_queue:,} messages were left unsettled"),
        (dead == cancelled, f"{dead:,} dead letters for {cancelled:,} flights without a departure"),
        (result.replayed == dead, f"{result.replayed:,} of {dead:,} dead letters were replayed"),
        (result.cancelled_ready == cancelled, f"{CANCELLED_QUEUE} holds {result.cancelled_ready:,}, not {cancelled:,}"),
        (result.dead_after_replay == 0, f"{result.dead_after_replay:,} dead letters stayed behind"),
        (ledger.delays == direct, "the delays differ from those computed directly"),
    ]
    return [sentence for holds, sentence in checks if not holds]


def books(ledger: Ledger, result: JobResult) -> RenderableType:
    dead = [(f"dead · {reason}", count) for reason, count in sorted(result.dead_by_reason.items())]
    rows: list[tuple[str, object]] = [
        ("published and confirmed", ledger.published),
        ("settled (acked)", ledger.departed),
        *dead,
        ("left in the queue", result.left_in_queue),
        ("delivered again (duplicates, told by row id)", ledger.duplicates),
        ("stored twice", result.published_twice),
        ("lost", ledger.lost),
    ]
    return table(("flights", "count"), rows, title="The books")


def speeds(ledger: Ledger, result: JobResult) -> RenderableType:
    recovery = result.recovery
    rows = [
        ("published, confirmed on disk", f"{_rate(ledger.published, result.publish_seconds):,.0f}/s"),
        ("consumed and settled", f"{_rate(ledger.distinct, result.consume_seconds):,.0f}/s"),
        ("broker ready, first start", f"{result.start_seconds:.2f} s"),
        ("broker ready again after kill -9", f"{recovery.ready:.2f} s"),
        ("first publish confirmed after kill -9", _after(recovery.first_confirm)),
        ("first delivery after kill -9", _after(recovery.first_delivery)),
        ("whole demo", f"{result.total_seconds:.1f} s"),
    ]
    return table(("speed (the kill and the recovery included)", "figure"), rows, title="Speed")


def delays(ledger: Ledger, direct: Delays) -> RenderableType:
    rows = [
        (
            name,
            carrier.departed,
            f"{carrier.mean_departure_delay:.2f}",
            f"{carrier.mean_arrival_delay:.2f}",
            "equal" if direct.carriers.get(name) == carrier else "DIFFERS",
        )
        for name, carrier in ledger.delays.by_flights()
    ]
    columns = ("carrier", "departed", "mean departure delay, min", "mean arrival delay, min", "computed directly")
    return table(columns, rows, title="Delays, as the consumers computed them")


def closing(result: JobResult, cancelled: int) -> RenderableType:
    rows = [
        (f"dead letters ({NO_DEPARTURE})", sum(result.dead_by_reason.values())),
        (f"replayed into {CANCELLED_QUEUE}", result.replayed),
        (f"waiting in {CANCELLED_QUEUE}", result.cancelled_ready),
        ("left in the DLQ", result.dead_after_replay),
        ("flights without a departure in the data", cancelled),
    ]
    return table(("replay", "count"), rows, title="The dead letters")


def verdict(problems: list[str], ledger: Ledger) -> RenderableType:
    if not problems:
        return Text(f"Everything balances: {ledger.rows:,} flights, lost 0.", style="bold green")
    return Group(*(Text(f"✗ {problem}", style="bold red") for problem in problems))


def as_object(ledger: Ledger, result: JobResult, direct: Delays, problems: list[str]) -> dict[str, Any]:
    recovery = result.recovery
    return {
        "rows": ledger.rows,
        "published": ledger.published,
        "settled": ledger.departed,
        "dead": result.dead_by_reason,
        "duplicates": ledger.duplicates,
        "stored_twice": result.published_twice,
        "left_in_queue": result.left_in_queue,
        "lost": ledger.lost,
        "publish_per_second": round(_rate(ledger.published, result.publish_seconds)),
        "consume_per_second": round(_rate(ledger.distinct, result.consume_seconds)),
        "start_seconds": round(result.start_seconds, 3),
        "recovery": {
            "published_before_kill": recovery.published_before,
            "consumed_before_kill": recovery.consumed_before,
            "ready_seconds": round(recovery.ready, 3),
            "first_confirm_seconds": round(recovery.first_confirm, 3),
            "first_delivery_seconds": round(recovery.first_delivery, 3),
        },
        "replayed": result.replayed,
        "cancelled_waiting": result.cancelled_ready,
        "delays_equal": ledger.delays == direct,
        "delays": {
            name: {
                "departed": carrier.departed,
                "mean_departure_delay": round(carrier.mean_departure_delay, 4),
                "mean_arrival_delay": round(carrier.mean_arrival_delay, 4),
            }
            for name, carrier in ledger.delays.by_flights()
        },
        "seconds": round(result.total_seconds, 2),
        "problems": problems,
        "ok": not problems,
    }


def _after(seconds: float) -> str:
    """A dash when nothing was left to come: a short run may be all published by then."""
    return f"{seconds:.2f} s" if seconds else "–"


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
