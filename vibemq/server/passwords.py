"""Password hashes: scrypt, as text that carries its own parameters.

scrypt$<log2 n>$<r>$<p>$<salt, base64>$<hash, base64>
"""

import base64
import hashlib
import hmac
import os

from vibemq.errors import ConfigInvalid

LOG2_N, R, P = 14, 8, 1
"""16 MiB and about 50 ms each."""
MEMORY_BYTES_MAX = 128 * 1024 * 1024


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
    """(salt, hash, log2 n, r, p). Raises ConfigInvalid without repeating the text."""
    try:
        kind, log2_n, r, p, salt, digest = stored.split("$")
        parameters = int(log2_n), int(r), int(p)
        if kind == "scrypt" and 128 * parameters[1] * 2 ** parameters[0] < MEMORY_BYTES_MAX and parameters[2] <= 16:
            return base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True), *parameters
    except (ValueError, OverflowError):
        pass
    raise ConfigInvalid("a password_hash is not of the form scrypt$14$8$1$salt$hash; make one with hash_password")


def _derive(password: str, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode(errors="surrogatepass"), salt=salt, n=2**log2_n, r=r, p=p, maxmem=MEMORY_BYTES_MAX, dklen=32
    )
