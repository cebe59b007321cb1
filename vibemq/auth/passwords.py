"""Password hashes: scrypt, as text that carries its own parameters.

scrypt$<log2 n>$<r>$<p>$<salt, base64>$<hash, base64>
"""

import base64
import hashlib
import hmac
import os
import re

from vibemq.errors import ConfigInvalid

LOG2_N, R, P = 14, 8, 1
"""16 MiB and about 50 ms each."""
MEMORY_BYTES_MAX = 64 * 1024 * 1024
"""Of one check: 128 * n * r bytes."""
WORK_MAX = 1 << 21
"""n * r * p of one check: sixteen times the work of our own hashes, well below a second."""
R_MAX, P_MAX = 32, 16
SALT_BYTES = range(8, 65)
HASH_BYTES = 32

_FORM = re.compile(
    r"scrypt\$([1-9][0-9]?)\$([1-9][0-9]{0,3})\$([1-9][0-9]{0,3})\$([A-Za-z0-9+/]+={0,2})\$([A-Za-z0-9+/]+={0,2})"
)


def hash_password(password: str) -> str:
    """A fresh hash for `auth.users.<name>.password_hash`."""
    salt = os.urandom(16)
    parts = (salt, _derive(password, salt, LOG2_N, R, P))
    return "$".join(["scrypt", str(LOG2_N), str(R), str(P), *(base64.b64encode(part).decode() for part in parts)])


def verify_password(password: str, stored: str) -> bool:
    """Whether the password fits; takes as long as the stored parameters ask for. Blocking.

    Raises:
        ConfigInvalid: `stored` is no hash of ours.
    """
    salt, expected, log2_n, r, p = parse_hash(stored)
    return hmac.compare_digest(_derive(password, salt, log2_n, r, p), expected)


def parse_hash(stored: str) -> tuple[bytes, bytes, int, int, int]:
    """(salt, hash, log2 n, r, p), all within bounds that make every check possible.

    Raises:
        ConfigInvalid: says what is wrong, without repeating the text.
    """
    form = _FORM.fullmatch(stored)
    if form is None:
        raise ConfigInvalid("it is not of the form scrypt$14$8$1$<salt>$<hash>; make one with `hash_password`")
    log2_n, r, p = (int(form[number]) for number in (1, 2, 3))
    fits = log2_n < 16 * r and 128 * r << log2_n <= MEMORY_BYTES_MAX and r * p << log2_n <= WORK_MAX
    if not fits or r > R_MAX or p > P_MAX:
        raise ConfigInvalid(
            f"its parameters scrypt${log2_n}${r}${p} are out of bounds: r at most {R_MAX}, p at most {P_MAX}, log2(n) "
            f"below 16 * r, 128 * n * r at most {MEMORY_BYTES_MAX:,} bytes, n * r * p at most {WORK_MAX:,}; make one "
            "with `hash_password`"
        )
    try:
        salt, digest = (base64.b64decode(form[number], validate=True) for number in (4, 5))
    except ValueError:
        raise ConfigInvalid("its salt or its hash is not base64; make one with `hash_password`") from None
    if len(salt) not in SALT_BYTES or len(digest) != HASH_BYTES:
        raise ConfigInvalid(
            f"its salt must have {SALT_BYTES.start} to {SALT_BYTES.stop - 1} bytes and its hash {HASH_BYTES}; make "
            "one with `hash_password`"
        )
    return salt, digest, log2_n, r, p


def _derive(password: str, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode(errors="surrogatepass"),
        salt=salt,
        n=1 << log2_n,
        r=r,
        p=p,
        # OpenSSL also counts what it needs beside the table.
        maxmem=2 * MEMORY_BYTES_MAX,
        dklen=HASH_BYTES,
    )
