"""Codes for one login: `vibemq console` opens a browser that is logged in already. Only hashes are kept, for a minute,
and a code is worth nothing after its first use. Pure: the caller brings the time and the secrets."""

import hashlib

from vibemq.model.access import Principal

CODE_S = 60.0
CODES_MAX = 100


class LoginCodes:
    def __init__(self) -> None:
        self._codes: dict[str, tuple[Principal, float]] = {}
        """By hash, the oldest first."""

    def __len__(self) -> int:
        return len(self._codes)

    def keep(self, code: str, principal: Principal, now_s: float) -> None:
        self._forget(now_s)
        while len(self._codes) >= CODES_MAX:
            del self._codes[next(iter(self._codes))]
        self._codes[_digest(code)] = (principal, now_s + CODE_S)

    def take(self, code: str, now_s: float) -> Principal | None:
        """For whom it was made; None for a wrong one, an old one and a used one."""
        self._forget(now_s)
        found = self._codes.pop(_digest(code), None)
        return None if found is None else found[0]

    def _forget(self, now_s: float) -> None:
        for digest in [digest for digest, (_, until_s) in self._codes.items() if until_s <= now_s]:
            del self._codes[digest]


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode(errors="surrogatepass")).hexdigest()
