"""The names of the hidden queues that hold what transactions have staged."""

from urllib.parse import quote, unquote

from vibemq.errors import InvalidOptions

STAGE_PREFIX = "~stage/"
"""No queue of a user can be called like this."""
OWNER_MARK = "@"
DELAY_MARK = ">"
PLAIN_MARK = "="
"""Never in a quoted name, neither of them."""
NAME_MAX = 128
APP_BYTES_MAX = 256


def stage_name(app: str, version: int, stage: str, user: str = "") -> str:
    """The stages of a user are names of their own. Raises InvalidOptions for names that cannot be kept."""
    if not 1 <= len(stage) <= NAME_MAX or "/" in stage:
        raise InvalidOptions(f"stage {stage[:40]!r} is not allowed; use 1 to {NAME_MAX} characters without '/'")
    check_app(app)
    owner = f"{OWNER_MARK}{quote(user, safe='')}/" if user else ""
    return f"{STAGE_PREFIX}{owner}{version}/{stage}/{app}"


def check_app(app: str) -> None:
    """Raises InvalidOptions."""
    if not 1 <= len(app.encode(errors="replace")) <= APP_BYTES_MAX:
        raise InvalidOptions(f"app {app[:40]!r} is not allowed; use 1 to {APP_BYTES_MAX} bytes")


def version_and_app(name: str) -> tuple[int, str]:
    rest = name.removeprefix(STAGE_PREFIX)
    if rest.startswith(OWNER_MARK):
        rest = rest.partition("/")[2]
    version, _, app = rest.split("/", 2)
    return int(version), app


def stage_in(name: str) -> str:
    """What the application calls the stage."""
    rest = name.removeprefix(STAGE_PREFIX)
    if rest.startswith(OWNER_MARK):
        rest = rest.partition("/")[2]
    return rest.split("/", 2)[1]


def is_stage(name: str) -> bool:
    return name.startswith(STAGE_PREFIX)


def delay_mark(stage: str, target: str) -> str:
    """Name of the hidden queue, always empty, that says: the stage has delayed messages for the target."""
    return _marked(stage, DELAY_MARK, target)


def plain_stage(stage: str, target: str) -> str:
    """Name of the part of a stage that holds messages as they are, all of them for the target."""
    return _marked(stage, PLAIN_MARK, target)


def _marked(stage: str, mark: str, target: str) -> str:
    rest = stage.removeprefix(STAGE_PREFIX)
    owner = ""
    if rest.startswith(OWNER_MARK):
        owner, _, rest = rest[len(OWNER_MARK) :].partition("/")
    return f"{STAGE_PREFIX}{OWNER_MARK}{owner}{mark}{quote(target, safe='')}/{rest}"


def is_delay_mark(name: str) -> bool:
    return _has_mark(name, DELAY_MARK)


def is_plain(name: str) -> bool:
    return _has_mark(name, PLAIN_MARK)


def _has_mark(name: str, mark: str) -> bool:
    return name.startswith(STAGE_PREFIX + OWNER_MARK) and mark in name.partition("/")[2].partition("/")[0]


def delay_of(name: str) -> tuple[str, str]:
    """(stage, target) of a delay mark."""
    return _split(name, DELAY_MARK)


def plain_of(name: str) -> tuple[str, str]:
    """(stage, target) of the plain part of a stage."""
    return _split(name, PLAIN_MARK)


def _split(name: str, mark: str) -> tuple[str, str]:
    before, _, rest = name.removeprefix(STAGE_PREFIX + OWNER_MARK).partition("/")
    owner, _, target = before.partition(mark)
    return f"{STAGE_PREFIX}{OWNER_MARK + owner + '/' if owner else ''}{rest}", unquote(target)
