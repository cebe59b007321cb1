"""Observers of single publishes and deliveries: tracing, metrics. A client without them pays one comparison."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from vibemq.client.address import ClientSettings
from vibemq.client.publishing.outgoing import Outgoing
from vibemq.errors import ConfigInvalid
from vibemq.model.arguments import misfit
from vibemq.model.rows import HEADERS_MAX

logger = logging.getLogger(__name__)

OF_THE_CLIENT = 4
"""Headers that the client may add itself: content type, priority, and the two of a request."""
_ONE_BODY = (str, bytes, bytearray, memoryview, Mapping)


class ObservedMessage(Protocol):
    """A delivered message, as a hook sees it (`vibemq.Message`)."""

    @property
    def id(self) -> str: ...

    @property
    def queue(self) -> str: ...

    @property
    def sequence(self) -> int: ...

    @property
    def attempt(self) -> int: ...

    @property
    def payload(self) -> bytes: ...

    @property
    def headers(self) -> dict[str, str]: ...

    @property
    def group(self) -> str | None: ...

    @property
    def damaged(self) -> bool: ...


class PublishObservation(Protocol):
    """One call that publishes."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Added to each of its messages."""

    def end(self, messages: int, error: BaseException | None) -> None:
        """The call returns, or raises `error`. With `wait=False` and in a `Publisher` the messages are on their way and
        not confirmed."""


class ProcessObservation(Protocol):
    """One block of `message.process()`."""

    def end(self, verb: str, error: BaseException | None) -> None:
        """`verb`: how the message was settled: ack, retry, reject, release."""


class ClientHook(Protocol):
    """Given to `vibemq.connect(hooks=…)`. It is called by the thread that publishes or processes, and `received` by the
    client's event loop; none of it may wait. What it raises at a beginning is raised there; later it is logged."""

    def publishing(self, settings: ClientSettings, queue: str, message: Outgoing | None) -> PublishObservation | None:
        """Before a call publishes. `message`: None when it publishes many."""

    def received(self, settings: ClientSettings, queue: str, messages: int) -> None:
        """A delivery has come."""

    def processing(self, settings: ClientSettings, message: ObservedMessage) -> ProcessObservation | None:
        """A block of `message.process()` begins."""


_of_every_client: list[ClientHook] = []


def add_to_every_client(hook: ClientHook) -> None:
    """Clients that are made from now on have it."""
    if hook not in _of_every_client:
        _of_every_client.append(hook)


def remove_from_every_client(hook: ClientHook) -> None:
    """Clients that are made from now on do not have it."""
    if hook in _of_every_client:
        _of_every_client.remove(hook)


class PublishScope:
    """What the hooks of one call add to its messages; the call sets `messages`, their number."""

    def __init__(self, observations: list[PublishObservation]) -> None:
        self.observations = observations
        self.headers: dict[str, str] = {}
        for observation in observations:
            self.headers.update(observation.headers)
        self.messages = 1

    def add_to(self, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """Those of the message win. One that would have too many gets none: observing never has a message refused. What
        are no headers is left to its reader."""
        if not self.headers or not isinstance(headers, Mapping | None):
            return headers
        both = {**self.headers, **(headers or {})}
        return both if len(both) <= HEADERS_MAX - OF_THE_CLIENT else headers

    def add_to_each(self, messages: Iterable[Any]) -> Iterable[Any]:
        """Those that are bodies alone are left as they are. What is no iterable of messages is left to its reader."""
        if not self.headers or isinstance(messages, _ONE_BODY) or not isinstance(messages, Iterable):
            return messages
        return (
            replace(item, headers=self.add_to(item.headers)) if isinstance(item, Outgoing) else item
            for item in messages
        )


class ProcessScope:
    """Around one block of `message.process()`."""

    def __init__(self, observations: list[ProcessObservation]) -> None:
        self._observations = observations

    def end(self, verb: str, error: BaseException | None) -> None:
        for observation in reversed(self._observations):
            _call(observation.end, verb, error)


class Hooks:
    """Those of one client."""

    def __init__(self, settings: ClientSettings, hooks: Sequence[ClientHook]) -> None:
        self._settings = settings
        self._hooks = hooks

    @contextmanager
    def publishing(self, queue: str, message: Outgoing | None = None) -> Iterator[PublishScope]:
        """Around one call that publishes; adds the hooks' headers to `message`. None: it publishes many."""
        begun: list[PublishObservation] = []
        try:
            for hook in self._hooks:
                observation = hook.publishing(self._settings, queue, message)
                if observation is not None:
                    begun.append(observation)
        except BaseException as failed:
            for observation in reversed(begun):
                _call(observation.end, 0, failed)
            raise
        scope = PublishScope(begun)
        if message is not None:
            message.headers = scope.add_to(message.headers)
        error: BaseException | None = None
        try:
            yield scope
        except BaseException as raised:
            error = raised
            raise
        finally:
            for observation in reversed(scope.observations):
                _call(observation.end, scope.messages, error)

    def received(self, queue: str, messages: int) -> None:
        for hook in self._hooks:
            _call(hook.received, self._settings, queue, messages)

    def processing(self, message: ObservedMessage) -> ProcessScope:
        """Raises what a hook raises; then nothing has begun."""
        begun: list[ProcessObservation] = []
        try:
            for hook in self._hooks:
                observation = hook.processing(self._settings, message)
                if observation is not None:
                    begun.append(observation)
        except BaseException as failed:
            ProcessScope(begun).end("", failed)
            raise
        return ProcessScope(begun)


def hooks_of_a_client(settings: ClientSettings, given: Iterable[ClientHook]) -> Hooks | None:
    """Those of every client and those that it was given; None when there are none."""
    if not isinstance(given, Iterable):
        raise misfit("hooks", given, "a list of ClientHook", ConfigInvalid)
    own = tuple(given)
    for hook in own:
        if not all(callable(getattr(hook, name, None)) for name in ("publishing", "received", "processing")):
            raise misfit("an entry of hooks", hook, "a ClientHook: publishing, received, processing", ConfigInvalid)
    hooks = (*_of_every_client, *own)
    return Hooks(settings, hooks) if hooks else None


def _call(told: Callable[..., None], *arguments: Any) -> None:
    try:
        told(*arguments)
    except Exception:
        logger.exception("a hook of the client has failed")
