"""Reads the settings again, makes everything that they need, and then lets all of it count at once, or nothing.

    in a thread    files are read and checked, compared with the settings in use, certificates loaded, users prepared
    on the loop    one step, which cannot fail: users, TLS contexts and settings are replaced
    then           connections whose login does not count any more are told so

One reload is carried out after the other.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from vibemq.auth.users import Account, Accounts, ReplacedUsers
from vibemq.config import Auth, Log, Settings
from vibemq.errors import ConfigInvalid
from vibemq.operations.users import Users
from vibemq.server.access.audit import AuditLog
from vibemq.server.access.hashing import HashingThreads
from vibemq.server.access.revocation import Revocation
from vibemq.server.net.tls import NewerTls, ServerTls
from vibemq.server.reload.changes import SettingsChange, compare, origins_in_use
from vibemq.settings import Loaded

log = logging.getLogger("vibemq.reload")

READ_TIMEOUT_S = 10.0
"""Of all files together."""
LOGGED_MAX = 20
"""Names that the log shows of each list."""
OF_HTTP = -1
"""The place of the HTTP port among the listeners whose TLS files are read again."""
SWITCHED = "authentication is switched on and off with a restart only; keep a user or a token"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """Where the settings of `vibemq serve` come from."""

    read: Callable[[], Loaded]
    """Reads and checks them again. Blocking. Raises ConfigInvalid."""
    set_up_log: Callable[[Log], None]
    origins: dict[str, str] = field(default_factory=dict)
    """Where each setting in use comes from, by dotted name; a reload brings it up to date."""
    taken: Callable[[tuple[Path, ...]], None] = lambda files: None
    """Hears of the files of each reload that counts, and not of one that is refused."""


@dataclass(frozen=True, slots=True)
class _Found:
    change: SettingsChange
    certificates: Mapping[int, NewerTls]
    files: tuple[Path, ...] | None
    origins: dict[str, str]


class Reloader:
    """Args:
    source: None for a broker whose program has made the settings: only TLS files are read again then.
    tls: of the open listeners, by their places in the settings.
    apply: lets settings count, wherever they are used but for users and TLS; must not fail.
    """

    def __init__(
        self,
        settings: Settings,
        source: SettingsSource | None,
        *,
        tls: Mapping[int, ServerTls],
        apply: Callable[[Settings], None],
        accounts: Accounts,
        users: Users,
        revocation: Revocation,
        hashing: HashingThreads,
        audit: AuditLog,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self._settings = settings
        self._source = source
        self._tls = tls
        self._apply = apply
        self._accounts = accounts
        self._users = users
        self._revocation = revocation
        self._hashing = hashing
        self._audit = audit
        self._read_timeout_s = read_timeout_s
        self._one_at_a_time = anyio.Lock()

    async def reload(self, by: str, *, user: str = "", asker: int = 0) -> dict[str, Any]:
        """What has changed, by name.

        Args:
            by: what has asked for it, and `user`: who, for the audit log.
            asker: the session that has asked and hears the answer; 0 = none.

        Raises:
            ConfigInvalid: the settings cannot be used, and nothing has changed.
        """
        who = {"by": by, "user": user}
        async with self._one_at_a_time:
            try:
                answer = await self._reload(asker)
            except ConfigInvalid as error:
                refusal = ConfigInvalid(f"the settings were not reloaded, and nothing has changed: {error}")
                log.error("%s", refusal, extra={"event": "broker.reload_failed"})
                self._audit.reloaded({**who, "reason": str(error)}, failed=True)
                raise refusal from None
        log.info("%s", told(answer), extra={"event": "broker.reloaded"})
        self._audit.reloaded({**who, **answer}, failed=False)
        return answer

    async def replace_users(self, auth: Auth) -> None:
        """Other users and another token than those of the settings. Raises ConfigInvalid; then nothing has changed."""
        async with self._one_at_a_time:
            if not (auth.enabled and self._accounts.enabled):
                raise ConfigInvalid(SWITCHED)
            await self._take(self._settings.model_copy(update={"auth": auth}), {}, 0)

    async def _reload(self, asker: int) -> dict[str, Any]:
        found = await self._read_in_time()
        hidden = await self._take(found.change.settings, found.certificates, asker)
        if self._source is not None:
            self._source.origins.clear()
            self._source.origins.update(found.origins)
            self._source.taken(found.files or ())
        files = {str(path): None for newer in found.certificates.values() for path in newer.changed}
        return {
            "changed": list(found.change.changed),
            "needs_restart": list(found.change.needs_restart),
            "certificates": list(files),
            "hidden_users": list(hidden),
            "files": None if found.files is None else list(map(str, found.files)),
        }

    async def _read_in_time(self) -> _Found:
        """Raises ConfigInvalid, also when a file does not answer: then the next reload has its turn."""
        try:
            with anyio.fail_after(self._read_timeout_s):
                return await _in_daemon(self._read)
        except TimeoutError:
            raise ConfigInvalid(
                f"the files of the settings and the certificates were not read within {self._read_timeout_s:g} s; see "
                "that their file system answers, and that all of them are ordinary files"
            ) from None

    def _read(self) -> _Found:
        before, loaded = self._settings, self._source.read() if self._source is not None else None
        after = loaded.settings if loaded is not None else before
        switches = (after.auth.enabled or self._accounts.has_stored_users) != self._accounts.enabled
        change = compare(before, after, fixed=("auth",) if switches else ())
        certificates = {}
        for number, tls in self._tls.items():
            place = change.settings.http if number == OF_HTTP else change.settings.listeners[number]
            files = place.tls
            newer = tls.newer(files) if files is not None else None
            if newer is not None:
                certificates[number] = newer
        if change.settings.auth.users is not after.auth.users:
            _forget(after.auth.users)
        if self._source is None or loaded is None:
            return _Found(change, certificates, None, {})
        origins = origins_in_use(self._source.origins, loaded.origins, change)
        return _Found(change, certificates, loaded.files, origins)

    async def _take(self, settings: Settings, certificates: Mapping[int, NewerTls], asker: int) -> tuple[str, ...]:
        """Users of the store that those of the settings hide from now on."""
        auth, before = settings.auth, self._settings
        if auth is before.auth:
            self._let_count(settings, certificates)
            return ()
        configured = await self._hashing.run(auth.accounts)
        # What is prepared must be true when it counts, for users of the store too.
        async with self._users.changing:
            replaced = await _in_thread(partial(self._prepare, configured, auth))
            self._check(replaced)
            old = self._accounts.take(replaced)
            self._let_count(settings, certificates)
            _tell_of_promoted(replaced)
            await self._revocation.look_at_users(replaced.changed, asker=asker)
        # A program may use its settings again; those of a file are nobody else's.
        unused = before.auth.users if self._source is not None and auth.users is not before.auth.users else {}
        await _in_thread(partial(_forget, old.users, old.rules, unused))
        return replaced.hidden

    def _prepare(self, configured: list[Account], auth: Auth) -> ReplacedUsers:
        replaced = self._accounts.prepare(configured, token=auth.shared_token)
        while configured:
            configured.pop()
        return replaced

    def _check(self, replaced: ReplacedUsers) -> None:
        """Raises ConfigInvalid for users of a file who would leave the broker without anybody to administer it."""
        if replaced.enabled != self._accounts.enabled:
            raise ConfigInvalid(SWITCHED)
        if self._source is not None and self._accounts.policy.has_superusers and not replaced.superusers:
            raise ConfigInvalid(
                "no superuser would be left, and nobody could administer the broker; keep auth.superuser, auth.token, "
                "or a user with superuser = true"
            )

    def _let_count(self, settings: Settings, certificates: Mapping[int, NewerTls]) -> None:
        for number, newer in certificates.items():
            self._tls[number].take(newer)
        if self._source is not None and settings.log != self._settings.log:
            self._source.set_up_log(settings.log)
        self._settings = settings
        self._apply(settings)


async def _in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


async def _in_daemon(work: Callable[[], T]) -> T:
    """In a thread of its own that ends with the process: a file system that does not answer must keep neither the
    broker from its end nor other work from its thread."""
    loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if done.done():
            return  # Nobody waits any more.
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            if not loop.is_closed():  # Closed, the broker has ended meanwhile.
                raise

    Thread(target=run, name="vibemq-reload", daemon=True).start()
    found: T = await done
    return found


def _forget(*tables: dict[str, Any]) -> None:
    """One by one: very many objects that are freed in one go would hold all other threads meanwhile."""
    for table in tables:
        while table:
            table.popitem()


def _tell_of_promoted(replaced: ReplacedUsers) -> None:
    if replaced.promoted:
        names = _listed(f"{name} ({count:,})" for name, count in replaced.promoted)
        log.warning(
            "users are superusers now, and so are their access tokens, except narrower ones: %s; see token.list",
            names,
            extra={"event": "broker.tokens_promoted"},
        )


def told(answer: Mapping[str, Any]) -> str:
    """One line for the log."""
    parts = [
        f"{what}: {_listed(answer[name])}"
        for name, what in (
            ("changed", "changed"),
            ("certificates", "TLS files read again"),
            ("needs_restart", "needs a restart"),
            ("hidden_users", "users of the store that the settings hide"),
        )
        if answer[name]
    ]
    return f"settings reloaded: {'; '.join(parts) or 'nothing is different'}"


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    more = len(shown) - LOGGED_MAX
    return ", ".join(shown[:LOGGED_MAX]) + (f" and {more:,} more" if more > 0 else "")
