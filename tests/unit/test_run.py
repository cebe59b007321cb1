"""`tests/run.py` on trees of toy tests: what is run again, what is said of it, and what the exit code is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / "run.py"
CONFTEST = Path(__file__).parents[1] / "conftest.py"
TWO_WORKERS = ("-n", "2", "--dist", "loadgroup")
NO_OTHER_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Toy tests need none; to import them costs more than all else that such a run does."""
pytestmark = pytest.mark.slow

ONCE = """
    from pathlib import Path
    def once(name):
        marker = Path(name)
        again = marker.exists()
        marker.touch()
        return again
"""


def run(folder: Path, module: str, *arguments: str) -> tuple[int, str]:
    """Write one module of tests beside a settings file, and run it: exit code, output."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -ra -p xdist\n")
    source = "\n".join(line.removeprefix("    ") for line in (ONCE + module).splitlines())
    (folder / "test_toy.py").write_text(source)
    done = subprocess.run(
        [sys.executable, str(RUN), *arguments],
        cwd=folder,
        env={**os.environ, **NO_OTHER_PLUGINS},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout + done.stderr


def closing(output: str) -> str:
    last = output.strip().splitlines()[-1]
    found = re.fullmatch(r"=+ (.*) in [0-9.]+s.* ?=+", last)
    assert found is not None, output
    return found[1]


def flaky(output: str) -> list[str]:
    return re.findall(r"^FLAKY (.*)$", output, re.MULTILINE)


def test_a_run_without_failures_is_pytests_own(tmp_path: Path) -> None:
    code, output = run(tmp_path, "    def test_good(): pass\n")
    assert (code, closing(output), flaky(output)) == (0, "1 passed", [])
    assert "running again" not in output


def test_what_passes_the_second_time_is_told_with_its_first_traceback(tmp_path: Path) -> None:
    module = """
    import pytest
    @pytest.mark.xdist_group("lonely")
    @pytest.mark.parametrize("value", ["a b", "x::y@z"])
    def test_shaky(value): assert once("body" + value[0]), "the first try fails"
    @pytest.fixture
    def shaky():
        yield
        assert once("teardown")
    def test_teardown(shaky): pass
    def test_skipped(): pytest.skip("not here")
    @pytest.mark.xfail
    def test_known(): assert False
    def test_good(): pass
    """
    code, output = run(tmp_path, module, *TWO_WORKERS)
    assert code == 0, output
    assert sorted(flaky(output)) == [
        "test_toy.py::test_shaky[a b]",
        "test_toy.py::test_shaky[x::y@z]",
        "test_toy.py::test_teardown",
    ]
    assert re.search(r"^  \| E .*the first try fails", output, re.MULTILINE), output
    assert closing(output) == "4 passed, 1 skipped, 1 xfailed"


def test_what_fails_twice_fails(tmp_path: Path) -> None:
    module = """
    def test_shaky(): assert once("shaky")
    def test_bad(): assert False
    def test_good(): pass
    """
    code, output = run(tmp_path, module)
    assert (code, flaky(output)) == (1, ["test_toy.py::test_shaky"])
    assert output.index("NOT PASSED test_toy.py::test_bad (call)\n") < output.index("running again")
    assert "FAILED TWICE test_toy.py::test_bad" in output
    assert closing(output) == "1 failed, 2 passed"


def test_what_is_skipped_the_second_time_has_not_passed(tmp_path: Path) -> None:
    module = """
    import pytest
    def test_shaky():
        if once("shaky"):
            pytest.skip("no proof")
        assert False
    """
    code, output = run(tmp_path, module)
    assert (code, flaky(output), closing(output)) == (1, [], "1 failed")


def test_a_crashed_worker_is_a_failure_of_its_test(tmp_path: Path) -> None:
    module = """
    import os
    def test_shaky():
        if not once("shaky"):
            os._exit(3)
    def test_good(): pass
    """
    code, output = run(tmp_path, module, "-n", "2")
    assert (code, flaky(output), closing(output)) == (0, ["test_toy.py::test_shaky"], "2 passed"), output
    assert "crashed while running" in output
    code, output = run(
        tmp_path, "    import os\n    def test_bad(): os._exit(3)\n    def test_good(): pass\n", "-n", "2"
    )
    assert (code, flaky(output)) == (1, []), output
    # Nobody has seen it end the second time: the record of that run is missing, not empty.
    assert closing(output) == "1 failed, 1 passed"


@pytest.mark.parametrize("others", [0, 1, 7])
@pytest.mark.long_where(others=[0, 1])
def test_what_a_crashed_worker_has_left_is_run(tmp_path: Path, others: int) -> None:
    """And the crash itself is not repeated before the others have ended."""
    module = f"""
    import os, pytest
    @pytest.mark.parametrize("number", range({others}))
    def test_before(number): pass
    def test_bad():
        assert not once("crashed")
        os._exit(3)
    @pytest.mark.parametrize("number", range({others}))
    @pytest.mark.xdist_group("together")
    def test_behind(number): pass
    """
    code, output = run(tmp_path, module, *TWO_WORKERS)
    assert (code, "FAILED TWICE test_toy.py::test_bad" in output) == (1, True), output
    assert closing(output).startswith(f"1 failed, {2 * others} passed" if others else "1 failed"), output


@pytest.mark.parametrize("mark", ['xdist_group("together")', "spark"])
@pytest.mark.long_where(mark="spark")
def test_a_group_of_tests_is_run_by_one_worker(tmp_path: Path, mark: str) -> None:
    """Tests with a Spark session are one: each worker would start a session of its own."""
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    module = f"""
    import os, pytest
    @pytest.mark.parametrize("number", range(12))
    @pytest.mark.{mark}
    def test_it(number):
        with open("workers", "a") as workers:
            print(os.getpid(), file=workers)
    @pytest.mark.parametrize("number", range(12))
    def test_other(number): pass
    """
    code, output = run(tmp_path, module, *TWO_WORKERS)
    assert code == 0, output
    assert len(set((tmp_path / "workers").read_text().split())) == 1


def test_a_test_that_hangs_prints_its_stack_and_fails(tmp_path: Path) -> None:
    module = """
    import threading
    def test_shaky():
        if not once("shaky"):
            threading.Event().wait()
    def test_good(): pass
    """
    limits = ("-o", "faulthandler_timeout=10", "-o", "faulthandler_exit_on_timeout=true")
    code, output = run(tmp_path, module, "-n", "2", *limits)
    assert (code, flaky(output)) == (0, ["test_toy.py::test_shaky"]), output
    assert re.search(r"File .*test_toy.py\", line \d+ in test_shaky", output), output


def test_what_a_test_leaves_behind_is_named_and_killed(tmp_path: Path) -> None:
    """Its parent ends first, and it has a session of its own; it would hold the output open."""
    module = """
    import subprocess, sys
    CHILD = "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    def test_good():
        subprocess.run([sys.executable, "-c", CHILD], check=True)
    """
    code, output = run(tmp_path, module, *TWO_WORKERS)
    assert (code, "1 passed" in output) == (0, True), output
    assert re.search(r"^LEFT BEHIND \d+ sleep 1000$", output, re.MULTILINE), output


def test_an_orphan_that_ends_is_gone(tmp_path: Path) -> None:
    module = """
    import os, subprocess, sys, time
    CHILD = "import subprocess; print(subprocess.Popen(['sleep', '0'], stdout=subprocess.DEVNULL).pid)"
    def test_good():
        pid = int(subprocess.run([sys.executable, "-c", CHILD], check=True, capture_output=True).stdout)
        end = time.monotonic() + 60
        while os.path.exists(f"/proc/{pid}"):
            assert time.monotonic() < end
    """
    code, output = run(tmp_path, module)
    assert (code, "1 passed" in output) == (0, True), output


@pytest.mark.long(covered_by="tests/unit/test_run.py::test_a_test_that_hangs_prints_its_stack_and_fails")
def test_a_run_that_does_not_end_is_ended(tmp_path: Path) -> None:
    """Something hangs that is no test; the stacks say what."""
    (tmp_path / "conftest.py").write_text("import threading\ndef pytest_sessionfinish(): threading.Event().wait()\n")
    (tmp_path / "test_toy.py").write_text("def test_good(): pass\n")
    program = f"""
import runpy
main = runpy.run_path({str(RUN)!r})["main"]
main.__globals__["RUN_SECONDS_MAX"] = 15
raise SystemExit(main([]))
"""
    environment = {**os.environ, **NO_OTHER_PLUGINS}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1, done
    assert "the tests did not end within 15 s" in done.stdout
    assert "in pytest_sessionfinish" in done.stderr


def test_a_module_that_cannot_be_imported_is_no_chance(tmp_path: Path) -> None:
    (tmp_path / "test_good.py").write_text("def test_good(): pass\n")
    code, output = run(
        tmp_path, "    if not once('imported'): raise RuntimeError\n    def test_it(): pass\n", *TWO_WORKERS
    )
    assert code != 0, output
    assert "running again" not in output


def test_a_run_that_stopped_early_is_not_repaired_by_a_second_one(tmp_path: Path) -> None:
    module = """
    def test_shaky(): assert once("shaky")
    def test_never_run(): assert False
    """
    code, output = run(tmp_path, module, "-x")
    assert code != 0
    assert "running again" not in output


def test_an_interrupted_run_is_not_repaired(tmp_path: Path) -> None:
    module = """
    def test_shaky(): assert once("shaky")
    def test_interrupted(): raise KeyboardInterrupt
    """
    code, output = run(tmp_path, module)
    assert code == 2
    assert "running again" not in output


def test_bad_arguments_keep_their_exit_code(tmp_path: Path) -> None:
    assert run(tmp_path, "    def test_good(): pass\n", "--no-such-option")[0] == 4


def test_a_landslide_is_not_run_again(tmp_path: Path) -> None:
    module = """
    import pytest
    @pytest.mark.parametrize("number", range(26))
    def test_shaky(number): assert once(str(number))
    """
    code, output = run(tmp_path, module)
    assert code == 1
    assert "26 tests failed, too many to be chance" in output
