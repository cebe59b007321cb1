"""Users of every kind, and a broker that knows them."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.cursor_peer import Peer
from vibemq.auth.passwords import _scrypt

PASSWORD = "pw"
SINGLE = ("publish", "subscribe", "create", "delete", "purge", "inspect", "list", "manage")
"""Actions on queues; there is a user of each name who may do nothing else, on queues `a.*`."""


def cheap_hash(password: str = PASSWORD) -> str:
    """The cheapest there is: these are no tests of the password check."""
    salt = b"saltsalt"
    parts = (base64.b64encode(part).decode() for part in (salt, _scrypt(password.encode(), salt, 1, 1, 1)))
    return "$".join(("scrypt", "1", "1", "1", *parts))


def user(name: str, *permissions: str) -> str:
    """TOML of a user."""
    listed = ", ".join(permissions)
    return f'[auth.users.{name}]\npassword_hash = "{cheap_hash()}"\npermissions = [{listed}]\n'


def queues(pattern: str, *actions: str) -> str:
    return f'{{ queues = "{pattern}", actions = {list(actions)} }}'.replace("'", '"')


def transactions(pattern: str) -> str:
    return f'{{ transactions = "{pattern}", actions = ["transact"] }}'


def groups(pattern: str) -> str:
    return f'{{ groups = "{pattern}", actions = ["manage"] }}'


EVERYBODY = "\n".join(
    (
        '[auth]\nsuperuser = "root"\nsuperuser_password = "pw"',
        user("owner", queues("a.*", "*"), transactions("a-*")),
        user("none"),
        user("transact", transactions("a-*")),
        *(user(action, queues("a.*", action)) for action in SINGLE),
    )
)


@contextmanager
def connected(port: int, name: str, *, token: str = "", password: str = PASSWORD) -> Iterator[Peer]:
    """Over the native protocol; `anonymous` brings no credentials, and who has a token nothing else."""
    headers = {} if name == "anonymous" else {"authUsername": name, "authPassword": password}
    if token:
        headers = {"authToken": token}
    peer = Peer(port, headers=headers)
    try:
        yield peer
    finally:
        peer.close()
