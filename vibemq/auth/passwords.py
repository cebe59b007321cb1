"""Password hashes, as text that carries its own parameters.

    argon2id   $argon2id$v=19$m=<KiB>,t=<passes>,p=<lanes>$<salt>$<hash>     what `hash_password` makes
    scrypt     scrypt$<log2 n>$<r>$<p>$<salt, base64>$<hash, base64>         of earlier settings files
    bcrypt     $2b$<log2 rounds>$<salt and hash>                             of imported stores

Every parameter has a bound, so that no hash that is accepted can cost a check its memory or its time.
"""

import base64
import hashlib
import hmac
import os
import re
from functools import cache
from typing import TYPE_CHECKING

from vibemq.errors import ConfigInvalid

if TYPE_CHECKING:
    from argon2 import PasswordHasher

PASSWORD_BYTES_MAX = 1024
"""In UTF-8. A longer one is refused where it is set, and is wrong where it is offered."""
MEMORY_BYTES_MAX = 64 * 1024 * 1024
"""Of one check."""
WORK_MAX = 1 << 21
"""scrypt, n * r * p of one check: some hundred milliseconds."""
R_MAX, P_MAX = 32, 16
SALT_BYTES = range(8, 65)
SCRYPT_HASH_BYTES = 32
ARGON2_PASSES_MAX, ARGON2_LANES_MAX = 10, 16
ARGON2_WORK_KIB_MAX = 192 << 10
"""Memory times passes of one check."""
BCRYPT_LOG2_ROUNDS = range(4, 14)
BCRYPT_BYTES = 72
"""bcrypt looks at no more of a password."""

_ARGON2_FORM = re.compile(
    r"\$argon2id\$v=19\$m=([1-9][0-9]{0,6}),t=([1-9][0-9]{0,2}),p=([1-9][0-9]{0,2})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)"
)
_SCRYPT_FORM = re.compile(
    r"scrypt\$([1-9][0-9]?)\$([1-9][0-9]{0,3})\$([1-9][0-9]{0,3})\$([A-Za-z0-9+/]+={0,2})\$([A-Za-z0-9+/]+={0,2})"
)
_BCRYPT_FORM = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")
"""The last character of the salt has two bits that count; bcrypt takes no others."""
_REMEDY = "make one with `vibemq-admin user hash`"


@cache
def _argon2() -> "PasswordHasher":
    # Imported for the first password, here and below: most programs with a broker inside have none.
    from argon2 import PasswordHasher

    # 19 MiB in two passes: about 40 ms, and what OWASP gives as the least for argon2id.
    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


def hash_password(password: str) -> str:
    """A fresh argon2id hash. Blocking, tens of milliseconds."""
    return _argon2().hash(_encoded(password))


def verify_password(password: str, stored: str) -> bool:
    """Whether the password fits; takes as long as the stored parameters ask for. Blocking.

    Raises:
        ConfigInvalid: `stored` is no hash that can be checked.
    """
    check_hash(stored)
    secret = _encoded(password)
    # Whatever is too long is compared all the same, so that every wrong password costs as much.
    return _matches(secret[:PASSWORD_BYTES_MAX], stored) and len(secret) <= PASSWORD_BYTES_MAX


def _matches(secret: bytes, stored: str) -> bool:
    if stored.startswith("$argon2"):
        from argon2.exceptions import VerificationError

        try:
            return _argon2().verify(stored, secret)
        except VerificationError:
            return False
    # To bcrypt `pw` and `pw\0pw` are one password, to scrypt `pw` and `pw\0`: the hash alone does not tell them apart.
    if stored.startswith("$2"):
        import bcrypt

        return bcrypt.checkpw(secret[:BCRYPT_BYTES], stored.encode()) and b"\0" not in secret
    salt, expected, log2_n, r, p = _parse_scrypt(stored)
    return hmac.compare_digest(_scrypt(secret, salt, log2_n, r, p), expected) and not secret.endswith(b"\0")


def check_hash(stored: str) -> None:
    """Raises ConfigInvalid when no password can be checked against it; says what is wrong without repeating it."""
    if stored.startswith("$argon2"):
        _check_argon2(stored)
    elif stored.startswith("$2"):
        form = _BCRYPT_FORM.fullmatch(stored)
        if form is None:
            raise ConfigInvalid(f"it begins like a bcrypt hash and is none; {_REMEDY}")
        if int(form[1]) not in BCRYPT_LOG2_ROUNDS:
            most = BCRYPT_LOG2_ROUNDS.stop - 1
            raise ConfigInvalid(f"its bcrypt cost {form[1]} is out of bounds: 4 to {most}; {_REMEDY}")
    else:
        _parse_scrypt(stored)


def is_outdated(stored: str, password: str) -> bool:
    """Whether the password should be hashed again, now that it was found to fit."""
    if stored.startswith("$2") and len(_encoded(password)) > BCRYPT_BYTES:
        # What is behind these bytes may be wrong, and would be right from now on.
        return False
    return not stored.startswith("$argon2") or _argon2().check_needs_rehash(stored)


def cost_of(stored: str) -> str:
    """The kind and parameters of a hash, which decide how long a check takes."""
    return stored.rsplit("$", 1)[0][:7] if stored.startswith("$2") else stored.rsplit("$", 2)[0]


def decoy_of(stored: str) -> str:
    """A hash of the same cost that no password has. Raises as `check_hash` does."""
    check_hash(stored)
    if stored.startswith("$2"):
        import bcrypt

        return stored[:7] + bcrypt.gensalt(4).decode()[7:] + "." * 31
    head, salt, digest = stored.rsplit("$", 2)
    fresh = base64.b64encode(os.urandom(len(base64.b64decode(_padded(digest))))).decode()
    return f"{head}${salt}${fresh if head.startswith('scrypt') else fresh.rstrip('=')}"


def _check_argon2(stored: str) -> None:
    form = _ARGON2_FORM.fullmatch(stored)
    if form is None:
        raise ConfigInvalid(f"it is not of the form $argon2id$v=19$m=19456,t=2,p=1$<salt>$<hash>; {_REMEDY}")
    memory_kib, passes, lanes = (int(form[number]) for number in (1, 2, 3))
    fits = 8 * lanes <= memory_kib <= MEMORY_BYTES_MAX >> 10 and memory_kib * passes <= ARGON2_WORK_KIB_MAX
    if not fits or not 1 <= passes <= ARGON2_PASSES_MAX or not 1 <= lanes <= ARGON2_LANES_MAX:
        raise ConfigInvalid(
            f"its parameters m={memory_kib},t={passes},p={lanes} are out of bounds: m from 8 * p to "
            f"{MEMORY_BYTES_MAX >> 10}, t at most {ARGON2_PASSES_MAX}, p at most {ARGON2_LANES_MAX}, m * t at most "
            f"{ARGON2_WORK_KIB_MAX}; {_REMEDY}"
        )
    try:
        sizes = [_canonical_size(form[number]) for number in (4, 5)]
    except ValueError:
        raise ConfigInvalid(f"its salt or its hash is not base64; {_REMEDY}") from None
    if sizes[0] not in SALT_BYTES or sizes[1] not in range(16, 65):
        raise ConfigInvalid(f"its salt must have 8 to 64 bytes and its hash 16 to 64; {_REMEDY}")


def _parse_scrypt(stored: str) -> tuple[bytes, bytes, int, int, int]:
    """(salt, hash, log2 n, r, p), all within bounds that make every check possible. Raises ConfigInvalid."""
    form = _SCRYPT_FORM.fullmatch(stored)
    if form is None:
        raise ConfigInvalid(f"it is neither an argon2id nor a scrypt nor a bcrypt hash; {_REMEDY}")
    log2_n, r, p = (int(form[number]) for number in (1, 2, 3))
    fits = log2_n < 16 * r and 128 * r << log2_n <= MEMORY_BYTES_MAX and r * p << log2_n <= WORK_MAX
    if not fits or r > R_MAX or p > P_MAX:
        raise ConfigInvalid(
            f"its parameters scrypt${log2_n}${r}${p} are out of bounds: r at most {R_MAX}, p at most {P_MAX}, log2(n) "
            f"below 16 * r, 128 * n * r at most {MEMORY_BYTES_MAX:,} bytes, n * r * p at most {WORK_MAX:,}; {_REMEDY}"
        )
    try:
        salt, digest = (base64.b64decode(form[number], validate=True) for number in (4, 5))
    except ValueError:
        raise ConfigInvalid(f"its salt or its hash is not base64; {_REMEDY}") from None
    if len(salt) not in SALT_BYTES or len(digest) != SCRYPT_HASH_BYTES:
        raise ConfigInvalid(
            f"its salt must have {SALT_BYTES.start} to {SALT_BYTES.stop - 1} bytes and its hash {SCRYPT_HASH_BYTES}; "
            f"{_REMEDY}"
        )
    return salt, digest, log2_n, r, p


def _scrypt(secret: bytes, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
    # OpenSSL also counts what it needs beside the table.
    return hashlib.scrypt(
        secret, salt=salt, n=1 << log2_n, r=r, p=p, maxmem=2 * MEMORY_BYTES_MAX, dklen=SCRYPT_HASH_BYTES
    )


def _encoded(password: str) -> bytes:
    return password.encode(errors="surrogatepass")


def _canonical_size(text: str) -> int:
    """Bytes. Raises ValueError for what is no base64, or has bits that do not count: argon2 takes no such text."""
    decoded = base64.b64decode(_padded(text), validate=True)
    if base64.b64encode(decoded).rstrip(b"=") != text.encode():
        raise ValueError("bits that do not count")
    return len(decoded)


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)
