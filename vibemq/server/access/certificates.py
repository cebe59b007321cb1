"""Whom a client's certificate stands for, by the rule of its listener. The TLS handshake has checked it before."""

from collections.abc import Mapping
from typing import Any

from vibemq.config import Tls

_SAN = {"dns": "DNS", "uri": "URI", "email": "email"}
"""The kinds of alternative names, as the `ssl` module calls them."""


def users_in(certificate: Mapping[str, Any] | None, tls: Tls | None) -> tuple[str, ...]:
    """Names of users, known or not, that the certificate (as `getpeercert` gives it) stands for; () without a rule."""
    if not certificate or tls is None or tls.identity is None:
        return ()
    if tls.identity == "cn":
        parts = (part for group in certificate.get("subject", ()) for part in group)
        values = [value for kind, value in parts if kind == "commonName"]
    else:
        values = [value for kind, value in certificate.get("subjectAltName", ()) if kind == _SAN[tls.identity]]
    before, _, after = tls.identity_pattern.partition("{}")
    names = (
        value[len(before) : len(value) - len(after)]
        for value in values
        if value.startswith(before) and value.endswith(after) and len(value) > len(before) + len(after)
    )
    return tuple(dict.fromkeys(names))
