"""The fuzzing harness itself: it repeats itself, finds what it should, counts truthfully, and sees hangs and bombs."""

import resource
import struct
from collections.abc import Hashable
from pathlib import Path

import pytest

from tests.proof import fuzz
from tests.proof.contract import Budget
from tests.proof.fuzz_child import as_json
from tests.proof.fuzz_child import fuzz as run_fuzz
from tests.proof.fuzz_engine import INPUT_BYTES_MAX, SHORT_BYTES_MAX, Broken, Engine, Mutator, Target, execute
from tests.proof.fuzz_targets import TARGETS, corpus


def target(run, errors: tuple[type[BaseException], ...] = (ValueError,), **more) -> Target:
    return Target("planted", "a planted fault", run, errors, lambda: [b"\0\x05hello"], **more)


def sized_text(data: bytes) -> Hashable:
    """Trusts the length in front of it, as bad decoders do."""
    if len(data) < 2:
        raise ValueError("too short")
    (size,) = struct.unpack_from("!H", data)
    text = data[2 : 2 + size]
    return text[size - 1] > 127


def test_the_same_seed_gives_the_same_inputs() -> None:
    first, second, other = Mutator(5, ()), Mutator(5, ()), Mutator(6, ())
    made = [first.mutate(b"hello world", b"other", 100) for _ in range(200)]
    assert made == [second.mutate(b"hello world", b"other", 100) for _ in range(200)]
    assert made != [other.mutate(b"hello world", b"other", 100) for _ in range(200)]
    assert len(set(made)) > 150


def test_inputs_stay_within_their_sizes() -> None:
    mutator = Mutator(1, (b"word",))
    sizes = [len(mutator.mutate(b"x" * 90, b"y" * 90, 100)) for _ in range(8_000)]
    assert sum(size > 100 for size in sizes) < 40
    assert INPUT_BYTES_MAX >= max(sizes) > 10_000


def test_a_length_that_lies_is_found_once_and_repeats() -> None:
    engine = Engine(target(sized_text), [b"\0\x05hello"], seed=3)
    engine.run(5_000)
    assert engine.result.executions == 5_000
    [crash] = engine.result.crashes
    assert "IndexError" in crash.error
    with pytest.raises(IndexError):
        sized_text(crash.data)


def test_documented_errors_are_no_findings_and_new_answers_join_the_pool() -> None:
    engine = Engine(target(sized_text, (ValueError, IndexError)), [b"\0\x05hello"], seed=3)
    engine.run(2_000)
    assert engine.result.crashes == []
    assert engine.result.kinds >= 3
    assert engine.result.fresh


def test_an_input_that_takes_too_long_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.proof.fuzz_engine.CPU_SECONDS_MAX", 0.01)
    with pytest.raises(Broken, match="processor time"):
        execute(target(lambda data: sum(range(2_000_000))), b"x")


def test_an_input_that_never_ends_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(data: bytes) -> Hashable:
        while True:
            pass

    monkeypatch.setattr("tests.proof.fuzz_child.HANG_CPU_SECONDS", 0.1)
    monkeypatch.setattr("tests.proof.fuzz_targets.CORPUS", fuzz.Path("/nonexistent"))
    result = run_fuzz(target(endless), None, 1, 60, seed=1)
    assert "no answer" in result.crashes[0].error


def test_an_input_that_takes_too_much_memory_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    # To touch so many pages can take longer than an input may on a slow machine.
    monkeypatch.setattr("tests.proof.fuzz_engine.CPU_SECONDS_MAX", 60.0)
    # The most that this process has ever held is what counts, and another test may have held more than it does now.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

    def bomb(data: bytes) -> Hashable:
        return len(bytearray(b"x") * (peak + (160 << 20)))

    with pytest.raises(Broken, match="memory"):
        execute(target(bomb), b"x")


def test_a_method_counts_and_reports_with_what_repeats_it(tmp_path) -> None:
    planted = target(sized_text)
    result = fuzz.run(planted, Budget(3_000, 10, 3, tmp_path))
    assert (result.cases, result.unit, result.complete) == (3_000, "executions", True)
    [finding] = result.findings
    assert "planted: IndexError" in finding.what
    with pytest.raises(IndexError):
        sized_text(bytes.fromhex(finding.repeat.rpartition(" ")[2]))


def test_a_long_input_is_kept_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    data = bytes(range(256)) * 40

    def refuses_long_ones(data: bytes) -> Hashable:
        if len(data) > 2_000:
            raise KeyError("too long for it")
        return None

    planted = Target("planted", "a planted fault", refuses_long_ones, (), lambda: [data])
    [finding] = fuzz.run(planted, Budget(10, 10, 3, tmp_path)).findings
    option, path = finding.repeat.split()[-2:]
    assert option == "--file"
    assert Path(path).read_bytes() == data


def test_most_inputs_are_short_and_some_are_not() -> None:
    engine = Engine(target(len, size_max=1_000), [b"x" * 900, b"short"], seed=3)
    sizes = [len(data) for data, _ in zip(engine._inputs(), range(2_000), strict=False)]
    assert sum(size <= SHORT_BYTES_MAX for size in sizes) > 1_700
    assert sum(SHORT_BYTES_MAX < size <= 1_000 for size in sizes) > 50


def test_thousands_of_payloads_that_are_no_json_are_judged_in_time() -> None:
    execute(TARGETS["native-json"], b"[\0" * (INPUT_BYTES_MAX // 2))


def test_every_decoder_gets_its_million() -> None:
    for planned in TARGETS.values():
        assert planned.torture_cases >= 1_000_000 or not planned.is_decoder


def test_what_a_child_tells_is_what_it_counted() -> None:
    engine = Engine(target(sized_text), [b"\0\x01h"], seed=1)
    engine.replay()
    assert as_json(engine.result) == {"executions": 1, "kinds": 1, "crashes": []}


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_and_its_neighbours(name: str) -> None:
    """What every run of the tests fuzzes: all that was found before, and a little that is new to nobody."""
    chosen = TARGETS[name]
    engine = Engine(chosen, corpus(chosen), seed=20_240_229)
    engine.replay()
    replayed, kinds = engine.result.executions, engine.result.kinds
    assert replayed >= 4
    assert kinds >= 3, "the corpus shows more than one kind of answer"
    engine.run(replayed + 150)
    assert [crash.error for crash in engine.result.crashes] == []
