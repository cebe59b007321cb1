"""Wrong logins from many loopback addresses, each over a connection of its own, at a fixed rate until it is ended.

Standard output: one line of JSON a second, how many were answered.
"""

import asyncio
import contextlib
import json
import sys
import time

from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body

ADDRESSES = 50
BODY_MAX = 1 << 20
UNDER_WAY_MAX = 2_000


class Attack:
    def __init__(self, port: int, rate: float) -> None:
        self._port = port
        self._rate = rate
        self.answered = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        began, number, told = time.monotonic(), 0, 0.0
        while True:
            now = time.monotonic() - began
            while number < now * self._rate and len(self._tasks) < UNDER_WAY_MAX:
                task = asyncio.get_running_loop().create_task(self._guess(number))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                number += 1
            if now - told >= 1:
                told = now
                print(json.dumps({"sent": number, "answered": self.answered}), flush=True)
            await asyncio.sleep(0.005)

    async def _guess(self, number: int) -> None:
        headers = {"authUsername": "root" if number % 2 else f"user{number}", "authPassword": f"wrong{number}"}
        with contextlib.suppress(OSError):
            source = (f"127.0.0.{2 + number % ADDRESSES}", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=source)
            writer.write(encode_frame(encode_body(CommandType.CONNECT, "c", headers=headers), body_bytes_max=BODY_MAX))
            answer = await reader.read(4096)
            self.answered += bool(answer)
            writer.close()


if __name__ == "__main__":
    asyncio.run(Attack(int(sys.argv[1]), float(sys.argv[2])).run())
