"""The names of the hidden queues that hold what transactions have staged."""

from urllib.parse import quote

from vibemq.errors import InvalidOptions

STAGE_PREFIX = "~stage/"
"""No queue of a user can be called like this."""
OWNER_MARK = "@"
NAME_MAX = 128
APP_BYTES_MAX = 256


def stage_name(app: str, version: int, stage: str, user: str = "") -> str:
    """The stages of a user are names of their own. Raises InvalidOptions for names that cannot be kept."""
    if not 1 <= len(stage) <= NAME_MAX or "/" in stage:
        raise InvalidOptions(f"stage {stage[:40]!r} is not allowed; use 1 to {NAME_MAX} characters without '/'")
    if not 1 <= len(app.encode(errors="replace")) <= APP_BYTES_MAX:
        raise InvalidOptions(f"app {app[:40]!r} is not allowed; use 1 to {APP_BYTES_MAX} bytes")
    owner = f"{OWNER_MARK}{quote(user, safe='')}/" if user else ""
    return f"{STAGE_PREFIX}{owner}{version}/{stage}/{app}"


def version_and_app(name: str) -> tuple[int, str]:
    rest = name.removeprefix(STAGE_PREFIX)
    if rest.startswith(OWNER_MARK):
        rest = rest.partition("/")[2]
    version, _, app = rest.split("/", 2)
    return int(version), app


def is_stage(name: str) -> bool:
    return name.startswith(STAGE_PREFIX)
