"""The bit-rot method finds what its ground rules call undetected, once the product stops looking."""

import os
import signal
from pathlib import Path
from random import Random

import google_crc32c
import pytest

from tests.proof import rot_child
from tests.proof.bit_rot import journal_rots, pairs_of
from tests.proof.forked import ChildDied
from tests.proof.rot_child import map_in_forks
from tests.proof.rot_files import FileCounts, RottenFiles
from tests.proof.rot_journal import Counts, Rot, RottenJournal, cuts, damaged, flips, zeroes
from tests.proof.rot_store import Sown, sow
from tests.proof.rot_values import RottenValues, ValueRot, value_flips
from vibemq.storage.kvstore import keys
from vibemq.storage.kvstore.integrity import CountedKV, TableSums, TalliedKV, write_tally
from vibemq.storage.kvstore.store import load_state
from vibemq.storage.lmdb import check, prepare
from vibemq.storage.lmdb.journal.recovery import Chain
from vibemq.testing.memory_kv import MemoryKV

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sown(tmp_path_factory: pytest.TempPathFactory) -> Sown:
    return sow(tmp_path_factory.mktemp("rot") / "data", "lmdb", 3, idle=True)


@pytest.fixture
def journal(sown: Sown) -> RottenJournal:
    kv = MemoryKV()
    kv.fill(pairs_of(sown))
    return RottenJournal(sown.data_dir / "journal", load_state(kv).lsn)


def test_damage_is_what_it_says() -> None:
    assert damaged(b"abc", Rot("flip", "f", 1, 1, 0)) == b"acc"
    assert damaged(b"abc", Rot("zeroes", "f", 1, 2)) == b"a\0\0"
    assert damaged(b"abc", Rot("cut", "f", 1, 2)) == b"a"
    assert len(list(flips("f", 10, 1))) == 80
    assert [rot.size for rot in zeroes("f", 10, 4)] == [4, 4, 2]
    assert [rot.offset for rot in cuts("f", 10, 4)] == [0, 4, 8]
    assert len(list(journal_rots("f", 50_000, 1_000, Random(1)))) == pytest.approx(1_000, rel=0.2)


def test_every_flip_in_an_idle_journal_is_refused_and_the_rest_is_saved(journal: RottenJournal) -> None:
    counts = Counts()
    for path, size in journal.sizes.items():
        for rot in flips(path, size, 2_001):
            journal.check(rot, counts)
    assert counts.findings == []
    assert counts.tail == 0
    assert counts.repaired == counts.detected > 0


def test_damage_that_recovery_takes_for_a_tail_is_a_finding(
    journal: RottenJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Chain, "is_damaged", property(lambda chain: False))
    counts = Counts()
    for path, size in journal.sizes.items():
        for rot in flips(path, size, 9_001):
            journal.check(rot, counts)
    assert any("were cut although" in finding for finding in counts.findings)


def without_checksums(pairs: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The same store, every checksum in it 0."""
    plain = MemoryKV()
    write_tally(plain, TableSums())
    kv = TalliedKV(plain)
    for key, value in pairs.items():
        if key != keys.TALLY:
            blank = value[:1] + bytes(4) + value[5:] if value else value
            kv.put(key, blank[:25] + bytes(4) + blank[29:] if key[:1] == keys.BLOCK_INFO else blank)
    kv.save()
    return dict(plain.scan(b"", b"\xff"))


def test_values_without_their_checksum_are_a_finding(sown: Sown, monkeypatch: pytest.MonkeyPatch) -> None:
    rotten, sound, blind = RottenValues(pairs_of(sown)), Counts(), Counts()
    some: list[ValueRot] = list(value_flips(rotten.pairs, 30_011))
    for rot in some:
        rotten.check(rot, sound)
    assert sound.findings == []
    assert sound.detected == len(some)
    monkeypatch.setattr(google_crc32c, "extend", lambda crc, data: 0)
    unchecked = RottenValues(without_checksums(rotten.pairs))
    for rot in some:
        unchecked.check(rot, blind)
    assert blind.findings


def test_files_are_opened_where_they_can_do_no_harm(sown: Sown, tmp_path: Path) -> None:
    counts = FileCounts()
    rotten = RottenFiles(sown, "lmdb", "store/data.mdb", tmp_path)
    rots = [Rot("cut", "f", rotten.size // 2, rotten.size), *flips("f", rotten.size, rotten.size)]
    assert len(list(rotten.check(rots, counts, repair_every=3))) == counts.cases == len(rots)
    assert counts.findings == []
    assert counts.refused > 0
    assert counts.repaired > 0


def test_flips_of_structure_are_found(sown: Sown, tmp_path: Path) -> None:
    counts = structure_flips(sown, tmp_path)
    assert counts.findings == []
    assert counts.refused + counts.named > counts.cases // 2


@pytest.mark.long(covered_by="tests/unit/proof/test_bit_rot.py::test_flips_of_structure_are_found")
def test_flips_of_structure_that_nobody_looks_for_are_findings(
    sown: Sown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rot_child, "ALARM_S", 2)
    monkeypatch.setattr(prepare, "check_pages", lambda path: True)
    monkeypatch.setattr(check, "check_pages", lambda path, transaction: True)
    monkeypatch.setattr(CountedKV, "differences", lambda counted, tables: [])
    assert structure_flips(sown, tmp_path).findings


def structure_flips(sown: Sown, work: Path) -> FileCounts:
    counts = FileCounts()
    rotten = RottenFiles(sown, "lmdb", "store/data.mdb", work)
    bits = [Rot("flip", "f", byte, 1, bit) for byte in rotten.structure for bit in range(8)]
    list(rotten.check(Random(4).sample(bits, 120), counts, repair_every=100))
    return counts


def test_a_child_that_dies_costs_one_answer() -> None:
    def work(item: int) -> int:
        if item == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return 10 // (item - 5)

    answers = list(map_in_forks(work, range(8), per_child=4))
    assert [answer for answer in answers if isinstance(answer, int)] == [-2, -3, -4, -10, 10, 5]
    assert isinstance(answers[3], ChildDied)
    assert answers[3].code == -signal.SIGKILL
    assert "ZeroDivisionError" in str(answers[5])
