"""Lists that come in pages, read to their end."""

from collections.abc import Awaitable, Callable
from typing import Any

PAGE = 1000


async def every_item(admin: Callable[..., Awaitable[Any]], operation: str, items: str, **arguments: Any) -> list[Any]:
    """All items of a list, page after page.

    Args:
        admin: `Client.admin`.
        items: where an answer has them. Brokers that know no pages answer with a plain list.
    """
    found: list[Any] = []
    place: dict[str, Any] = {}
    while True:
        answer = await admin(operation, limit=PAGE, **arguments, **place)
        if isinstance(answer, list):
            return answer
        found += answer[items]
        if answer.get("next") is None:
            return found
        place = {"after": answer["next"]}
