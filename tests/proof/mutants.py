"""The proof of the proof: the product is broken on purpose, one line at a time, and the methods must notice.

Each mutant (`mutant_list`) is applied to a copy of the package in a folder that stands first on the path of the method
that must catch it; the method runs in a process of its own until its first finding, and that must say what the mutant
does: one that trips over something else, at the import say, proves nothing. Before that, each method must find nothing
in an untouched copy.

    python -m tests.proof.mutants [WORD …]      those whose names contain one of the words
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import vibemq
from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.mutant_list import MUTANTS, Catcher, Mutant
from tests.proof.sim_disk import FIRST

ROOT = Path(__file__).parents[2]
CONTROL = Mutant("none", "__init__.py", "", "", "")
CONTROL_CASES = {"bit-rot": 50, "inject": 3, "users": 3}
"""Of methods that are slow to begin; a control that ran no case would prove nothing."""
CONTROL_AIMS = {"network": "busy connection|ended stream"}
"""Of methods of which only a part catches mutants. Providers are one of the others' aims: the quicker one."""
CONTROL_SECONDS = 3.0
SLOW_CONTROL_SECONDS = 60.0
GRACE_S = 60.0
WHERE = "import vibemq, vibemq.storage.migrate as m; print(vibemq.__file__, m.migrations_folder())"
VERDICT_PART = 0.5
"""Of the time that a catcher wants: what it has not caught by then, for want of time, lives."""
LEFT_LEAST_S = 5.0
"""With less than that left no method is begun."""


class Unfit(Exception):
    """A mutant that does not fit the source, or a copy that was not used."""


class NoVerdict(Unfit):
    """A method that tried nothing, or did not end: a finding, unless the time of the whole run has ended."""


class TimeEnded(Exception):
    """Nothing can be said of a mutant: its catchers had too little time."""


def make_copy(folder: Path, mutant: Mutant) -> None:
    """The package with the replacements. Raises Unfit unless each text stands in its file exactly once."""
    package = Path(vibemq.__file__).parent
    shutil.copytree(package, folder / "vibemq", ignore=shutil.ignore_patterns("__pycache__", "testing"))
    # The simulated disk is part of the proof, not of what is proved.
    (folder / "vibemq" / "testing").symlink_to(package / "testing")
    migrations = package / "migrations" if (package / "migrations").is_dir() else package.parent / "migrations"
    shutil.copytree(migrations, folder / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
    if mutant is CONTROL:
        return
    for file, old, new in mutant.replacements:
        path = folder / "vibemq" / file
        text = path.read_text()
        if text.count(old) != 1:
            raise Unfit(f"{mutant.name}: its text stands {text.count(old)} times in {file}")
        path.write_text(text.replace(old, new))


def environment(folder: Path) -> dict[str, str]:
    """Whatever is started with it, wherever, imports the copy: the folder it is started in is not on its path."""
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1", FIRST: "1"}


def check_copy_wins(folder: Path) -> None:
    """Raise Unfit unless a process that a method starts in the checkout imports the copy, migrations included."""
    command = [sys.executable, "-c", WHERE]
    answer = subprocess.run(command, cwd=ROOT, env=environment(folder), capture_output=True, text=True, check=False)
    paths = answer.stdout.split()
    if len(paths) != 2 or not all(Path(path).is_relative_to(folder) for path in paths):
        raise Unfit(f"the copy in {folder} does not win: {answer.stdout} {answer.stderr[-500:]}")


def first_finding(folder: Path, catcher: Catcher, seconds: float) -> str | None:
    """What the method finds in the copy; None when it finds nothing within its time.

    Raises:
        Unfit: it broke.
        NoVerdict: it tried nothing, or did not end.
    """
    work = folder / "work"
    work.mkdir(exist_ok=True)
    words = [catcher.method, str(catcher.cases), str(seconds), str(catcher.seed), str(work), catcher.aim]
    command = [sys.executable, "-m", "tests.proof.worker", *words]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
            timeout=seconds + GRACE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoVerdict(f"{catcher.method} did not end within {seconds + GRACE_S:.0f} s") from None
    finally:
        remove(work)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise Unfit(f"{catcher.method} ended with code {done.returncode}: {done.stderr[-300:]}")
    result = json.loads(lines[-1])
    if result["findings"]:
        return str(result["findings"][0]["what"])
    if not result["cases"]:
        raise NoVerdict(f"{catcher.method} ran none of its {result['unit']}, so it has proved nothing")
    bad = {name: result[name] for name in ("lost", "resurrected", "undetected") if result[name]}
    return str(bad) if bad else None


def remove(folder: Path) -> None:
    """Also what a method that was cut by its time has left mounted there."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in reversed(mounts):
        if Path(mount).is_relative_to(folder):
            subprocess.run(["umount", "--lazy", mount], check=True)
    shutil.rmtree(folder, ignore_errors=True)


class Check:
    """One run over some mutants."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._deadline = time.monotonic() + budget.seconds
        self._controlled: set[str] = set()
        self.result = Result(unit="mutants")
        self.told: dict[str, str] = {}
        """What was said about each mutant that was caught."""

    def run(self, mutants: Iterable[Mutant]) -> None:
        """One after another, each behind the control of its methods, until the time ends."""
        for number, mutant in enumerate(mutants):
            try:
                self._control(sorted({catcher.method for catcher in mutant.by} - self._controlled))
                self._one(number, mutant)
            except TimeEnded as ended:
                self.result.complete = False
                self.result.figures["not decided"] = f"{mutant.name}: {ended}"
                return

    def _seconds(self, wanted: float) -> float:
        """What there is of them. Raises TimeEnded when that is next to nothing."""
        left = self._deadline - time.monotonic()
        if left < LEFT_LEAST_S:
            raise TimeEnded("the time ended before it")
        return min(wanted, left)

    def _control(self, methods: list[str]) -> None:
        if not methods:
            return
        self._seconds(CONTROL_SECONDS)
        self._controlled.update(methods)
        folder = self._budget.work / "control"
        try:
            make_copy(folder, CONTROL)
            check_copy_wins(folder)
            for method in methods:
                self._control_one(folder, method)
        finally:
            remove(folder)

    def _control_one(self, folder: Path, method: str) -> None:
        catcher = Catcher(
            method, cases=CONTROL_CASES.get(method, Catcher(method).cases), aim=CONTROL_AIMS.get(method, "sqlite")
        )
        seconds = SLOW_CONTROL_SECONDS if method in CONTROL_CASES else CONTROL_SECONDS
        try:
            found = self._found(folder, catcher, seconds)
        except Unfit as error:
            found = str(error)
        if found is not None:
            what = f"{method} finds something in the untouched product: {found}"
            self.result.findings.append(Finding(what, f"python -m tests.proof short {method}"))

    def _found(self, folder: Path, catcher: Catcher, seconds: float) -> str | None:
        try:
            return first_finding(folder, catcher, seconds)
        except NoVerdict as error:
            if time.monotonic() < self._deadline:
                raise
            raise TimeEnded(str(error)) from None

    def _one(self, number: int, mutant: Mutant) -> None:
        folder = self._budget.work / f"mutant-{number}"
        begun = time.monotonic()
        try:
            make_copy(folder, mutant)
            check_copy_wins(folder)
            method = self._caught_by(folder, mutant)
            self.result.figures[mutant.name] = f"{method} in {time.monotonic() - begun:.1f} s"
        except Unfit as error:
            repeat = f"python -m tests.proof.mutants '{mutant.name}'"
            self.result.findings.append(Finding(f"{mutant.name}: {error}", repeat))
        finally:
            remove(folder)
        self.result.cases += 1

    def _caught_by(self, folder: Path, mutant: Mutant) -> str:
        """Raises Unfit when nobody catches it, or somebody does for another reason; TimeEnded when somebody might."""
        cut = ""
        for catcher in mutant.by:
            seconds = self._seconds(catcher.seconds)
            found = self._found(folder, catcher, seconds)
            if found is None:
                if seconds < VERDICT_PART * catcher.seconds:
                    cut = f"{catcher.method} had {seconds:.0f} s for it, of {catcher.seconds:.0f}"
                continue
            if not re.search(mutant.sign, found, re.DOTALL):
                raise Unfit(f"{catcher.method} tripped over something else than {mutant.sign!r}: {found}")
            self.told[mutant.name] = found
            return catcher.method
        if cut:
            raise TimeEnded(cut)
        raise Unfit(f"the mutant lives; {', '.join(catcher.method for catcher in mutant.by)} found nothing")


def choose(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """All of them when there is room, else as many quick ones; for another seed others come first, or at all."""
    every = list(mutants)
    fit = every if count >= len(every) else [mutant for mutant in every if mutant.quick]
    start = seed * (count if count < len(every) else 1) % len(fit)
    return (fit[start:] + fit[:start])[:count]


def run(budget: Budget) -> Result:
    check = Check(budget)
    check.run(choose(MUTANTS, budget.cases, budget.seed))
    return check.result


METHOD = Method(
    name="mutants",
    title="Mutants of the product, caught",
    run=run,
    short=Size(cases=1, seconds=20),
    crash=Size(cases=12, seconds=60),
    torture=Size(cases=len(MUTANTS), seconds=480),
    least_s=20,
)


def main(names: list[str]) -> int:
    import tempfile

    chosen = [mutant for mutant in MUTANTS if not names or any(name in mutant.name for name in names)]
    with tempfile.TemporaryDirectory(prefix="mutants-", dir="/var/tmp") as folder:
        check = Check(Budget(len(chosen), 3_600, 1, Path(folder)))
        for mutant in chosen:
            check.run([mutant])
            caught = check.result.figures.get(mutant.name, "NOBODY")
            print(f"{mutant.name}: {caught}: {check.told.get(mutant.name, '')[:300]}", flush=True)
        for finding in check.result.findings:
            print(f"FOUND: {finding.what}")
    return 1 if check.result.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
