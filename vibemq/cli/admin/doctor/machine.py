"""Checks of the machine: Python and its packages, limits, the clock. Facts come as arguments, so each can be tested."""

import ctypes
import importlib.util
import platform
import resource
import sys
import sysconfig
import time

import lmdb

from vibemq._version import __version__
from vibemq.cli.admin.doctor.finding import Finding, fail, ok, warn
from vibemq.cli.exits import how_to_install
from vibemq.cli.output import instant_text

OPTIMIZED = ("--enable-optimizations", "--with-lto", "-fprofile-use", "-fprofile-instr-use", "-flto")
"""Any of these in what the interpreter was built with says that its builder cared about speed."""
SYSTEM_PREFIX = "/usr"
"""Debian and Ubuntu optimize their Python by rules of their own, and it does not tell."""
OPEN_FILES_WANTED = 4_096
OLDEST_SANE_YEAR = 2025
CLOCK_UNSYNCHRONIZED = 5
"""TIME_ERROR of adjtimex(2)."""
_TIMEX_BYTES = 512
"""More than struct timex takes on any platform."""


def python(version: tuple[str, str, str] | None = None) -> Finding:
    major, minor, patch = version or platform.python_version_tuple()
    text = f"Python {major}.{minor}.{patch}, VibeMQ {__version__}"
    if (int(major), int(minor)) < (3, 11):
        return fail("python", text, "install Python 3.11 or newer")
    return ok("python", text)


def python_build(built_with: str | None = None, prefix: str = sys.base_prefix) -> Finding:
    """`built_with`: the arguments and flags of the interpreter's build; empty where it does not know them."""
    told = _built_with() if built_with is None else built_with
    if "--with-pydebug" in told:
        return _slow_build("this is a debug build of Python")
    if any(sign in told for sign in OPTIMIZED):
        return ok("python build", "built with optimizations")
    if prefix == SYSTEM_PREFIX or not told:
        return ok("python build", "built by the system's distributor" if told else "how it was built is not known")
    return _slow_build("this Python was built without profile-guided optimization")


def _slow_build(what: str) -> Finding:
    remedy = (
        "use the Python of the distribution, of the Docker image or of `uv python install`; or build it with "
        "--enable-optimizations --with-lto (pyenv: PYTHON_CONFIGURE_OPTS='--enable-optimizations --with-lto')"
    )
    return warn("python build", f"{what}; broker and clients need more processor time for each message", remedy)


def _built_with() -> str:
    names = ("CONFIG_ARGS", "PY_CFLAGS", "PY_CORE_CFLAGS", "PY_CFLAGS_NODIST", "PY_LDFLAGS")
    return " ".join(str(sysconfig.get_config_var(name) or "") for name in names).strip()


def lmdb_library(version: tuple[int, int, int] | None = None) -> Finding:
    numbers = version or lmdb.version()
    text = f"lmdb {lmdb.__version__} with the library {'.'.join(map(str, numbers))}"
    if numbers < (0, 9, 24):
        return warn("lmdb", text, "install a newer wheel: pip install --upgrade lmdb")
    return ok("lmdb", text)


def speed_packages(uvloop: bool | None = None) -> Finding:
    found = importlib.util.find_spec("uvloop") is not None if uvloop is None else uvloop
    if found:
        return ok("event loop", "uvloop is installed")
    return warn("event loop", "uvloop is not installed; asyncio's own loop is slower", how_to_install("speed"))


def open_files(limit: int | None = None) -> Finding:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    if soft == resource.RLIM_INFINITY:
        return ok("open files", "no limit")
    text = f"{soft:,} files and connections may be open"
    if soft < OPEN_FILES_WANTED:
        return warn("open files", text, f"raise it: ulimit -n {OPEN_FILES_WANTED * 16}, or LimitNOFILE= in the unit")
    return ok("open files", text)


def clock(now: float | None = None, state: int | None = None) -> Finding:
    """Delays, expiry and dead-letter times follow the wall clock."""
    now = time.time() if now is None else now
    state = kernel_clock_state() if state is None else state
    text = instant_text(round(now * 1000))
    if time.gmtime(now).tm_year < OLDEST_SANE_YEAR:
        return fail("clock", f"the clock says {text}", "set it, and keep it set with chrony or systemd-timesyncd")
    if state == CLOCK_UNSYNCHRONIZED:
        remedy = "run chrony or systemd-timesyncd (in a container: on its host)"
        return warn("clock", f"{text}; the kernel reports it as not synchronized", remedy)
    return ok("clock", text)


def kernel_clock_state() -> int:
    """What adjtimex(2) returns when it only reads; -1 where it may not be asked."""
    library = ctypes.CDLL(None)
    adjtimex = getattr(library, "adjtimex", None)
    if adjtimex is None:
        return -1
    return int(adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)))
