"""What the asynchronous client's objects say to programs that use them as the blocking client's."""

from typing import ClassVar, NoReturn

from vibemq.client.waiting.one_process import OfOneProcess


class Asynchronous(OfOneProcess):
    """For `async with`, and not for `with` or `await`."""

    _usage: ClassVar[str]
    """How it is used instead."""

    def __await__(self) -> NoReturn:
        raise TypeError(self._usage)

    def __enter__(self) -> NoReturn:
        raise TypeError(self._usage)

    def __exit__(self, *_: object) -> NoReturn:
        raise TypeError(self._usage)
