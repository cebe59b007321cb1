"""cursor/1 against a real broker: reading by range, dead letters, transactions; and what a kill leaves of them."""

import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from tests.crash.ledger import BrokerProcess
from tests.integration.conditions import broker_on, running
from tests.integration.cursor_peer import Peer, Refusal, rows_of
from vibemq.auth.passwords import hash_password
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.native.codec.wire import CommandType, decode_body, encode_body

pytestmark = pytest.mark.slow

BATCHES_OF_AN_INSTANT_MAX = 10_000
"""So many are never published, each confirmed, in one millisecond."""


@pytest.fixture(scope="module", params=["lmdb", "sqlite"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp(request.param)
    with running(broker_on(folder / "data", folder, provider=request.param)) as process:
        yield process


@pytest.fixture
def peer(broker: BrokerProcess) -> Iterator[Peer]:
    peer = Peer(broker.port)
    yield peer
    peer.close()


_names = iter(range(1_000_000))


@pytest.fixture
def queue(peer: Peer) -> str:
    name = f"q{next(_names)}"
    peer.admin("queue.create", queue=name, options={"mode": "fan-out-with-ack"})
    return name


def refused(peer: Peer, code: str, verb: str, queue: str, **arguments: object) -> str:
    with pytest.raises(Refusal) as refusal:
        peer.ask(verb, queue, **arguments)
    assert refusal.value.code == code
    return str(refusal.value)


def test_a_range_is_read_as_often_as_wanted_and_acknowledged_once(peer: Peer, queue: str) -> None:
    peer.publish(queue, rows_of(100, headers=(("key", "k"), ("colour", "blau"))))
    joined = peer.ask("group.join", queue, group="etl", owner="test")
    assert (joined["committed"], joined["tail"], joined["epoch"]) == (1, 101, 1)
    for _ in range(2):
        part = peer.ask("group.fetch", queue, group="etl", from_=11, to=21, max_bytes=1 << 20)
        assert part.sequences == list(range(11, 21))
        assert part.values["message_id"] == [b"m%d" % n for n in range(10, 20)]
        assert part.values["body"][0].startswith(b"b10.")
        assert part.values["headers"][0] == {b"key": b"k", b"colour": b"blau"}
        assert part.values["priority"] == [1] * 10
        assert all(at > 1_700_000_000_000 for at in part.values["published_at"])
        assert (part.meta["next"], part.meta["gaps"]) == (21, [])
    assert peer.ask("group.commit", queue, group="etl", epoch=1, sequence=21) == {"committed": 21}
    assert peer.ask("group.offsets", queue, group="etl")["backlog_messages"] == 80
    refused(peer, "OFFSET_GONE", "group.fetch", queue, group="etl", from_=11, to=21)
    refused(peer, "GROUP_FENCED", "group.commit", queue, group="etl", epoch=9, sequence=31)


def test_large_ranges_come_in_pieces_of_a_frame(peer: Peer, queue: str) -> None:
    for first in range(0, 3000, 300):
        peer.publish(queue, rows_of(300, size=2000, first=first))
    peer.ask("group.join", queue, group="etl")
    bodies = peer.read_all(queue, 1, 3001, group="etl")
    assert bodies == [b"b%d".replace(b"%d", str(n).encode()).ljust(2000, b".") for n in range(3000)]


def test_a_reader_may_ask_for_more_than_a_frame_of_its_own_holds(peer: Peer, queue: str) -> None:
    for first in (*range(1000, 3400, 600), *range(9700, 12_100, 600)):
        peer.publish(queue, rows_of(600, size=1000, first=first))
    alike, uneven = {"from_": 1, "to": 2401}, {"from_": 2401, "to": 4801}

    def count(**arguments: object) -> int:
        return len(peer.ask("group.fetch", queue, columns=["sequence"], **arguments).sequences)

    assert 900 < count(compact=True, **alike) < 1100
    for asked in (2 << 20, 1 << 30):
        assert 1900 < count(compact=True, max_bytes=asked, **alike) < 2200
        assert 900 < count(max_bytes=asked, **alike) < 1100, "rows are taken apart"
        assert 900 < count(compact=True, max_bytes=asked, **uneven) < 1100


def test_small_rows_that_are_taken_apart_come_a_thousand_at_a_time(peer: Peer, queue: str) -> None:
    """Each of them costs the event loop something of its own."""
    for first in (1_000, 2_500, 9_500, 11_000):
        peer.publish(queue, rows_of(1_500, size=8, first=first))

    def count(start: int, end: int, *, compact: bool) -> int:
        part = peer.ask("group.fetch", queue, columns=["sequence"], from_=start, to=end, compact=compact)
        return len(part.sequences)

    alike = (1, 3001)
    assert count(*alike, compact=True) == 3_000
    assert count(*alike, compact=False) == 1_000
    assert count(3001, 6001, compact=True) == 1_000


def test_the_largest_message_that_can_be_published_can_be_read(peer: Peer, queue: str) -> None:
    largest = 1_048_576 - 2 - 6 - 100
    row = pack_row("m", b"x" * (largest - 64), ())
    peer.publish(queue, Rows.of([row]))
    peer.publish(queue, rows_of(1))
    part = peer.ask("group.fetch", queue, from_=1, to=3, max_bytes=1 << 20)
    assert len(part.values["body"][0]) == largest - 64
    assert peer.read_all(queue, 1, 3)[1].startswith(b"b0")


def test_without_a_group_everybody_reads_what_is_kept(peer: Peer, queue: str) -> None:
    peer.publish(queue, rows_of(5))
    offsets = peer.ask("group.offsets", queue)
    assert (offsets["head"], offsets["tail"]) == (1, 6)
    assert len(peer.read_all(queue, 1, 6)) == 5
    assert peer.ask("group.list", queue)["groups"][0]["cursor"] is False


def test_only_the_columns_asked_for_come(peer: Peer, queue: str) -> None:
    peer.publish(queue, rows_of(3))
    part = peer.ask("group.fetch", queue, from_=1, to=4, columns=["sequence"])
    assert set(part.values) == {"sequence"}
    refused(peer, "INVALID_OPTIONS", "group.fetch", queue, from_=1, to=4, columns=["colour"])
    refused(peer, "INVALID_PAYLOAD", "group.fetch", queue, from_=1, to=4, compact="yes")


def test_ids_that_are_no_text_are_told_as_text(peer: Peer, queue: str) -> None:
    peer.publish(queue, Rows.of([pack_row(b"\xff\xfe", b"1"), pack_row("é", b"2")]))
    part = peer.ask("group.fetch", queue, from_=1, to=3)
    assert [raw.decode() for raw in part.values["message_id"]] == ["\ufffd\ufffd", "é"]


def test_a_priority_queue_tells_priorities_and_keeps_the_order_of_sequences(peer: Peer, queue: str) -> None:
    peer.admin("queue.create", queue=queue + "p", options={"mode": "priority-based"})
    peer.publish(queue + "p", rows_of(3), {1: {"priority": 3}})
    part = peer.ask("group.fetch", queue + "p", from_=1, to=4)
    assert (part.sequences, part.values["priority"]) == ([1, 2, 3], [1, 3, 1])


def test_a_waiting_reader_is_woken(broker: BrokerProcess, peer: Peer, queue: str) -> None:
    peer.ask("group.join", queue, group="etl")
    other = Peer(broker.port)
    answers = []
    waiting = threading.Thread(
        target=lambda: answers.append(other.ask("group.advance", queue, group="etl", from_=1, wait_ms=30_000))
    )
    waiting.start()
    peer.publish(queue, rows_of(2))
    waiting.join(timeout=60)
    assert (answers[0]["end"], answers[0]["messages"], answers[0]["lost"]) == (3, 2, [])
    other.close()


def test_a_reader_that_waits_in_vain_is_told_so(peer: Peer, queue: str) -> None:
    peer.ask("group.join", queue, group="etl")
    answer = peer.ask("group.advance", queue, group="etl", from_=1, wait_ms=50)
    assert (answer["end"], answer["messages"]) == (1, 0)


def test_positions_by_time(peer: Peer, queue: str) -> None:
    def published_at(sequence: int) -> int:
        fetched = peer.ask("group.fetch", queue, from_=sequence, to=sequence + 1)
        return int(fetched.values["published_at"][0])

    peer.publish(queue, rows_of(3))
    first, start = published_at(1), 1
    for start in range(4, 3 * BATCHES_OF_AN_INSTANT_MAX, 3):
        peer.publish(queue, rows_of(3))
        if published_at(start) > first:
            break
    later = published_at(start)
    assert later > first
    at = [peer.ask("group.offsets", queue, at_ms=ms)["sequence_at"] for ms in (first, first + 1, later, later + 1)]
    assert at == [1, start, start, start + 3]
    assert peer.ask("group.join", queue, group="etl", start=f"time:{first + 1}")["committed"] == start


def test_rejects_reach_the_dead_letter_queue_once_and_go_back(peer: Peer, queue: str) -> None:
    peer.publish(queue, rows_of(6))
    peer.ask("group.join", queue, group="etl")
    bad = [[2, "no amount"], [4, "no date"]]
    assert peer.ask("group.reject", queue, group="etl", rejects=bad) == {"rejected": 2, "already": 0, "acknowledged": 0}
    assert peer.ask("group.reject", queue, group="etl", rejects=bad) == {"rejected": 0, "already": 2, "acknowledged": 0}
    again = peer.ask("group.fetch", queue, group="etl", from_=1, to=7)
    assert again.sequences == [1, 2, 3, 4, 5, 6], "a batch that is read again has the same rows"
    offsets = peer.ask("dead.offsets", queue)
    letters = peer.ask("dead.fetch", queue, from_=offsets["head"], to=offsets["tail"])
    assert [(fact[1], fact[2], fact[3]) for fact in letters.meta["facts"]] == [
        ("etl", "rejected", "no amount"),
        ("etl", "rejected", "no date"),
    ]
    assert letters.sequences == [2, 4]
    ids = [fact[0] for fact in letters.meta["facts"]]
    assert peer.ask("dead.redrive", queue, ids=ids) == {"redriven": 2, "gone": 0}
    assert peer.ask("dead.redrive", queue, ids=ids) == {"redriven": 0, "gone": 2}
    assert peer.ask("group.offsets", queue, group="etl")["tail"] == 9
    gone = peer.ask("group.fetch", queue, group="etl", from_=1, to=9)
    # What has left the DLQ may lie in its block for a while yet; what is not there any more is named.
    named = [sequence for first, last, _ in gone.meta["gaps"] for sequence in range(first, last + 1)]
    assert sorted(gone.sequences + named) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert set(named) <= {2, 4}


def test_what_is_lost_or_quarantined_is_said(peer: Peer, queue: str) -> None:
    peer.publish(queue, rows_of(6))
    peer.ask("group.join", queue, group="etl")
    peer.admin("queue.remove", queue=queue, runs=[[2, 3]])
    assert peer.ask("group.quarantine", queue, group="etl", runs=[[5, 5]]) == {"quarantined": 1}
    part = peer.ask("group.fetch", queue, group="etl", from_=1, to=7)
    assert part.sequences == [1, 4, 6]
    assert part.meta["gaps"] == [[2, 3, "lost"], [5, 5, "quarantined"]]
    assert peer.ask("group.advance", queue, group="etl", from_=1)["lost"] == [[2, 3]]


def test_a_queue_made_anew_is_another_one(peer: Peer, queue: str) -> None:
    old = peer.ask("group.join", queue, group="etl")["incarnation"]
    peer.admin("queue.delete", queue=queue)
    refused(peer, "QUEUE_NOT_FOUND", "group.fetch", queue, group="etl", from_=1, to=2)
    peer.admin("queue.create", queue=queue, options={"mode": "fan-out-with-ack"})
    for verb, arguments in (
        ("group.advance", {"from_": 1}),
        ("group.fetch", {"from_": 1, "to": 2}),
        ("group.offsets", {}),
        ("group.join", {}),
    ):
        refused(peer, "WRONG_INCARNATION", verb, queue, group="etl", incarnation=old, **arguments)


@pytest.mark.parametrize(
    ("verb", "arguments", "code"),
    [
        ("group.join", {}, "INVALID_PAYLOAD"),
        ("group.join", {"group": "g", "start": "yesterday"}, "INVALID_OPTIONS"),
        ("group.join", {"group": "~g"}, "INVALID_OPTIONS"),
        ("group.join", {"group": "g", "hold_ms": -1}, "INVALID_PAYLOAD"),
        ("group.commit", {"group": "nobody", "epoch": 1, "sequence": 1}, "GROUP_NOT_FOUND"),
        ("group.fetch", {"from_": "one", "to": 2}, "INVALID_PAYLOAD"),
        ("group.reject", {"group": "g", "rejects": [[1]]}, "INVALID_PAYLOAD"),
        ("group.quarantine", {"group": "g", "runs": [[2, 1]]}, "INVALID_PAYLOAD"),
        ("group.quarantine", {"group": "g", "runs": [[1, 10**9]]}, "INVALID_OPTIONS"),
        ("group.seek", {"group": "nobody", "start": "latest"}, "GROUP_NOT_FOUND"),
        ("dead.redrive", {"ids": list(range(1, 1003))}, "INVALID_PAYLOAD"),
        ("group.dance", {}, "UNKNOWN_COMMAND"),
    ],
)
def test_bad_requests_are_refused_in_words(
    peer: Peer, queue: str, verb: str, arguments: dict[str, object], code: str
) -> None:
    refused(peer, code, verb, queue, **arguments)
    assert peer.ask("group.offsets", queue)["tail"] == 1, "the connection goes on"


def test_stages_become_visible_together(peer: Peer, queue: str) -> None:
    peer.ask("group.join", queue, group="etl")
    for chunk in range(3):
        rows = rows_of(100, first=100 * chunk)
        assert peer.stage(queue, rows, app="a", version=0, stage="s1", chunk=chunk) == {"staged": 100}
    peer.stage(queue, rows_of(100), app="a", version=0, stage="s1", chunk=1)
    peer.stage(queue, rows_of(5, first=900), app="a", version=0, stage="loser")
    assert peer.ask("group.offsets", queue)["tail"] == 1
    done = peer.ask("transaction.commit", app="a", version=0, stages=["s1"], tag="first")
    assert done == {"committed": True, "duplicate": False, "version": 0, "tag": "first"}
    assert [body.rstrip(b".") for body in peer.read_all(queue, 1, 301)] == [b"b%d" % n for n in range(300)]
    again = peer.ask("transaction.commit", app="a", version=0, stages=["s1"], tag="second")
    assert (again["duplicate"], again["tag"]) == (True, "first")
    assert peer.ask("transaction.last", app="a") == {"version": 0}
    refused(peer, "STAGE_NOT_FOUND", "transaction.commit", "", app="a", version=1, stages=["loser"])
    assert peer.ask("group.offsets", queue)["tail"] == 301


def test_commits_of_many_applications_beside_each_other(broker: BrokerProcess, peer: Peer, queue: str) -> None:
    """Each in the order of its stages and chunks, and once: plain parts, staged batches, and what is behind them."""
    peer.ask("group.join", queue, group="etl")
    failures: list[BaseException] = []

    def commit(app: int) -> None:
        try:
            own = Peer(broker.port)
            for version in range(2):
                for stage in range(20):
                    for chunk in range(3):
                        first = 10_000 * app + 1_000 * version + 40 * stage + 10 * chunk
                        extras = {0: {"ttl_ms": 3_600_000}} if stage % 5 == 4 and chunk == 1 else None
                        about = {"app": f"{queue}.{app}", "version": version, "stage": f"{stage}", "chunk": chunk}
                        own.stage(queue, rows_of(10, first=first), **about, extras=extras)  # type: ignore[arg-type]
                stages = [f"{stage}" for stage in range(20)]
                own.ask("transaction.commit", app=f"{queue}.{app}", version=version, stages=stages)
            own.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=commit, args=(app,)) for app in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    tail = peer.ask("group.offsets", queue)["tail"]
    numbers = [int(body.strip(b"b.")) for body in peer.read_all(queue, 1, tail)]
    assert len(numbers) == 6 * 2 * 20 * 30
    for app in range(6):
        own = [number for number in numbers if number // 10_000 == app]
        assert own == sorted(set(own))
        assert len(own) == 2 * 20 * 30


def test_a_ping_is_answered_before_a_commit_that_came_first(peer: Peer, queue: str) -> None:
    """Clients wait for a long commit as long as there are signs of life."""
    peer.stage(queue, rows_of(100), app="pinged", version=0, stage="s", extras={0: {"priority": 3}})
    wanted = {"app": "pinged", "version": 0, "stages": ["s"]}
    payload = orjson.dumps({"verb": "transaction.commit", "arguments": wanted})
    peer.send(encode_body(CommandType.CURSOR_REQUEST, "commit", "", payload), encode_body(CommandType.PING, "ping"))
    assert decode_body(peer.receive()).type == CommandType.PONG
    assert peer.answer()["committed"]


def test_aborted_stages_are_gone(peer: Peer, queue: str) -> None:
    peer.stage(queue, rows_of(5), app="b", version=4, stage="s1")
    peer.ask("transaction.abort", app="b", version=4, stages=["s1"])
    refused(peer, "STAGE_NOT_FOUND", "transaction.commit", "", app="b", version=4, stages=["s1"])


def test_extras_and_headers_pass_through_a_transaction(peer: Peer, queue: str) -> None:
    peer.publish(queue, rows_of(1), {0: {"dedup_id": "d"}})
    extras = {0: {"dedup_id": "d"}, 1: {"ttl_ms": 3_600_000}}
    peer.stage(queue, rows_of(2, headers=(("k", "v"),)), app="c", version=0, stage="s", extras=extras)
    peer.ask("transaction.commit", app="c", version=0, stages=["s"])
    part = peer.ask("group.fetch", queue, from_=1, to=9)
    assert part.values["message_id"] == [b"m0", b"m1"]
    assert part.values["headers"][1] == {b"k": b"v"}


def test_delayed_messages_that_were_staged_before_a_cursor_do_not_reach_it(peer: Peer, queue: str) -> None:
    """It would read them before they are due. The whole commit is refused; without the cursor it is carried out."""
    extras = {1: {"delay_ms": 3_600_000}}
    peer.stage(queue, rows_of(2), app="delayed", version=0, stage="s", extras=extras)
    peer.ask("group.join", queue, group="etl")
    said = refused(peer, "INVALID_OPTIONS", "transaction.commit", "", app="delayed", version=0, stages=["s"])
    assert "is read by the cursor 'etl'" in said
    assert peer.ask("group.offsets", queue)["tail"] == 1
    peer.ask("group.delete", queue, group="etl")
    assert not peer.ask("transaction.commit", app="delayed", version=0, stages=["s"])["duplicate"]
    said = refused(peer, "INVALID_OPTIONS", "group.join", queue, group="etl")
    assert "would read them before they are due" in said


def test_broken_stages_are_refused(peer: Peer, queue: str) -> None:
    for about in ({"app": "", "version": 0, "stage": "s"}, {"app": "a", "version": -1, "stage": "s"}):
        with pytest.raises(Refusal, match="INVALID_MESSAGE"):
            peer.stage(queue, rows_of(1), **about)  # type: ignore[arg-type]
    with pytest.raises(Refusal, match="row 0 is not a row"):
        peer.stage(queue, Rows.of([b"\0"]), app="a", version=0, stage="s")


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
@pytest.mark.long_where(provider="sqlite")
def test_a_kill_changes_nothing_about_cursors_and_transactions(provider: str, tmp_path: Path) -> None:
    process = broker_on(tmp_path / "data", tmp_path, provider=provider)
    with running(process):
        peer = Peer(process.port)
        peer.admin("queue.create", queue="q", options={"mode": "fan-out-with-ack"})
        peer.publish("q", rows_of(1000))
        peer.ask("group.join", "q", group="etl", hold_ms=3_600_000)
        peer.ask("group.join", "q", group="etl")
        peer.ask("group.commit", "q", group="etl", epoch=2, sequence=301)
        peer.ask("group.reject", "q", group="etl", rejects=[[400, "bad"]])
        peer.stage("q", rows_of(10, first=5000), app="a", version=7, stage="s")
        peer.stage("q", rows_of(10, first=6000), app="b", version=0, stage="s")
        peer.ask("transaction.commit", app="a", version=7, stages=["s"])
        before = peer.ask("group.offsets", "q", group="etl")
        peer.close()
        process.kill()
        process.start()
        peer = Peer(process.port)
        after = peer.ask("group.offsets", "q", group="etl")
        # Bytes and ages are estimated by stretches of messages, and a stored stretch is longer than one in memory.
        estimated = {"backlog_bytes", "oldest_at"}
        assert {k: after[k] for k in after.keys() - estimated} == {k: before[k] for k in before.keys() - estimated}
        assert 0 < after["oldest_at"] <= before["oldest_at"], "an age is never told too late"
        assert len(peer.read_all("q", 1, 1011, group="etl")) == 1010
        assert peer.ask("group.reject", "q", group="etl", rejects=[[400, "bad"], [7, "late"]]) == {
            "rejected": 0,
            "already": 2,
            "acknowledged": 1,
        }
        assert peer.ask("transaction.commit", app="a", version=7, stages=["s"])["duplicate"]
        assert not peer.ask("transaction.commit", app="b", version=0, stages=["s"])["duplicate"]
        assert peer.ask("group.offsets", "q")["tail"] == 1021
        peer.close()


def micro_batches(peer: Peer, queue: str, at: int) -> tuple[list[bytes], int]:
    """What Spark does: plan how far to go, read that range, acknowledge it; until nothing is left."""
    bodies: list[bytes] = []
    epoch = peer.ask("group.join", queue, group="etl")["epoch"]
    while (end := peer.ask("group.advance", queue, group="etl", from_=at, max_messages=1000)["end"]) > at:
        cuts = peer.ask("group.split", queue, group="etl", from_=at, to=end, target_bytes=1 << 14)["cuts"]
        for first, last in pairwise(cuts):
            bodies += peer.read_all(queue, first, last, group="etl")
        peer.ask("group.commit", queue, group="etl", epoch=epoch, sequence=end)
        at = end
    return [body.rstrip(b".") for body in bodies], at


@pytest.mark.parametrize(
    ("durability", "provider"),
    [
        ("weak", "lmdb"),
        ("async", "sqlite"),
        pytest.param("weak", "sqlite", marks=pytest.mark.long),
        pytest.param("async", "lmdb", marks=pytest.mark.long),
    ],
)
def test_a_reader_of_a_queue_that_is_not_flushed_goes_on_after_restarts(
    provider: str, durability: str, tmp_path: Path
) -> None:
    process = broker_on(tmp_path / "data", tmp_path, provider=provider)

    def after_a_restart(peer: Peer) -> Peer:
        peer.close()
        process.stop()
        process.start()
        return Peer(process.port)

    with running(process):
        peer = Peer(process.port)
        options = {"mode": "fan-out-with-ack", "durability": durability}
        peer.admin("queue.create", queue="q", options=options)
        peer.ask("group.join", "q", group="etl")
        at = 1
        for life in range(3):
            peer.publish("q", rows_of(300, first=1000 * life))
            if life == 1:
                # A batch that was planned before the restart and is read again after it.
                end = peer.ask("group.advance", "q", group="etl", from_=at)["end"]
                peer = after_a_restart(peer)
                assert len(peer.read_all("q", at, end, group="etl")) == 300
            bodies, at = micro_batches(peer, "q", at)
            assert bodies == [b"b%d" % n for n in range(1000 * life, 1000 * life + 300)]
            peer = after_a_restart(peer)
        assert micro_batches(peer, "q", at)[0] == []
        peer.close()


def test_a_fetch_beyond_the_tail_skips_nothing_that_is_published_later(peer: Peer, queue: str) -> None:
    peer.publish(queue, rows_of(5))
    for group in ({}, {"group": "etl"}):
        if group:
            peer.ask("group.join", queue, **group)
        part = peer.ask("group.fetch", queue, from_=3, to=1000, **group)
        assert (part.sequences, part.meta["next"], part.meta["gaps"]) == ([3, 4, 5], 6, [])
        part = peer.ask("group.fetch", queue, from_=6, to=1000, **group)
        assert (part.sequences, part.meta["next"], part.meta["gaps"]) == ([], 6, [])
    peer.publish(queue, rows_of(2, first=5))
    assert peer.ask("group.fetch", queue, from_=6, to=1000).values["message_id"] == [b"m5", b"m6"]


def test_a_fetch_of_dead_letters_may_begin_at_zero_and_ends_at_their_tail(peer: Peer, queue: str) -> None:
    peer.publish(queue, rows_of(3))
    peer.ask("group.join", queue, group="etl")
    peer.ask("group.reject", queue, group="etl", rejects=[[2, "bad"]])
    tail = peer.ask("dead.offsets", queue)["tail"]
    part = peer.ask("dead.fetch", queue, from_=0, to=tail + 1000)
    assert (part.sequences, part.meta["next"]) == ([2], tail)
    assert peer.ask("dead.fetch", queue, from_=tail, to=tail + 1000).meta["next"] == tail
    peer.ask("group.reject", queue, group="etl", rejects=[[3, "bad"]])
    assert peer.ask("dead.fetch", queue, from_=tail, to=tail + 1000).sequences == [3]


@pytest.mark.parametrize("verb", ["group.fetch", "dead.fetch", "group.advance", "group.split"])
@pytest.mark.parametrize("start", [0, 1, (1 << 63) - 1])
@pytest.mark.parametrize("end", [0, 1, (1 << 63) - 1])
def test_every_range_that_can_be_asked_for_is_answered(peer: Peer, queue: str, verb: str, start: int, end: int) -> None:
    peer.publish(queue, rows_of(3))
    ends = {} if verb == "group.advance" else {"to": end}
    answer = peer.ask(verb, queue, from_=start, **ends)
    if verb.endswith("fetch"):
        assert start <= answer.meta["next"] <= max(start, 4 if verb == "group.fetch" else 1 << 62)


def test_permission_is_asked_of_the_queue(tmp_path: Path) -> None:
    toml = """
[auth]
superuser = "root"
superuser_password = "root-secret"
[auth.users.reader]
password_hash = "HASH"
[[auth.users.reader.permissions]]
queues = "mine"
actions = ["subscribe"]
"""
    process = broker_on(tmp_path / "data", tmp_path, toml=toml.replace("HASH", hash_password("secret")))
    with running(process):
        root = Peer(process.port, headers={"authUsername": "root", "authPassword": "root-secret"})
        for name in ("mine", "yours"):
            root.admin("queue.create", queue=name)
        peer = Peer(process.port, headers={"authUsername": "reader", "authPassword": "secret"})
        assert peer.ask("group.join", "mine", group="g")["joins"] == 1
        for verb, queue in (("group.offsets", "yours"), ("group.offsets", "missing"), ("dead.fetch", "mine")):
            refused(peer, "NOT_AUTHORIZED", verb, queue, from_=1, to=2)
        with pytest.raises(Refusal, match="NOT_AUTHORIZED"):
            peer.stage("mine", rows_of(1), app="a", version=0, stage="s")
        root.close()
        peer.close()
