"""What the blocking client's objects say to programs that use them as the asynchronous client's."""

from typing import Final, NoReturn

from vibemq.client.waiting.one_process import OfOneProcess

BLOCKING: Final = (
    "vibemq.sync has the blocking client, which is used without await, `async with` and `async for`: write `with` and"
    " `for`, or use vibemq.connect, the client for await"
)


class Blocking(OfOneProcess):
    """For `with`, and not for `async with` or `await`."""

    def __await__(self) -> NoReturn:
        raise TypeError(BLOCKING)

    def __aenter__(self) -> NoReturn:
        raise TypeError(BLOCKING)

    def __aexit__(self, *_: object) -> NoReturn:
        raise TypeError(BLOCKING)
