"""Pages of the HTTP server."""

import urllib.error
import urllib.request

from tests.integration.every_call.world import World


def page(world: World, path: str) -> bytes:
    try:
        with urllib.request.urlopen(world.http + path, timeout=60) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        return error.read()
