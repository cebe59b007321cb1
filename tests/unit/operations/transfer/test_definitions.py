"""Queues taken from a list: how far it comes when whoever has asked may not go on."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vibemq.auth.policy import Actor
from vibemq.errors import NotAuthorized
from vibemq.model.options import QueueOptions
from vibemq.operations.registry import Caller
from vibemq.operations.transfer.definitions import Definitions, DefinitionsArguments


def test_a_revocation_on_the_way_is_told_as_one_with_what_was_done_before() -> None:
    made: list[str] = []

    async def ask(make: Any) -> None:
        made.append(make(0, 1).queue)

    def check() -> None:
        if len(made) == 2:
            raise NotAuthorized("user 'temp' does not have the permission 'create' any more")

    engine = SimpleNamespace(options_of=lambda queue: None, check_new_queue=lambda queue, options: None)
    definitions = Definitions(cast(Any, engine), cast(Any, SimpleNamespace(ask=ask)), QueueOptions())
    caller = Caller(None, Actor("temp"), check_again=check)
    wanted = DefinitionsArguments.model_validate({"queues": [{"queue": name} for name in "abc"]})
    with pytest.raises(NotAuthorized, match="any more"):
        asyncio.run(definitions.apply(caller, wanted))
    assert made == ["a", "b"]
    assert caller.done.count == 2
