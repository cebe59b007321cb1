"""Queues that the settings declare: made at the start if they are missing, left as they are otherwise."""

import logging
from collections.abc import Mapping
from typing import Any

from vibemq.errors import ConfigInvalid, InvalidOptions, QueueExists, VibeMQError
from vibemq.model.commands import Command, CreateQueue
from vibemq.model.options import QueueOptions, options_from_dict
from vibemq.server.local_session import LocalSession

log = logging.getLogger("vibemq.declared")


async def declare(queues: Mapping[str, dict[str, Any]], local_session: LocalSession, *, defaults: QueueOptions) -> None:
    """Create what is missing. A full disk is no reason not to start: somebody may want to drain it.

    Raises:
        ConfigInvalid: options that this broker's storage cannot keep.
    """
    for name, options in queues.items():
        wanted = options_from_dict(options, defaults)

        def create(session: int, token: int, name: str = name, wanted: QueueOptions = wanted) -> Command:
            return CreateQueue(session, token, name, wanted, must_match=True)

        try:
            await local_session.ask(create)
        except InvalidOptions as error:
            raise ConfigInvalid(f"setting queues.{name}: {error}") from error
        except QueueExists as error:
            log.warning("the settings declare it otherwise, and it is left as it is: %s", error)
        except VibeMQError as error:
            log.error("queue %r, declared in the settings, cannot be created: %s", name, error)
