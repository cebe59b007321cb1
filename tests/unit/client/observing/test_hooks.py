import logging

import pytest

from vibemq.client import ClientSettings, Outgoing
from vibemq.client.observing.hooks import Hooks, ObservedMessage, hooks_of_a_client


class Observation:
    def __init__(self, name: str, log: list[str], headers: dict[str, str]) -> None:
        self.headers = headers
        self._name = name
        self._log = log

    def end(self, what: object, error: BaseException | None) -> None:
        self._log.append(f"{self._name} {what} {error!r}")
        if self._name == "broken":
            raise RuntimeError("the hook's own")


class Hook:
    def __init__(self, name: str, log: list[str], **headers: str) -> None:
        self.name = name
        self._log = log
        self._headers = headers

    def publishing(self, settings: ClientSettings, queue: str, message: Outgoing | None) -> Observation | None:
        return None if self.name == "blind" else Observation(self.name, self._log, self._headers)

    def received(self, settings: ClientSettings, queue: str, messages: int) -> None:
        self._log.append(f"{self.name} received {messages} of {queue}")
        if self.name == "broken":
            raise RuntimeError("the hook's own")

    def processing(self, settings: ClientSettings, message: ObservedMessage) -> Observation | None:
        return None if self.name == "blind" else Observation(self.name, self._log, {})


def made(*hooks: Hook) -> Hooks:
    found = hooks_of_a_client(ClientSettings(), hooks)
    assert found is not None
    return found


def test_no_hooks_are_none() -> None:
    assert hooks_of_a_client(ClientSettings(), ()) is None


def test_what_are_no_headers_is_left_as_it_is() -> None:
    log: list[str] = []
    message = Outgoing(None, headers=[("a", "b")])  # type: ignore[arg-type]  # the point of it
    with made(Hook("a", log, x="1")).publishing("q", message) as scope:
        assert message.headers == [("a", "b")]
        [many] = scope.add_to_each([message])
        assert many.headers == [("a", "b")]
    assert log == ["a 1 None"]


def test_what_began_last_ends_first_and_a_blind_one_is_left_out() -> None:
    log: list[str] = []
    hooks = made(Hook("a", log, x="1"), Hook("blind", log), Hook("b", log, y="2"))
    message = Outgoing(None, headers={"x": "mine"})
    with hooks.publishing("q", message) as scope:
        assert message.headers == {"x": "mine", "y": "2"}
        scope.messages = 3
    with pytest.raises(ValueError, match="no"), hooks.publishing("q"):
        raise ValueError("no")
    assert log == ["b 3 None", "a 3 None", "b 1 ValueError('no')", "a 1 ValueError('no')"]


def test_a_hook_that_fails_late_is_logged_and_the_others_are_told(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    hooks = made(Hook("a", log), Hook("broken", log))
    with caplog.at_level(logging.ERROR):
        with hooks.publishing("q", Outgoing(None)):
            pass
        hooks.received("q", 2)
    assert log == ["broken 1 None", "a 1 None", "a received 2 of q", "broken received 2 of q"]
    assert [record.message for record in caplog.records] == ["a hook of the client has failed"] * 2


def test_what_has_begun_ends_when_a_later_hook_does_not_begin() -> None:
    class Refusing(Hook):
        def publishing(self, settings: ClientSettings, queue: str, message: Outgoing | None) -> Observation | None:
            raise RuntimeError("no")

        def processing(self, settings: ClientSettings, message: ObservedMessage) -> Observation | None:
            raise RuntimeError("no")

    log: list[str] = []
    hooks = made(Hook("a", log), Refusing("b", log))
    with pytest.raises(RuntimeError, match="no"), hooks.publishing("q"):
        log.append("published")
    with pytest.raises(RuntimeError, match="no"):
        hooks.processing(object())  # type: ignore[arg-type]
    assert log == ["a 0 RuntimeError('no')", "a  RuntimeError('no')"]


def test_many_messages_keep_their_own_headers_and_strange_input_is_left_to_its_reader() -> None:
    hooks = made(Hook("a", [], x="1"))
    with hooks.publishing("q") as scope:
        given = [1, Outgoing(2, headers={"y": "2"}), Outgoing(3)]
        first, second, third = scope.add_to_each(given)
        assert (first, second.headers, third.headers) == (1, {"y": "2", "x": "1"}, {"x": "1"})
        assert given[2] == Outgoing(3)
        for strange in ("text", b"bytes", {"a": 1}, 7):
            assert scope.add_to_each(strange) is strange  # type: ignore[arg-type]
