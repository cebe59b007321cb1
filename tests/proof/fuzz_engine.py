"""Inputs nobody would send, made from inputs that somebody would: a seeded mutation engine without dependencies.

A *target* takes bytes and may raise only its documented errors. `Engine.run` mutates a pool of inputs; an input that
makes the target do something new (another error, another answer) joins the pool, so that later mutations start there.
The same seed, pool and count give the same inputs.

`execute` is the one door through which an input reaches a target, for this engine and for atheris alike. It measures
what every target promises: an answer within a second of processor time, and memory in proportion.
"""

import random
import resource
import struct
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

INPUT_BYTES_MAX = 64 * 1024
CPU_SECONDS_MAX = 1.0
"""Of this process, for one input: a loaded machine makes nothing look like a hang."""
MEMORY_BYTES_MAX = 48 * 1024 * 1024
"""By which one input may raise the process's high-water mark: several times the largest body with its copies."""
SHORT_BYTES_MAX = 96
LONG_SHARE = 0.1
"""Of all mutations. What breaks a decoder is mostly a few bytes long, and a long input costs as much as ten."""
POOL_MAX = 600


class Broken(AssertionError):
    """A target kept its error family and still broke a promise."""


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    what: str
    run: Callable[[bytes], Hashable]
    """Feed one input; return a small value that tells kinds of answers apart."""
    errors: tuple[type[BaseException], ...]
    """What it may raise."""
    seeds: Callable[[], Iterable[bytes]]
    words: tuple[bytes, ...] = ()
    """Tokens worth inserting."""
    size_max: int = 4096
    """Of the longer mutations; one in a thousand goes up to INPUT_BYTES_MAX."""
    torture_cases: int = 1_000_000
    is_decoder: bool = True
    """Bytes in, values out. What opens whole stores is slower by nature, and says so in its name."""


def execute(target: Target, data: bytes) -> Hashable:
    """Run one input and say what kind of answer came.

    Raises:
        Broken: it took too long or too much memory.
        Exception: whatever else the target raises and may not.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    trait: Hashable
    try:
        trait = target.run(data)
    except target.errors as error:
        trait = _place(error)
    spent = time.process_time() - start
    if spent > CPU_SECONDS_MAX:
        raise Broken(f"{len(data)} B took {spent:.1f} s of processor time")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if grown > MEMORY_BYTES_MAX:
        raise Broken(f"{len(data)} B raised the process's memory by {grown >> 20} MiB")
    return trait


def _place(error: BaseException) -> tuple[str, str, int]:
    """Where it was raised: lines tell refusals apart without looking at their words."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = (trace.tb_frame.f_code.co_name, trace.tb_lineno) if trace is not None else ("", 0)
    return type(error).__name__, *where


# -- mutations ----------------------------------------------------------------------------------------------------

_EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 2**31 - 1, 2**31, 2**32 - 1)
_BIG = (2**63 - 1, 2**63, 2**64 - 1, 2**53, 0)
_ASCII = b'0123456789-+.eE{}[]":,; \\/_aZ\n\t\0\x7f'


class Mutator:
    """Changes inputs by chance, all of it from one seed."""

    def __init__(self, seed: int, words: Sequence[bytes]) -> None:
        self.rng = random.Random(seed)
        self._words = tuple(words) or (b"\0", b"\xff\xff\xff\xff")
        self._ways: tuple[Callable[[bytearray], None], ...] = (
            self._flip,
            self._set,
            self._set,
            self._edge,
            self._edge,
            self._delete,
            self._double,
            self._insert,
            self._word,
            self._word,
            self._over,
            self._cut,
        )

    def mutate(self, data: bytes, other: bytes, size_max: int) -> bytes:
        """A neighbour of `data`, at times crossed with `other`, and at times very long."""
        rng = self.rng
        changed = bytearray(data)
        if rng.random() < 0.1 and other:
            at = rng.randrange(len(changed) + 1)
            changed[at:] = other[rng.randrange(len(other)) :]
        for _ in range(1 if rng.random() < 0.5 else rng.randrange(2, 7)):
            rng.choice(self._ways)(changed)
        if rng.random() < 0.001:
            self._blow_up(changed)
            return bytes(changed[:INPUT_BYTES_MAX])
        return bytes(changed[:size_max])

    def _at(self, data: bytearray) -> int:
        return self.rng.randrange(len(data)) if data else 0

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._at(data)] ^= 1 << self.rng.randrange(8)

    def _set(self, data: bytearray) -> None:
        if data:
            data[self._at(data)] = self.rng.choice(_ASCII) if self.rng.random() < 0.5 else self.rng.randrange(256)

    def _edge(self, data: bytearray) -> None:
        """A number at the edge of its range, where a length or a count may stand; or one off what stands there."""
        form, limit = self.rng.choice((("!B", 1 << 8), ("!H", 1 << 16), ("!I", 1 << 32), ("!Q", 1 << 64)))
        size = struct.calcsize(form)
        if len(data) < size:
            return
        at = self.rng.randrange(len(data) - size + 1)
        if self.rng.random() < 0.5:
            number = struct.unpack_from(form, data, at)[0] + self.rng.choice((-1, 1, -2, 2, 16))
        else:
            number = self.rng.choice(_EDGES + _BIG)
        struct.pack_into(form, data, at, number % limit)

    def _stretch(self, data: bytearray) -> tuple[int, int]:
        at = self._at(data)
        return at, at + self.rng.choice((1, 1, 2, 4, 8, 16, 64))

    def _delete(self, data: bytearray) -> None:
        start, end = self._stretch(data)
        del data[start:end]

    def _double(self, data: bytearray) -> None:
        start, end = self._stretch(data)
        data[start:start] = data[start:end]

    def _insert(self, data: bytearray) -> None:
        at = self.rng.randrange(len(data) + 1)
        data[at:at] = self.rng.randbytes(self.rng.choice((1, 2, 4, 9)))

    def _word(self, data: bytearray) -> None:
        at = self.rng.randrange(len(data) + 1)
        data[at:at] = self.rng.choice(self._words)

    def _over(self, data: bytearray) -> None:
        word = self.rng.choice(self._words)
        at = self._at(data)
        data[at : at + len(word)] = word

    def _cut(self, data: bytearray) -> None:
        if data and self.rng.random() < 0.3:
            del data[self._at(data) :]

    def _blow_up(self, data: bytearray) -> None:
        """One stretch many times over, up to the largest input."""
        start, end = self._stretch(data)
        piece = bytes(data[start:end]) or b"["
        data[start:start] = piece * ((INPUT_BYTES_MAX - len(data)) // len(piece))


# -- the engine ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Crash:
    data: bytes
    error: str


@dataclass(slots=True)
class Run:
    executions: int = 0
    crashes: list[Crash] = field(default_factory=list)
    kinds: int = 0
    """Different answers seen."""
    fresh: list[bytes] = field(default_factory=list)
    """Inputs that showed a new one."""


class Engine:
    """Fuzzes one target from a pool of inputs."""

    def __init__(self, target: Target, pool: Iterable[bytes], *, seed: int) -> None:
        self._target = target
        self._pool = list(dict.fromkeys(pool)) or [b""]
        self._short_pool = [data for data in self._pool if len(data) <= SHORT_BYTES_MAX] or [b""]
        self._seen: set[Hashable] = set()
        self._mutator = Mutator(seed, target.words)
        self.result = Run()

    def replay(self) -> None:
        """The pool as it is."""
        for data in list(self._pool):
            self._try(data)

    def run(self, executions: int, *, until: float = float("inf"), crashes_max: int = 5) -> None:
        """Mutate until so many executions were made in all, the time (`time.monotonic`) is over, or enough broke."""
        inputs = self._inputs()
        for number in count():
            if self.result.executions >= executions or len(self.result.crashes) >= crashes_max:
                return
            if number % 256 == 0 and time.monotonic() >= until:
                return
            data = next(inputs)
            if self._try(data):
                self.result.fresh.append(data)
                self._keep(self._pool, data)
                if len(data) <= SHORT_BYTES_MAX:
                    self._keep(self._short_pool, data)

    def _keep(self, pool: list[bytes], data: bytes) -> None:
        if len(pool) < POOL_MAX:
            pool.append(data)
        else:
            pool[self._mutator.rng.randrange(POOL_MAX)] = data

    def _inputs(self) -> Iterator[bytes]:
        rng, mutate = self._mutator.rng, self._mutator.mutate
        while True:
            is_long = rng.random() < LONG_SHARE
            pool, size_max = (self._pool, self._target.size_max) if is_long else (self._short_pool, SHORT_BYTES_MAX)
            yield mutate(rng.choice(pool), rng.choice(pool), size_max)

    def _try(self, data: bytes) -> bool:
        """True when the answer was of a new kind."""
        self.result.executions += 1
        try:
            trait = execute(self._target, data)
        except Exception as error:
            # Once per place: a thousand inputs that trip over the same stone are one finding.
            where = _place(error)
            if where not in self._seen:
                self._seen.add(where)
                self.result.crashes.append(Crash(data, f"{type(error).__name__}: {error} (in {where[1]}, {where[2]})"))
            return False
        if trait in self._seen:
            return False
        self._seen.add(trait)
        self.result.kinds += 1
        return True
