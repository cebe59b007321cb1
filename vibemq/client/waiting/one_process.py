"""What has a connection behind it, and so stays in the process that made it. A fork is another matter: see
`connecting.forking`."""

from typing import ClassVar, NoReturn


class OfOneProcess:
    """Neither pickled nor copied: arguments of `multiprocessing` and of process pools are."""

    __slots__ = ()

    _elsewhere: ClassVar[str] = (
        "this belongs to a connection of this process, so it is neither pickled nor copied; give another process the"
        " address of the broker, and connect there"
    )
    """What to do instead."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(self._elsewhere)
