"""BlazingMQ's queue URIs, and the names of our queues that they stand for.

    bmq://DOMAIN/QUEUE[?id=APPID]          DOMAIN: [-A-Za-z0-9._]+, or the same with a tier: DOMAIN.~TIER
    our name                               DOMAIN..QUEUE, with a tier DOMAIN._.TIER..QUEUE

The first `..` of a name divides it, so that each name stands for one URI: a domain that contains `..` or `._.`, or that
ends with a period, cannot be served. A domain whose names are plain gives its queues their own names, without a domain.
"""

import re
from typing import NamedTuple

from vibemq.errors import InvalidQueueName
from vibemq.model.options import QUEUE_NAME_UNITS_MAX

SCHEME = "bmq://"
DIVIDER = ".."
_TIER, _TIER_HERE = ".~", "._."
_URI = re.compile(
    r"bmq://([-A-Za-z0-9._]+(?:\.~[-A-Za-z0-9]+)?)/([-A-Za-z0-9_.]{1,64})(?:\?id=([-A-Za-z0-9_.]{1,64}))?", re.ASCII
)
_APP_ID = re.compile(r"[-A-Za-z0-9_.]{1,64}", re.ASCII)
URI_LENGTH_MAX = 512


class BadUri(InvalidQueueName):
    """What a client calls a queue cannot be the name of one."""


class QueueUri(NamedTuple):
    domain: str
    """With its tier."""
    queue: str
    app_id: str | None = None

    @property
    def canonical(self) -> str:
        return f"{SCHEME}{self.domain}/{self.queue}"


def parse_uri(text: str) -> QueueUri:
    """Raises BadUri."""
    found = _URI.fullmatch(text) if len(text) <= URI_LENGTH_MAX else None
    if found is None:
        raise BadUri(
            f"{text[:128]!r} is not the URI of a queue; write bmq://DOMAIN/QUEUE, with letters, digits, '-', '_' or "
            "'.' and at most 64 characters in the queue, and ?id=APPID behind it to read a fan-out queue"
        )
    return QueueUri(*found.groups())


def is_app_id(text: str) -> bool:
    return _APP_ID.fullmatch(text) is not None


def check_domain(domain: str) -> str:
    """Return the domain if its queues can be named here. Raises BadUri."""
    if parse_uri(f"{SCHEME}{domain}/q").domain != domain:
        raise BadUri(f"{domain!r} is not the name of a domain")
    ours = domain.replace(_TIER, _TIER_HERE)
    if DIVIDER in ours or ours.endswith(".") or ours.replace(_TIER_HERE, _TIER, 1) != domain:
        raise BadUri(f"domain {domain!r} cannot be served: its name contains '..' or '._.', or ends with a period")
    return domain


def queue_name(uri: QueueUri, *, plain: bool = False) -> str:
    """Name of our queue.

    Args:
        plain: the domain's queues are called as their URIs call them, without the domain.

    Raises:
        BadUri: the URI stands for no name.
    """
    if plain:
        if DIVIDER in uri.queue:
            raise BadUri(f"queue {uri.queue!r} contains '..', which a domain with plain names does not allow")
        return uri.queue
    check_domain(uri.domain)
    name = uri.domain.replace(_TIER, _TIER_HERE) + DIVIDER + uri.queue
    if len(name) > QUEUE_NAME_UNITS_MAX:
        raise BadUri(f"{uri.canonical[:128]!r} is too long: its queue would have a name of {len(name)} characters")
    return name


def uri_of(name: str, plain_domain: str | None = None) -> QueueUri | None:
    """The URI whose queue has this name; None: there is none. `plain_domain`: whose queues have plain names."""
    domain, divider, queue = name.partition(DIVIDER)
    if not divider:
        return None if plain_domain is None else _uri_or_none(plain_domain, name)
    return _uri_or_none(domain.replace(_TIER_HERE, _TIER, 1), queue)


def _uri_or_none(domain: str, queue: str) -> QueueUri | None:
    try:
        return parse_uri(f"{SCHEME}{domain}/{queue}")
    except BadUri:
        return None
