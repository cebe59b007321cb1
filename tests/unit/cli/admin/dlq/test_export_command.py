"""`vibemq-admin dlq export` without a job: what is not in the file is told."""

import io
from typing import Any

import anyio
import orjson
import pytest

from vibemq.cli.admin.dlq import pages
from vibemq.cli.admin.dlq.export_command import Exported, copied
from vibemq.cli.output import Output

SIZES = {1: 10, 2: 2_000_000, 3: 20}


class LettersOfAnySize:
    """Letters by id, one of which has a payload that fits into no answer, and one more that cannot be read."""

    def __init__(self) -> None:
        self.together = self.most_together = 0

    async def admin(self, verb: str, **arguments: Any) -> Any:
        if verb == "dlq.list":
            listed = [{"dead_id": dead_id, "queue": "q", "size_bytes": size} for dead_id, size in SIZES.items()]
            return {"letters": listed, "next": None, "damaged": [{"dead_id": 4}]}
        self.together += 1
        self.most_together = max(self.most_together, self.together)
        await anyio.lowlevel.checkpoint()
        self.together -= 1
        dead_id = arguments["dead_id"]
        body = {"payload_size": SIZES[dead_id]} if SIZES[dead_id] > 1 << 20 else {"payload": "x"}
        return {"dead_id": dead_id, **body}


def export(mq: LettersOfAnySize) -> tuple[Exported, list[int]]:
    stream = io.BytesIO()
    done = anyio.run(copied, mq, {}, None, stream, Output(json=True))
    return done, [orjson.loads(line)["dead_id"] for line in stream.getvalue().splitlines()]


def test_payloads_and_letters_that_are_left_out_are_told() -> None:
    done, written = export(LettersOfAnySize())
    assert written == [1, 2, 3]
    assert done.lacking() == (
        "of 1 letter the payload is not there, because it is above 1 MiB: add --job, which writes it; "
        "1 more letter cannot be read"
    )
    assert Exported(3).lacking() == ""


def test_large_letters_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PART_BYTES", 1_000)
    mq = LettersOfAnySize()
    assert export(mq)[1] == [1, 2, 3]
    assert mq.most_together == 1
