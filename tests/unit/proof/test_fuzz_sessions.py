"""The conversations' harness: a sound broker passes, and one with a door left open does not."""

from pathlib import Path

import pytest

from tests.proof import session_fuzz
from tests.proof.contract import Budget, Result
from vibemq.auth.users import Accounts
from vibemq.protocols.native.frame_parser import FrameParser
from vibemq.protocols.native.session import NativeSession
from vibemq.protocols.session import Principal
from vibemq.server.access.admission import PeerAdmission

SEED = 11
SESSIONS = 60


def run(sessions: int = SESSIONS) -> Result:
    return session_fuzz.run(Budget(sessions, 120, SEED, Path()))


def test_a_sound_broker_passes() -> None:
    result = run()
    assert result.findings == []
    assert result.cases >= SESSIONS
    assert result.figures["commands to the engine"] > result.cases


def test_an_open_door_before_the_login_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that let everybody in, a guard that lets everything pass, and nobody who asks again who that is."""
    taken = NativeSession.principal.fget
    assert taken is not None
    monkeypatch.setattr(PeerAdmission, "check", lambda self, principal, command, now: None)
    monkeypatch.setattr(Accounts, "ended", lambda self, principal, now: "")
    monkeypatch.setattr(NativeSession, "commands", _as_if_known(NativeSession.commands))
    assert any("stranger" in finding.what for finding in run().findings)


def _as_if_known(commands):
    """Reads on before the login, as a session with a wrong order of checks would."""

    def read(self: NativeSession):
        state = self._state
        if state.principal is not None or state.authenticating:
            return commands(self)
        state.principal = Principal("nobody")
        try:
            return commands(self)
        finally:
            if not state.authenticating:
                state.principal = None

    return read


def test_decompression_before_the_login_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = FrameParser._frame

    def careless(self: FrameParser, data: bytes, frame) -> int:
        if frame.flag:
            data = self._inflater.inflate(data[frame.start : frame.end], frame.flag)
            frame = frame._replace(flag=0, start=0, end=len(data))
        return sound(self, data, frame)

    monkeypatch.setattr(FrameParser, "_frame", careless)
    assert any("decompressed" in finding.what for finding in run(400).findings)


def test_a_message_that_reaches_the_wrong_client_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PeerAdmission, "check", lambda self, principal, command, now: None)
    monkeypatch.setattr(Accounts, "ended", lambda self, principal, now: "")
    assert any("witness" in finding.what for finding in run(200).findings)
