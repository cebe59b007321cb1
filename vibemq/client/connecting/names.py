"""Names of hosts, and which of their addresses answers."""

import socket
from collections.abc import Awaitable, Callable
from functools import partial
from ipaddress import ip_address
from typing import TypeVar

import anyio

from vibemq.client.connecting.greenlets import system_getaddrinfo
from vibemq.client.connecting.own_task import on_asyncio
from vibemq.client.connecting.own_thread import in_own_thread

HEAD_START_S = 0.25
"""Of one address of a name before the next one is tried as well (RFC 6555)."""

Address = tuple[socket.AddressFamily, str]
T = TypeVar("T")


async def addresses_of(host: str, port: int) -> list[Address]:
    """One of IPv6 first, if there is any, then one of IPv4. An address has no name to look up.

    Raises:
        OSError: the name is not known.
    """
    try:
        version = ip_address(host).version
    except ValueError:
        found = list(dict.fromkeys(await _looked_up(host, port)))
    else:
        return [(socket.AF_INET6 if version == 6 else socket.AF_INET, host)]
    sixth = [address for address in found if address[0] == socket.AF_INET6]
    others = [address for address in found if address[0] != socket.AF_INET6]
    return [*sixth[:1], *others[:1], *sixth[1:], *others[1:]]


async def first_reached(addresses: list[Address], reach: Callable[[Address], Awaitable[T]]) -> tuple[T, list[T]]:
    """They are tried one after the other, and beside each other when one takes long.

    Returns:
        What was reached first, and what was reached at the same moment, which the caller closes.

    Raises:
        OSError: no address could be reached; the reasons are its cause.
    """
    made: list[T] = []
    failures: list[OSError] = []

    async def attempt(address: Address, tried: anyio.Event) -> None:
        try:
            reached = await reach(address)
        except OSError as error:
            failures.append(error)
        else:
            made.append(reached)
            tasks.cancel_scope.cancel()
        finally:
            tried.set()

    async with anyio.create_task_group() as tasks:
        for address in addresses:
            tried = anyio.Event()
            tasks.start_soon(attempt, address, tried)
            with anyio.move_on_after(HEAD_START_S):
                await tried.wait()
    if not made:
        raise OSError("no address could be reached") from _together(failures)
    return made[0], made[1:]


def _together(failures: list[OSError]) -> BaseException:
    return failures[0] if len(failures) == 1 else ExceptionGroup("no address could be reached", failures)


async def _looked_up(host: str, port: int) -> list[Address]:
    """In a thread of its own, which ends with the look-up. uvloop would use libuv's pool, whose threads a forked child
    joins when it exits; it does not have them, and ends by a signal (SIGSEGV). A daemon, so that a name server that
    does not answer keeps no program from its end."""
    if not on_asyncio():
        return await anyio.to_thread.run_sync(_known, host, port, abandon_on_cancel=True)
    return await in_own_thread(partial(_known, host, port), "vibemq name look-up")


def _known(host: str, port: int) -> list[Address]:
    """
    Raises:
        OSError: it is no name, or nobody knows it.
    """
    try:
        found = system_getaddrinfo()(_encoded(host), port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # IDNAError is one.
        raise OSError(f"{host!r} is no name of a host: {error}") from error
    return [(family, str(address[0])) for family, *_, address in found]


def _encoded(host: str) -> bytes:
    """As `anyio.getaddrinfo` does it: by IDNA 2008, where Python has 2003. Raises UnicodeError."""
    if host.isascii():
        return host.encode()
    import idna  # For names that few have, half a megabyte of tables.

    return idna.encode(host, uts46=True)
