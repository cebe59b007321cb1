"""The form that is posted to a subscriber's URL."""

from collections.abc import Mapping
from urllib.parse import quote_plus

import orjson

from vibemq.model.rows import RowView
from vibemq.protocols.eventmesh.http.codes import RequestCode
from vibemq.protocols.eventmesh.http.fields import BASE64, text_payload
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.eventmesh.messages import names
from vibemq.protocols.eventmesh.messages.cloudevent import write_event
from vibemq.protocols.eventmesh.messages.forms import form_of
from vibemq.protocols.eventmesh.messages.message import message_properties
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.messages.nesting import text_of

_SECRETS = frozenset({"username", "passwd", "password", "token", "ip", "authorization"})
"""Of publishers that send them along: not for subscribers."""


def push_headers(settings: EventMeshHttpSettings, *, sync: bool) -> dict[str, str]:
    code = RequestCode.HTTP_PUSH_CLIENT_SYNC if sync else RequestCode.HTTP_PUSH_CLIENT_ASYNC
    return {
        "content-type": "application/x-www-form-urlencoded; charset=UTF-8",
        "code": str(int(code)),
        "language": "JAVA",
        "version": "1.0",
        "eventmeshcluster": settings.cluster,
        "eventmeship": settings.address,
        "eventmeshenv": settings.environment,
        "eventmeshidc": settings.idc,
    }


def push_body(topic: str, row: bytes, sequence: int, now: int, *, asks: bool) -> bytes:
    """Args:
    asks: the subscription answers requests: the properties that bring a reply home are among `extFields`.
    """
    view = RowView(row)
    headers = view.headers
    more = _reply_properties(headers) if asks else {}
    properties = {
        name: text_of(value, f"the property {name[:64]!r}")
        for name, value in message_properties(headers).items()
        if name not in _SECRETS
    }
    if form_of(headers) is Form.CLOUDEVENT:
        content = write_event(headers.get(names.TOPIC, topic), view.message_id, view.payload, headers, more)
    else:
        content, encoded = text_payload(view.payload)
        if encoded:
            properties[names.ENCODING] = BASE64
    properties |= more
    number = properties.get("bizseqno") or properties.get("bizSeqNo") or f"{now:013d}{sequence % 10_000_000:07d}"
    unique = properties.get("uniqueid") or properties.get("uniqueId") or view.message_id
    return b"&".join(
        (
            b"content=" + _escaped(content),
            b"bizseqno=" + _escaped(number.encode()),
            b"bizSeqNo=" + _escaped(number.encode()),
            b"uniqueId=" + _escaped(unique.encode()),
            b"randomNo=%d%04d" % (now, sequence % 10_000),
            b"topic=" + _escaped(topic.encode()),
            b"extFields=" + _escaped(orjson.dumps(properties)),
        )
    )


def _reply_properties(headers: Mapping[str, str]) -> dict[str, str]:
    address = headers.get(names.REPLY_TO)
    if not address:
        return {}
    return {names.REPLY_TOKEN: address, names.REPLY_CLIENT: names.CLUSTER, names.REPLY_CLUSTER: names.CLUSTER}


_BLANK, _PERCENT = b" %"
_PLAIN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~"
_FEW = 24
"""Kinds of bytes to be escaped, of which each is replaced by itself."""
_LARGE_BYTES = 65_536
"""Of what is longer all is escaped: that takes two milliseconds for 1 MiB, whatever it holds."""


def _escaped(value: bytes) -> bytes:
    if len(value) > _LARGE_BYTES:
        return b"%" + value.hex("%").encode()
    kinds = set(value.translate(None, _PLAIN))
    kinds.discard(_BLANK)
    if len(kinds) > _FEW:
        return quote_plus(value).encode("ascii")
    # First what the escapes begin with.
    for kind in sorted(kinds, key=_PERCENT.__ne__):
        value = value.replace(bytes((kind,)), b"%%%02X" % kind)
    return value.replace(b" ", b"+")
