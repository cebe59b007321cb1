"""The blocking client beside the asynchronous one."""

import inspect
from typing import Any

import pytest

from vibemq import client as asynchronous
from vibemq import sync

TWINS = [
    (asynchronous.Client, sync.Client),
    (asynchronous.Publisher, sync.Publisher),
    (asynchronous.Subscription, sync.Subscription),
]
NO_TWIN = {
    "Client": {
        "open": "connect does it",
        "publishing": "for faces of the client",
    },
    "Publisher": {
        **dict.fromkeys(("pack", "send_packed"), "for faces of the client"),
        "unconfirmed": "Client.unconfirmed",
    },
    "Subscription": {
        "start": "entering the block does it",
        "next_batch_or_none": "next_batch is it",
        **dict.fromkeys(("arrival", "take_buffered", "leave", "abandon", "begin_drain"), "a part"),
        **dict.fromkeys(
            ("check", "halt", "subscribe_frame", "established", "deliver", "ended", "lost"), "for the link"
        ),
        **dict.fromkeys(("forget_inherited", "take_frames", "tick", "tick_s"), "for the link"),
        **dict.fromkeys(("settle", "extend", "is_stale", "is_lost", "reply"), "for messages"),
        **dict.fromkeys(("take_next", "begin_next", "put_back"), "for threads"),
        **dict.fromkeys(("something_came", "check_started"), "for threads"),
        **dict.fromkeys(("ripe", "settle_together"), "for threads"),
        "buffered": "for fetch",
        "draining": "for Inbox",
        "failure": "for Inbox",
        "stopped": "for Inbox",
    },
}


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_every_public_name_has_its_blocking_twin(one: type, other: type) -> None:
    missing = public(one) - public(other)
    assert missing == set(NO_TWIN[one.__name__])


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_parameters_of_twins_are_the_same(one: type, other: type) -> None:
    """A twin that takes `**options` takes those of the other."""
    for name in public(one) & public(other):
        mine, theirs = (inspect.getattr_static(kind, name) for kind in (one, other))
        if not inspect.isfunction(mine):
            continue
        expected, found = (inspect.signature(function).parameters for function in (mine, theirs))
        passes_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in found.values())
        for parameter in expected.values():
            assert parameter.name in found or passes_on, f"{one.__name__}.{name}({parameter.name}=…)"
            if parameter.name in found:
                assert found[parameter.name].default == parameter.default


def blocking(kind: type) -> Any:
    return kind.__new__(kind)


@pytest.mark.parametrize("kind", [sync.Client, sync.Publisher, sync.Subscription])
def test_the_blocking_client_is_no_use_with_await(kind: type) -> None:
    async def wait() -> None:
        await blocking(kind)

    async def enter() -> None:
        async with blocking(kind):
            pass

    async def iterate() -> None:
        async for _ in blocking(sync.Subscription):
            pass

    for use in (wait, enter, iterate):
        with pytest.raises(TypeError, match="write `with` and `for`"):
            use().send(None)
