"""Records and blocks survive their encoding; garbage raises StorageDamaged and nothing else."""

from itertools import pairwise
from random import Random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vibemq.errors import StorageDamaged
from vibemq.model.access import ResourceKind, Rule
from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.jobs.job import JobEvent, JobKind, JobPlan, JobState, StoredJob
from vibemq.model.jobs.job_records import (
    JobAdvanced,
    JobChanged,
    JobLettersDied,
    JobMadeSettled,
    JobsForgotten,
    JobStarted,
)
from vibemq.model.options import DeliveryMode, Durability, Overflow, QueueOptions
from vibemq.model.records import (
    Attempts,
    CursorChanged,
    CursorFacts,
    DeadFacts,
    DeadLettered,
    DeadRemoved,
    Dropped,
    GroupCreated,
    GroupDeleted,
    GroupFiltered,
    GroupMoved,
    GroupOwned,
    GroupRenamed,
    HandedOut,
    MessagesAdded,
    Plan,
    PlanMade,
    PlansForgotten,
    QueueChanged,
    QueueCreated,
    QueueDeleted,
    Reason,
    Returned,
    Settled,
    StageMoved,
    TokenRemoved,
    TokenStored,
    TransactionDecided,
    TransactionsForgotten,
    UserRemoved,
    UserStored,
)
from vibemq.model.rows import Rows
from vibemq.model.runs import Run, runs_of
from vibemq.model.stored import Slice
from vibemq.storage.kvstore.blocks import BLOCK_BYTES, clip, decode_block, encode_block, limit, pack, pick_rows
from vibemq.storage.kvstore.encoding import GARBAGE, decode_batch, dump_cursor, encode_batch, load_cursor
from vibemq.storage.kvstore.values import pack_plan, unpack_plan

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
text = st.text(max_size=20)
options = st.builds(
    QueueOptions,
    mode=st.sampled_from(DeliveryMode),
    durability=st.sampled_from(Durability),
    overflow=st.sampled_from([Overflow.DROP_NEWEST, Overflow.BLOCK_PUBLISHER]),
    max_messages=u32,
    message_ttl_ms=st.none() | u32,
    dead_letter_name=st.none() | text,
)
rows = st.lists(st.binary(max_size=40), max_size=20).map(Rows.of)
runs = st.lists(st.tuples(u64, u64).map(lambda pair: (min(pair), max(pair))), max_size=10)
extra = st.builds(MessageExtra, st.integers(0, 31), u64, u64, st.binary(max_size=30))


@st.composite
def added(draw: st.DrawFn) -> MessagesAdded:
    some = draw(rows)
    indexes = st.integers(0, some.count - 1)
    extras = draw(st.none() | st.dictionaries(indexes, extra, min_size=1, max_size=8)) if some.count else None
    return MessagesAdded(draw(u32), draw(u64), draw(u64), some, extras)


facts = st.builds(DeadFacts, u64, u64, st.sampled_from(Reason), text, u64, u64, u64, u64)
attempts = st.builds(Attempts, u64, u64, u64, u64, u64, text)
cursor_facts = st.builds(
    CursorFacts,
    *(
        u64,
        u64,
        u64,
        u64,
        u64,
        st.booleans(),
        u64,
        text,
        runs.map(tuple),
        runs.map(tuple),
        u64,
        st.booleans(),
        st.booleans(),
    ),
)
access_rules = st.lists(
    st.builds(Rule, st.sampled_from(ResourceKind), text, st.frozensets(text, max_size=3)), max_size=3
).map(tuple)
users = st.builds(StoredUser, text, text, st.booleans(), access_rules, u64, u64)
tokens = st.builds(StoredToken, text, text, st.binary(), st.binary(), text, u64, u64, u64, st.none() | access_rules)
job_events = st.builds(JobEvent, u64, text, text)
rates = st.integers(-1, 2**32)
job_plans = st.builds(
    JobPlan,
    kind=st.sampled_from(JobKind),
    filter=st.dictionaries(text, st.none() | text | u32 | st.lists(u32, max_size=3), max_size=3),
    to=text,
    limit=u32,
    max_ready=rates,
    note=text,
    last_id=u64,
    selected=rates,
    user=text,
    key=text,
)
jobs = st.builds(
    StoredJob,
    job_id=u32,
    plan=job_plans,
    created_at=u64,
    state=st.sampled_from(JobState),
    why=text,
    rate=st.floats(0, 1e6),
    cursor=u64,
    done=u64,
    dead_again=u32,
    gone=u32,
    canary_passed=st.booleans(),
    made=st.lists(st.tuples(u32, u64, u64), max_size=4).map(tuple),
    events=st.lists(job_events, max_size=4).map(tuple),
)
record = st.one_of(
    st.builds(QueueCreated, u32, text, options, u64, text),
    st.builds(QueueChanged, u32, options),
    st.builds(QueueDeleted, u32),
    st.builds(GroupCreated, u32, u32, text, st.booleans(), u64),
    st.builds(GroupRenamed, u32, u32, text, st.booleans()),
    st.builds(GroupDeleted, u32, u32),
    st.builds(GroupMoved, u32, u32, u64, u64),
    added(),
    st.builds(HandedOut, u32, u32, runs),
    st.builds(Returned, u32, u32, st.dictionaries(u64, attempts, max_size=5)),
    st.builds(Settled, u32, u32, runs),
    st.builds(StageMoved, u32, u64, u64, u32, u64, st.integers(1, 2**32 - 1), st.booleans()),
    st.builds(Dropped, u32, runs, st.sampled_from(Reason)),
    st.builds(DeadLettered, u32, u32, st.lists(facts, max_size=5)),
    st.builds(DeadRemoved, st.lists(u64, max_size=5), st.booleans()),
    st.builds(CursorChanged, u32, u32, cursor_facts),
    st.builds(TransactionDecided, text, u64, u64, st.lists(u32, max_size=4), text, text),
    st.builds(GroupOwned, u32, u32, text),
    st.builds(GroupFiltered, u32, u32, text),
    st.builds(PlanMade, u32, u32, u64, st.builds(Plan, text, text, u64, text, u64, u64, u64, text, u64, u64, u64)),
    st.builds(PlansForgotten, u32, u32, u64),
    st.builds(TransactionsForgotten, st.lists(text, max_size=3)),
    st.builds(UserStored, users),
    st.builds(UserRemoved, text),
    st.builds(TokenStored, tokens),
    st.builds(TokenRemoved, text),
    st.builds(JobStarted, jobs),
    st.builds(JobAdvanced, u32, *[u64] * 9),
    st.builds(
        JobChanged, u32, u64, job_events, st.none() | st.sampled_from(JobState), text, rates.map(float), st.booleans()
    ),
    st.builds(JobLettersDied, u32, u32, runs, st.booleans()),
    st.builds(JobMadeSettled, u32, st.lists(st.tuples(u32, u64, u64), max_size=3)),
    st.builds(JobsForgotten, st.lists(u32, max_size=3)),
)


@given(st.lists(record, max_size=6))
def test_a_batch_survives_its_encoding(batch: list[object]) -> None:
    assert decode_batch(b"".join(encode_batch(batch))) == batch  # type: ignore[arg-type]


def test_what_earlier_versions_wrote_of_cursors_and_plans_is_read() -> None:
    """Each version wrote fields behind those of the one before, all of them or none."""
    now = CursorFacts(3, 21, 5, 6, 7, False, 2, "spark", ((25, 26),), ((30, 30),), 11, False, True)
    assert load_cursor(dump_cursor(now)) == now
    assert load_cursor(dump_cursor(now)[:12]) == now._replace(begun=False)
    assert load_cursor(dump_cursor(now)[:10]) == now._replace(begun=False, moved=True, head=0)
    for size in (9, 11, 14):
        with pytest.raises(ValueError, match="expected"):
            load_cursor([*dump_cursor(now), 0][:size])
    plan = Plan("tag", "end", 1, "query", 2, 3, 4, "mark", 5, 6, 7)
    fields = orjson.loads(pack_plan(plan))
    for size in (2, 9, 11):
        assert unpack_plan(orjson.dumps(fields[:size])) == Plan(*fields[:size])
    for size in (1, 3, 10):
        with pytest.raises(ValueError, match="expected"):
            unpack_plan(orjson.dumps(fields[:size]))


@given(st.binary(max_size=200))
def test_garbage_is_damage(data: bytes) -> None:
    try:
        decode_batch(data)
    except StorageDamaged:
        pass


@settings(max_examples=300)
@given(st.lists(record, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_a_changed_batch_is_damage_or_another_batch(batch: list[object], random: Random) -> None:
    data = bytearray(b"".join(encode_batch(batch)))  # type: ignore[arg-type]
    for _ in range(random.randint(1, 4)):
        data[random.randrange(len(data))] = random.randrange(256)
    try:
        again = decode_batch(bytes(data))
    except StorageDamaged:
        return
    # What decodes is well-formed: it can be encoded again.
    assert decode_batch(b"".join(encode_batch(again))) == again


# -- blocks -----------------------------------------------------------------------------------------------------------


@st.composite
def slices(draw: st.DrawFn) -> list[Slice]:
    parts: list[Slice] = []
    following = draw(st.integers(1, 100))
    for _ in range(draw(st.integers(1, 6))):
        first = following + draw(st.sampled_from((0, 0, 1, 7)))
        some = Rows.of(draw(st.lists(st.binary(max_size=30), min_size=1, max_size=8)))
        parts.append(Slice(first, draw(st.sampled_from((5, 6))), some))
        following = first + some.count
    return parts


def contents(parts: list[Slice]) -> dict[int, tuple[bytes, int]]:
    return {p.first_sequence + i: (row, p.published_at) for p in parts for i, row in enumerate(p.rows)}


@given(slices())
def test_a_block_survives_its_encoding(parts: list[Slice]) -> None:
    back = decode_block(b"".join(encode_block(parts)))
    assert contents(back) == contents(parts)
    assert len(back) <= len(parts)


@given(slices(), st.integers(1, 200))
def test_packing_keeps_every_row_and_the_bound(parts: list[Slice], size_max: int) -> None:
    blocks = list(pack(parts, size_max))
    assert contents([part for block in blocks for part in block]) == contents(parts)
    for block in blocks:
        assert sum(p.rows.size for p in block) <= size_max or sum(p.rows.count for p in block) == 1
    assert BLOCK_BYTES == 256 * 1024


@given(slices(), st.sets(st.integers(0, 150), max_size=40))
def test_clipping_keeps_exactly_the_runs(parts: list[Slice], wanted: set[int]) -> None:
    kept: list[Run] = runs_of(wanted)
    found = {s: v for s, v in contents(parts).items() if s in wanted}
    assert contents(clip(parts, kept)) == found
    picked = pick_rows(b"".join(encode_block(parts)), sorted(wanted))
    assert contents(picked) == found
    assert all(part.rows.count == 1 for part in picked)


@given(slices(), st.integers(0, 5_000))
def test_a_limit_yields_the_longest_prefix_that_fits(parts: list[Slice], max_bytes: int) -> None:
    """Each slice counts as a certain size at least, see `Slice.cost`; but for the last one, of which rows are taken."""
    got, everything = contents(list(limit(parts, max_bytes))), contents(parts)
    assert list(got.items()) == list(everything.items())[: len(got)]
    assert sum(len(row) for row, _ in got.values()) <= max_bytes or len(got) == 1
    following = list(everything)[len(got) : len(got) + 1]
    if following:
        whole = sum(part.cost for part in parts if part.last_sequence < following[0])
        cut = [part for part in parts if part.first_sequence < following[0] <= part.last_sequence]
        begun = sum(len(everything[s][0]) for part in cut for s in range(part.first_sequence, following[0]))
        assert whole + begun + len(everything[following[0]][0]) > max_bytes


@given(slices(), st.randoms(use_true_random=False))
def test_a_changed_block_never_breaks_the_decoder(parts: list[Slice], random: Random) -> None:
    data = bytearray(b"".join(encode_block(parts)))
    for _ in range(random.randint(1, 3)):
        data[random.randrange(len(data))] = random.randrange(256)
    try:
        cut = bytes(data[: random.randint(0, len(data))])
        pick_rows(cut, range(0, 150, 7))
    except GARBAGE:
        pass
    try:
        back = decode_block(cut)
    except GARBAGE:
        return
    assert all(a.last_sequence < b.first_sequence for a, b in pairwise(back))


def test_no_block_is_empty() -> None:
    with pytest.raises(GARBAGE):
        decode_block(b"")
