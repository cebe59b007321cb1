"""Whom a client's certificate stands for, by the rule of its listener (the TLS handshake has checked it before); and
when a certificate of the broker's own is valid."""

import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
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
        if len(set(values)) > 1:
            # Authorities check one of them, and not all the same one.
            return ()
    else:
        values = [value for kind, value in certificate.get("subjectAltName", ()) if kind == _SAN[tls.identity]]
    before, _, after = tls.identity_pattern.partition("{}")
    names = (
        value[len(before) : len(value) - len(after)]
        for value in values
        if value.startswith(before) and value.endswith(after) and len(value) > len(before) + len(after)
    )
    return tuple(dict.fromkeys(names))


_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x17, 0x18, 0xA0
_BEFORE_VALIDITY = 3
"""Serial number, signature algorithm and issuer."""


def validity(file: Path) -> tuple[datetime, datetime]:
    """The first and the last instant of the first certificate in a PEM file. Blocks.

    Raises:
        OSError
        ValueError: there is no certificate that can be read.
    """
    text = file.read_text(encoding="ascii", errors="replace")
    begin = text.find(_BEGIN)
    end = text.find(_END, begin)
    if begin < 0 or end < 0:
        raise ValueError(f"{file} has no certificate")
    certificate = ssl.PEM_cert_to_DER_cert(text[begin : end + len(_END)])
    signed = _inner(_inner(certificate))
    fields = [part for part in _parts(signed) if part[0] != _VERSION]
    if len(fields) <= _BEFORE_VALIDITY:
        raise ValueError(f"{file} has a certificate that cannot be read")
    first, last = [_instant(kind, text.decode("ascii")) for kind, text in _parts(fields[_BEFORE_VALIDITY][1])]
    return first, last


def _inner(data: bytes) -> bytes:
    """The content of the first DER value. Raises ValueError."""
    for _, content in _parts(data):
        return content
    raise ValueError("a DER value is missing")


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, content) of each DER value in a row. Raises ValueError."""
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise ValueError("a DER value is cut")
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            length_bytes = size & 0x7F
            size = int.from_bytes(data[at : at + length_bytes])
            at += length_bytes
        if at + size > len(data):
            raise ValueError("a DER value is cut")
        yield tag, data[at : at + size]
        at += size


def _instant(kind: int, text: str) -> datetime:
    if kind not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError("the certificate's validity is no time")
    # Two digits mean 1950 to 2049.
    year = "" if kind == _GENERALIZED_TIME else "19" if text[:2] >= "50" else "20"
    return datetime.strptime(year + text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
