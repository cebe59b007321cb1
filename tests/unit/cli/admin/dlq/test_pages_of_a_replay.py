"""A replay moves what it set out to move, at the rate asked for, once, through any interruption."""

import errno
import pwd
from pathlib import Path
from typing import Any

import pytest

from vibemq.cli.admin.dlq import pages
from vibemq.cli.admin.dlq.pages import Replay
from vibemq.cli.admin.dlq.replay_plan import PlanFile, ReplayPlan
from vibemq.errors import MessageNotFound, NotConnected, UnknownCommand

pytestmark = pytest.mark.anyio


class FakeDlq:
    """A DLQ that answers as the admin verbs do (docs/spec/native.md)."""

    def __init__(self, count: int, *, page_max: int = 1000) -> None:
        self.letters: dict[int, dict[str, Any]] = {
            n: {"dead_id": n, "dead_at": 1_000 + n, "queue": "q" if n % 2 else "r"} for n in range(1, count + 1)
        }
        self.replayed: list[int] = []
        self.batches: list[list[int]] = []
        self.calls = 0
        self.fail_after: int | None = None
        self._page_max = page_max

    async def admin(self, verb: str, **arguments: Any) -> Any:
        self.calls += 1
        if verb == "dlq.show":
            if arguments["dead_id"] not in self.letters:
                raise MessageNotFound("gone")
            return {**self.letters[arguments["dead_id"]], "payload": "x"}
        fits = [letter for letter in self.letters.values() if self._fits(letter, arguments)]
        page = fits[: min(arguments["limit"], self._page_max)]
        done, last = len(page) == len(fits), page[-1]["dead_id"] if page else arguments.get("after", 0)
        if verb == "dlq.list":
            return {"letters": page, "next": None if done else last}
        if verb not in ("dlq.replay", "dlq.purge"):
            raise UnknownCommand(verb)
        if self.fail_after is not None and len(self.replayed) >= self.fail_after:
            raise NotConnected("gone")
        taken = [letter["dead_id"] for letter in page]
        for dead_id in taken:
            del self.letters[dead_id]
        self.replayed += taken
        self.batches.append(taken)
        return {"count": len(page), "next": last, "done": done}

    @staticmethod
    def _fits(letter: dict[str, Any], arguments: dict[str, Any]) -> bool:
        return (
            letter["dead_id"] > arguments.get("after", 0)
            and (arguments.get("queue") in (None, letter["queue"]))
            and ("ids" not in arguments or letter["dead_id"] in arguments["ids"])
        )


def quiet(done: int, total: int) -> None:
    """Nobody watches."""


async def test_a_plan_names_the_oldest_letters_that_fit() -> None:
    dlq = FakeDlq(10)
    plan = await pages.chosen(dlq, {"queue": "q"}, 3)
    assert plan.ids() == [1, 3, 5]
    assert plan.newest_dead_at == 1_005


async def test_a_plan_without_a_limit_reads_every_page() -> None:
    dlq = FakeDlq(25, page_max=7)
    assert (await pages.chosen(dlq, {}, None)).runs == [(1, 25)]


async def test_a_plan_of_nothing() -> None:
    assert (await pages.chosen(FakeDlq(0), {}, 50)).count == 0


async def test_all_of_a_plan_is_replayed_in_few_batches() -> None:
    dlq = FakeDlq(2_500)
    plan = await pages.chosen(dlq, {}, None)
    assert await Replay(dlq, plan).run(quiet) == 2_500
    assert [len(batch) for batch in dlq.batches] == [1000, 1000, 500]


async def test_a_broker_that_does_less_than_asked_is_asked_again() -> None:
    dlq = FakeDlq(100, page_max=7)
    plan = await pages.chosen(dlq, {}, None)
    assert await Replay(dlq, plan).run(quiet) == 100
    assert dlq.replayed == list(range(1, 101))


async def test_letters_that_died_after_the_plan_was_made_stay() -> None:
    dlq = FakeDlq(10)
    plan = await pages.chosen(dlq, {}, None)
    dlq.letters[11] = {"dead_id": 11, "dead_at": 5_000, "queue": "q"}
    await Replay(dlq, plan).run(quiet)
    assert list(dlq.letters) == [11]


async def test_letters_that_others_took_are_skipped() -> None:
    dlq = FakeDlq(10)
    plan = await pages.chosen(dlq, {}, None)
    del dlq.letters[3], dlq.letters[10]
    assert await Replay(dlq, plan).run(quiet) == 8


async def test_a_rate_means_small_batches_and_waiting() -> None:
    now, waits = 0.0, []

    async def sleep(seconds: float) -> None:
        nonlocal now
        waits.append(round(seconds, 3))
        now += seconds

    dlq = FakeDlq(100)
    plan = await pages.chosen(dlq, {}, 50)
    await Replay(dlq, plan, rate=100, sleep=sleep, clock=lambda: now).run(quiet)
    assert [len(batch) for batch in dlq.batches] == [25, 25]
    assert waits == [0.25]


async def test_a_slow_rate_is_one_at_a_time() -> None:
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    dlq = FakeDlq(4)
    await Replay(dlq, ReplayPlan([(1, 4)], 9_999), rate=0.5, sleep=sleep, clock=lambda: now).run(quiet)
    assert dlq.batches == [[1], [2], [3], [4]]
    assert now == 6.0


async def test_letters_are_made_whole_in_order_and_without_those_that_left() -> None:
    dlq = FakeDlq(100)
    page = list(dlq.letters.values())
    del dlq.letters[50]
    whole = await pages.with_payloads(dlq, page)
    assert [letter["dead_id"] for letter in whole] == [n for n in range(1, 101) if n != 50]
    assert all(letter["payload"] == "x" for letter in whole)


def test_a_plan_file_belongs_to_one_broker_and_one_command(tmp_path: Path) -> None:
    paths = {
        PlanFile.of(broker, arguments, tmp_path).path
        for broker in ("a:1", "b:1")
        for arguments in ({"limit": 50}, {"limit": 51})
    }
    assert len(paths) == 4


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"version": 2, "runs": [], "newest_dead_at": 0}', b'{"version": 1}']
)
def test_a_file_that_is_no_plan_is_none(tmp_path: Path, content: bytes) -> None:
    file = PlanFile(tmp_path / "x.json")
    file.path.write_bytes(content)
    assert file.load() is None


def test_a_plan_is_forgotten(tmp_path: Path) -> None:
    file = PlanFile(tmp_path / "deep" / "x.json")
    file.save(ReplayPlan([(1, 2)], 3))
    assert file.load() == ReplayPlan([(1, 2)], 3)
    file.forget()
    file.forget()
    assert file.load() is None


def test_a_plan_that_may_not_be_looked_at_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert PlanFile(tmp_path / "x.json").load() is None


def test_a_home_that_is_no_folder_has_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of system users."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/dev/null")
    assert PlanFile.of("a:1", {}).load() is None


def test_a_user_without_a_home_has_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_entry(number: int) -> object:
        raise KeyError(number)

    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    assert PlanFile.of("a:1", {}).load() is None
