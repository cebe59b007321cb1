"""The file that a job has made in the broker, copied to this machine."""

import base64
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from vibemq.cli.admin.jobs.following import require_all_read
from vibemq.cli.exits import CommandFailed
from vibemq.cli.online import call
from vibemq.cli.output import Output, count_text, is_standard, whole_file
from vibemq.cli.progress import tracked
from vibemq.client import Client

TAIL_BYTES = 256
"""More than the last line has."""


def save_result(url: str, timeout: float, job: str, file: Path, out: Output) -> None:
    """
    Raises:
        CommandFailed: what has come is not a whole file; then there is none.
        PartlyDone: the file is whole, and letters that cannot be read are not in it.
    """

    async def work(mq: Client) -> dict[str, Any]:
        with whole_file(file) as stream:
            return await _copy(mq, job, stream, out)

    tail = call(url, timeout, work)
    if not is_standard(file):
        told = {"job": job, "count": tail["count"], "damaged": tail["damaged"], "file": str(file)}
        out.emit(told, f"{count_text(tail['count'], 'dead letter')} written to {file}")
    require_all_read(job, tail["damaged"])


async def _copy(mq: Client, job: str, stream: BinaryIO, out: Output) -> dict[str, Any]:
    """The last line."""
    offset: int | None = 0
    end = b""
    with tracked("fetched", out, silent=out.json) as progress:
        while offset is not None:
            part = await mq.admin("job.result", job=job, offset=offset)
            data = base64.b64decode(part["data"])
            stream.write(data)
            end = (end + data)[-TAIL_BYTES:]
            progress(offset + len(data), part["size_bytes"])
            offset = part["next"]
    return _tail_of(end, job)


def _tail_of(end: bytes, job: str) -> dict[str, Any]:
    try:
        tail = orjson.loads(end.rstrip(b"\n").rpartition(b"\n")[2])
    except orjson.JSONDecodeError:
        tail = None
    if not end.endswith(b"\n") or not isinstance(tail, dict) or not {"count", "damaged"} <= tail.keys():
        raise CommandFailed(
            f"the file of job {job} does not end as a whole one does; fetch it again", code="FILE_INVALID"
        )
    return tail
