"""Checks of a broker: who owns the data directory, and whether one answers at the URL."""

import fcntl
from pathlib import Path

from vibemq._version import __version__
from vibemq.cli.admin.doctor.finding import BROKER, Finding, Level, fail, ok, warn
from vibemq.cli.exits import root_of
from vibemq.cli.online import call
from vibemq.cli.output import duration_text
from vibemq.client import Client
from vibemq.errors import AuthError, NotAuthorized, VibeMQError
from vibemq.storage.local.lock import LOCK_NAME, describe_owner


def owner(data_dir: Path) -> Finding:
    """Who holds the lock; the lock alone decides, the owner file only explains."""
    lock = data_dir / LOCK_NAME
    try:
        with lock.open("rb") as file:
            # Shared and for an instant: two doctors do not disturb each other, and hardly ever a broker that starts.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return ok("owner", f"{data_dir} is not in use")
    except BlockingIOError:
        return ok("owner", f"{data_dir} is in use by {describe_owner(data_dir)}")
    except OSError as error:
        remedy = "run the doctor as the user of the broker, or correct the owner and the mode of the directory"
        return fail("owner", f"{lock} cannot be looked at: {error.strerror}", remedy)
    return ok("owner", f"{data_dir} is not in use")


def broker(url: str, timeout: float, *, asked_for: bool) -> list[Finding]:
    """Whether one answers. Without an explicit --url it is fine that none does."""

    async def work(mq: Client) -> tuple[str, float]:
        await mq.ping()
        return mq.server_version, await mq.ping()

    try:
        version, seconds = call(url, timeout, work)
    except (VibeMQError, OSError, ExceptionGroup) as raised:
        error = root_of(raised)
        if isinstance(error, AuthError):
            return [fail("broker", str(error), "correct the credentials in --url; a broker answers there")]
        if asked_for:
            return [fail("broker", str(error), "start it (vibemq serve), or correct --url")]
        return [warn("broker", str(error), "none is necessary; to start a broker: vibemq serve")]
    reached = ok("broker", f"VibeMQ {version} answers in {duration_text(1000 * seconds)}")
    own = from_inside(url, timeout)
    if version != __version__:
        text = f"the broker is {version}, this command line is {__version__}"
        return [reached, warn("versions", text, "upgrade the older of the two"), *own]
    return [reached, ok("versions", f"broker and command line are both {version}"), *own]


def from_inside(url: str, timeout: float) -> list[Finding]:
    """What the broker has found out about itself. It tells superusers only."""

    async def work(mq: Client) -> list[Finding]:
        found = (await mq.admin("broker.checks"))["checks"]
        return [Finding(one["name"], Level(one["level"]), one["text"], one["remedy"], BROKER) for one in found]

    try:
        return call(url, timeout, work)
    except (VibeMQError, OSError, ExceptionGroup) as raised:
        error = root_of(raised)
        if isinstance(error, NotAuthorized):
            return [ok("inside the broker", "not looked at: that requires a superuser")]
        return [warn("inside the broker", f"not looked at: {error}", "upgrade the broker, or ask again")]
