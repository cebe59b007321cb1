"""What a client may do before it is known."""

import zlib

import pytest

from tests.interop.blazingmq.model_sdk import ModelSdk
from vibemq.errors import RemoteProtocolError
from vibemq.protocols.blazingmq import BlazingmqSession, BlazingmqSettings
from vibemq.protocols.blazingmq.codec.control import encode_authentication
from vibemq.protocols.blazingmq.codec.events import ControlCodec
from vibemq.protocols.blazingmq.codec.messages import AuthenticationRequest
from vibemq.protocols.blazingmq.codec.put import build_puts, put_message
from vibemq.protocols.blazingmq.session import PIPELINED_BYTES_MAX
from vibemq.protocols.blazingmq.settings import Domain
from vibemq.protocols.session import Authenticate, SessionLimits
from vibemq.testing.session_conformance import SOMEBODY, context

LOGIN = encode_authentication(ControlCodec.BER, AuthenticationRequest(mechanism="basic", data=b"somebody:secret"))
GUID = b"g" * 16


def stranger(**limits: int) -> BlazingmqSession:
    known = context(authentication=True, limits=SessionLimits(**limits))
    return BlazingmqSession(known, BlazingmqSettings(domains={"d": Domain()}))


def test_before_the_login_events_are_small() -> None:
    session = stranger(handshake_bytes_max=4_096)
    session.receive_data(b"\0\0\x10\x04" + ModelSdk().hello()[4:8])
    with pytest.raises(RemoteProtocolError):
        session.commands()
    assert session.closing


def test_before_the_login_nothing_is_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zlib, "decompressobj", lambda *arguments: pytest.fail("it was decompressed"))
    session = stranger()
    session.receive_data(build_puts([put_message(0, GUID, zlib.compress(b"\0" * 100_000), compression=1)]))
    with pytest.raises(RemoteProtocolError, match="identity"):
        session.commands()


@pytest.mark.parametrize("what", ["open", "post"])
def test_before_the_login_nothing_is_carried_out(what: str) -> None:
    sdk = ModelSdk()
    session = stranger()
    session.receive_data(sdk.open("bmq://d/q", 0)[1] if what == "open" else sdk.post(0, b"x"))
    with pytest.raises(RemoteProtocolError):
        session.commands()
    assert (session.closing, session.principal) == (True, None)


def test_what_comes_behind_the_credentials_waits_for_their_check() -> None:
    sdk = ModelSdk()
    session = stranger()
    session.receive_data(LOGIN + sdk.hello() + sdk.open("bmq://d/q", 0)[1])
    (asked,) = session.commands()
    assert isinstance(asked, Authenticate)
    assert not session.commands()
    session.authenticated(asked.token, SOMEBODY)
    assert session.commands()


def test_a_stranger_cannot_fill_memory_while_its_credentials_are_checked() -> None:
    session = stranger()
    session.receive_data(LOGIN)
    assert session.commands()
    session.receive_data(bytes(PIPELINED_BYTES_MAX + 1))
    with pytest.raises(RemoteProtocolError, match="credentials"):
        session.commands()
    assert session.closing


def test_a_second_login_gives_no_other_rights() -> None:
    session = stranger()
    session.receive_data(LOGIN)
    (asked,) = session.commands()
    assert isinstance(asked, Authenticate)
    session.authenticated(asked.token, SOMEBODY)
    session.receive_data(LOGIN)
    with pytest.raises(RemoteProtocolError, match="out of its place"):
        session.commands()
