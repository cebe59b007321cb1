"""Exports as jobs: the file holds every letter once, whatever comes in between, and is for those who may have it."""

import base64
import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import orjson
import pytest

import vibemq
from tests.integration.full_disk import FullDisk
from tests.integration.http_api import ApiClient, everybody
from tests.integration.jobs import Guarded, Started, guarded, job_of, reached, started
from tests.integration.test_http_guards import dead_letters
from tests.integration.test_operations import dead
from tests.integration.test_server_broker import settings
from tests.waiting import until
from vibemq.config import Http, Settings
from vibemq.engine.handlers.jobs import starting
from vibemq.errors import InvalidOptions, JobNotFound, JobStateConflict, NotAuthorized
from vibemq.model.jobs.job import JobKind, JobPlan, JobState, StoredJob
from vibemq.model.jobs.job_records import JobAdvanced
from vibemq.operations.jobs import results
from vibemq.server.broker import Broker
from vibemq.server.jobs import expiry, worker
from vibemq.server.jobs.export_folder import FOLDER, ExportFolder
from vibemq.server.jobs.exporting import LetterExport
from vibemq.testing.timed_broker import TimedBroker
from vibemq.web.api.contract import Exchange
from vibemq.web.api.endpoints import jobs

pytestmark = pytest.mark.anyio
__all__ = ["guarded", "started"]


async def export_of(mq: vibemq.Client, **arguments: Any) -> dict[str, Any]:
    job: dict[str, Any] = await mq.admin("job.start", kind="export_dead", **arguments)
    return job


async def file_of(mq: vibemq.Client, number: str) -> bytes:
    found, offset = b"", 0
    while offset is not None:
        part = await mq.admin("job.result", job=number, offset=offset)
        found += base64.b64decode(part["data"])
        offset = part["next"]
    return found


def lines_of(file: bytes) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The letters, and the last line."""
    *letters, tail = map(orjson.loads, file.splitlines())
    return letters, tail


async def test_an_export_holds_every_letter_once_and_leaves_them_where_they_are(
    started: Started, tmp_path: Path
) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 450)
    await dead(mq, broker, "other", 5)
    job = await export_of(mq, filter={"queue": "q"}, note="why")
    job = await reached(mq, job["job"], "done")
    assert (job["selected"], job["done"], job["skipped"], job["damaged"], job["examined"]) == (450, 450, 0, 0, 450)
    file = await file_of(mq, job["job"])
    letters, tail = lines_of(file)
    assert tail == {"count": 450, "damaged": 0}
    listed = [letter for page in [await mq.admin("dlq.list", queue="q", limit=450)] for letter in page["letters"]]
    assert [letter["dead_id"] for letter in letters] == [letter["dead_id"] for letter in listed]
    assert letters[0]["dead_at"].endswith("Z")
    assert [orjson.loads(letter["payload"]) for letter in letters] == [{"n": n} for n in range(450)]
    assert (job["has_result"], job["size_bytes"]) == (True, len(file))
    info = await mq.queue_info("q")
    assert info is not None
    assert info.dead == 450
    (path,) = (tmp_path / "data" / FOLDER).iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(file).digest()


async def test_an_export_follows_its_limit_its_rate_and_its_filters(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 60)
    number = (await export_of(mq, filter={"from_id": 11}, limit=30, rate=20))["job"]
    await reached(mq, number, "running", done=1)
    paused = await mq.admin("job.change", job=number, state="paused")
    assert (paused["done"], paused["has_result"]) == (1, False)
    with pytest.raises(JobStateConflict, match="is paused"):
        await mq.admin("job.result", job=number)
    await mq.admin("job.change", job=number, state="running", rate=0)
    await reached(mq, number, "done", done=30)
    letters, tail = lines_of(await file_of(mq, number))
    assert [letter["dead_id"] for letter in letters] == list(range(11, 41))
    assert tail == {"count": 30, "damaged": 0}


async def test_letters_that_others_take_meanwhile_are_counted_as_skipped(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 40)
    number = (await export_of(mq, rate=20))["job"]
    await reached(mq, number, "running", done=1)
    await mq.admin("dlq.purge", ids=list(range(21, 41)))
    await mq.admin("job.change", job=number, rate=0)
    job = await reached(mq, number, "done")
    assert job["done"] + job["skipped"] == job["selected"] == 40
    assert lines_of(await file_of(mq, number))[1]["count"] == job["done"] < 40


async def test_a_body_above_one_mebibyte_is_in_the_file(started: Started) -> None:
    _, mq = started
    body = os.urandom((3 << 20) + 1)
    await mq.create_queue("q")
    await mq.publish("q", body, headers={"note": '"}'})
    (message,) = await mq.fetch("q", timeout=30)
    await message.reject("bad")
    number = (await export_of(mq))["job"]
    await reached(mq, number, "done")
    letters, _ = lines_of(await file_of(mq, number))
    assert [base64.b64decode(letter["payload_base64"]) == body for letter in letters] == [True]
    assert letters[0]["headers"]["note"] == '"}'


@pytest.mark.parametrize("finished", [False, True])
async def test_what_was_written_and_not_counted_is_written_once(tmp_path: Path, *, finished: bool) -> None:
    """As after `kill -9`: lines behind those that count, one of them cut; or a whole file of a job that goes on."""
    async with TimedBroker(tmp_path / "data") as broker, vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "q", 100)
        number = (await export_of(mq, rate=20))["job"]
        await reached(mq, number, "running", done=1)
        job = await mq.admin("job.change", job=number, state="paused")
    (path,) = (tmp_path / "data" / FOLDER).iterdir()
    assert path.name.endswith(".ndjson.part")
    first = path.read_bytes()
    assert first.count(b"\n") == job["done"] == 1
    if finished:
        path.write_bytes(first * 3 + b'{"count": 3}\n')
        path.rename(path.with_name(path.name.removesuffix(".part")))
    else:
        path.write_bytes(first * 2 + first[:-10])
    async with TimedBroker(tmp_path / "data") as again, vibemq.connect(again.url) as mq:
        with pytest.raises(JobStateConflict):
            await mq.admin("job.result", job=number)
        await mq.admin("job.change", job=number, state="running", rate=0)
        job = await reached(mq, number, "done")
        letters, tail = lines_of(await file_of(mq, number))
        assert [letter["dead_id"] for letter in letters] == list(range(1, 101))
        assert (job["done"], job["examined"], tail["count"]) == (100, 100, 100)
    assert [each.name for each in (tmp_path / "data" / FOLDER).iterdir()] == [path.name.removesuffix(".part")]
    async with TimedBroker(tmp_path / "data") as third, vibemq.connect(third.url) as mq:
        assert (await job_of(mq, number))["has_result"]
        assert lines_of(await file_of(mq, number))[1] == tail
        # That ends the connection, too, which has done nothing all the while.
        third.advance(8 * 24 * 3600)
        await until(lambda: not list((tmp_path / "data" / FOLDER).iterdir()))
        async with vibemq.connect(third.url) as later:

            async def has_no_result() -> bool:
                return not (await job_of(later, number))["has_result"]

            await until(has_no_result)


async def test_a_file_that_somebody_has_removed_ends_the_job_with_a_sentence(tmp_path: Path) -> None:
    async with TimedBroker(tmp_path / "data") as broker, vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "q", 20)
        number = (await export_of(mq, rate=20))["job"]
        await reached(mq, number, "running", done=1)
        await mq.admin("job.change", job=number, state="paused")
        (path,) = (tmp_path / "data" / FOLDER).iterdir()
        path.unlink()
        await mq.admin("job.change", job=number, state="running", rate=0)
        job = await reached(mq, number, "failed", "somebody has removed or changed it")
        with pytest.raises(JobStateConflict, match="has no file"):
            await mq.admin("job.result", job=number)
        assert job["done"] == 1


async def test_a_full_disk_stops_the_export_with_a_sentence_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [40 << 20]
    usage = ExportFolder._check_room

    def check_room(folder: ExportFolder, size: int) -> None:
        folder._disk_usage = lambda path: (200 << 20, 190 << 20, free[0])
        usage(folder, size)

    monkeypatch.setattr(ExportFolder, "_check_room", check_room)
    async with TimedBroker(tmp_path / "data") as broker, vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "q", 20)
        number = (await export_of(mq))["job"]
        await reached(mq, number, "waiting", "leaves 41,943,040 of them for messages; it goes on when there is room")
        free[0] = 100 << 20
        broker.advance(worker.RETRY_MS / 1000)
        await reached(mq, number, "done", done=20)
        assert lines_of(await file_of(mq, number))[1]["count"] == 20


@pytest.mark.parametrize("step", ["resume", "finish"])
async def test_a_disk_without_room_for_the_name_of_a_file_lets_the_export_wait(
    started: Started, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 20)
    do = getattr(ExportFolder, step)

    def do_and_flush_nothing(*arguments: Any) -> None:
        do(*arguments)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(ExportFolder, step, do_and_flush_nothing)
        number = (await export_of(mq))["job"]
        await reached(mq, number, "waiting", "No space left on device; it goes on when there is room")
    broker.advance(worker.RETRY_MS / 1000)
    await reached(mq, number, "done", done=20)
    letters, tail = lines_of(await file_of(mq, number))
    assert (len(letters), tail["count"]) == (20, 20)


async def test_a_count_that_the_disk_did_not_take_doubles_no_line(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 450)
    disk = FullDisk(broker, monkeypatch, lambda record: isinstance(record, JobAdvanced) and record.done > 0, times=2)
    number = (await export_of(mq))["job"]

    async def is_done() -> bool:
        broker.advance(worker.RETRY_MS / 1000)
        return bool((await job_of(mq, number))["state"] == "done")

    await until(is_done)
    assert disk.refused == 2
    letters, tail = lines_of(await file_of(mq, number))
    assert [letter["dead_id"] for letter in letters] == list(range(1, 451))
    assert tail["count"] == (await job_of(mq, number))["done"] == 450


async def test_files_are_bounded_in_bytes_and_in_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "vibemq.jobs")
    monkeypatch.setattr(starting, "EXPORTS_MAX", 2)
    limits = settings(tmp_path).model_copy(update={"exports_bytes": 8_000})
    async with Broker(settings=limits) as broker, vibemq.connect(broker.url) as mq:
        await dead(mq, broker, "q", 15)
        first = (await export_of(mq))["job"]
        done = await reached(mq, first, "done")
        assert 4_000 < done["size_bytes"] < 8_000
        second = (await export_of(mq))["job"]
        await reached(mq, second, "waiting", "exports_bytes")
        with pytest.raises(InvalidOptions, match="2 files of exports"):
            await export_of(mq)
        assert (await mq.admin("job.discard", job=first))["size_bytes"] == done["size_bytes"]
        assert f"the file of job {first} ({done['size_bytes']} bytes) was deleted by" in caplog.text
        await reached(mq, second, "done", done=15)
        for verb in ("job.result", "job.discard"):
            with pytest.raises(JobStateConflict, match="no file any more"):
                await mq.admin(verb, job=first)
        await export_of(mq)
    forbidden = limits.model_copy(update={"exports_bytes": 0})
    async with Broker(settings=forbidden) as broker, vibemq.connect(broker.url) as mq:
        with pytest.raises(InvalidOptions, match="exports_bytes = 0"):
            await export_of(mq)


async def test_a_cancelled_export_leaves_no_file(started: Started, tmp_path: Path) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 20)
    number = (await export_of(mq, rate=20))["job"]
    await reached(mq, number, "running", done=1)
    await mq.admin("job.change", job=number, state="cancelled")
    await until(lambda: not list((tmp_path / "data" / FOLDER).iterdir()))
    assert not (await job_of(mq, number))["has_result"]
    with pytest.raises(JobStateConflict, match="is cancelled and has no file"):
        await mq.admin("job.result", job=number)


async def test_an_export_that_nobody_resumes_makes_room(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 20)
    numbers = list[str]()
    for _ in range(2):
        numbers.append((await export_of(mq, rate=20))["job"])
        await reached(mq, numbers[-1], "running", done=1)
        await mq.admin("job.change", job=numbers[-1], state="paused")
        broker.advance(5)
    # The first was paused ten seconds ago, the second five.
    assert expiry.KEPT_MS == 7 * 24 * 3_600_000
    monkeypatch.setattr(expiry, "KEPT_MS", 7_000)
    cancelled = await reached(mq, numbers[0], "cancelled")
    assert "seven days" in cancelled["why"]
    await until(lambda: len(list((tmp_path / "data" / FOLDER).iterdir())) == 1)
    assert (await job_of(mq, numbers[1]))["state"] == "paused"


async def test_a_file_is_for_those_who_may_see_the_letters(guarded: Guarded) -> None:
    _, login = guarded
    async with login("root") as root, login("looker") as looker, login("other") as other:
        with pytest.raises(NotAuthorized):
            await looker.admin("job.start", kind="export_dead")
        with pytest.raises(NotAuthorized):
            await other.admin("job.start", kind="export_dead", filter={"queue": "a"})
        number = (await export_of(looker, filter={"queue": "a"}))["job"]
        await reached(looker, number, "done", done=20)
        assert lines_of(await file_of(looker, number))[1]["count"] == 20
        for verb in ("job.result", "job.discard"):
            with pytest.raises(JobNotFound):
                await other.admin(verb, job=number)
        replay = await root.admin("job.start", kind="replay", filter={"queue": "a"}, limit=1)
        with pytest.raises(NotAuthorized):
            await looker.admin("job.result", job=replay["job"])
        with pytest.raises(JobStateConflict, match="is no export"):
            await root.admin("job.result", job=replay["job"])
        all_of_it = await export_of(root)
        await reached(root, all_of_it["job"], "done")
        with pytest.raises(JobNotFound):
            await looker.admin("job.result", job=all_of_it["job"])


def _with_http(folder: Path, **more: Any) -> Settings:
    http = Http.model_validate({"port": 0, "requests_per_second": 0, **more})
    return settings(folder, auth=everybody()).model_copy(update={"http": http})


async def test_http_gives_the_file_to_those_who_may_see_bodies(tmp_path: Path) -> None:
    own = _with_http(tmp_path, show_bodies="superuser")
    async with Broker(settings=own) as broker:
        api = ApiClient(broker)
        async with api.http:
            await dead_letters(api, 3)
            wanted = {"kind": "export_dead", "filter": {"queue": "a.q"}}
            refused = await api.ask("POST", "/jobs", "owner", json=wanted)
            assert (refused.status_code, refused.json()["code"]) == (403, "NOT_AUTHORIZED")
            assert "show_bodies" in refused.json()["detail"]
            number = (await api.done("POST", "/jobs", "root", json=wanted))["job"]

            async def is_done() -> bool:
                return bool((await api.done("GET", f"/jobs/{number}", "root"))["has_result"])

            await until(is_done)
            path = f"/jobs/{number}/result"
            answer = await api.get(path, "root")
            letters, tail = lines_of(answer.content)
            assert tail == {"count": 3, "damaged": 0}
            assert answer.headers["content-type"] == "application/x-ndjson"
            assert answer.headers["content-disposition"] == f'attachment; filename="dead-letters-job-{number}.ndjson"'
            streamed, _ = lines_of((await api.get("/dead-letters/export?queue=a.q", "root")).content)
            assert letters == streamed
            # Who may see the job, but no bodies.
            assert await api.code("GET", path, "owner") == (403, "NOT_AUTHORIZED")
            assert await api.code("GET", path, "none") == (403, "NOT_AUTHORIZED")
            assert (await api.done("DELETE", path, "root"))["size_bytes"] == len(answer.content)
            assert await api.code("GET", path, "root") == (409, "JOB_STATE")
            assert await api.code("GET", "/jobs/99/result", "root") == (404, "JOB_NOT_FOUND")


async def test_a_download_ends_with_what_allowed_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = _with_http(tmp_path)
    async with Broker(settings=own) as broker:
        api = ApiClient(broker)
        async with api.http:
            await dead_letters(api, 3)
            number = (
                await api.done("POST", "/jobs", "owner", json={"kind": "export_dead", "filter": {"queue": "a.q"}})
            )["job"]

            async def is_done() -> bool:
                return bool((await api.done("GET", f"/jobs/{number}", "owner"))["has_result"])

            await until(is_done)
            monkeypatch.setattr(results, "PART_BYTES", 100)
            part = jobs._part

            async def one_part(exchange: Exchange, offset: int) -> Any:
                if offset:
                    exchange.state.show_bodies = "none"
                return await part(exchange, offset)

            monkeypatch.setattr(jobs, "_part", one_part)
            answer = await api.get(f"/jobs/{number}/result", "owner")
            lines = answer.content.splitlines()
            assert len(lines[0]) == 100
            assert orjson.loads(lines[-1])["error"]["code"] == "NOT_AUTHORIZED"


async def test_nobody_has_the_files_of_others_deleted(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "FINISHED_MAX", 3)
    broker, login = guarded
    async with login("root") as root, login("looker") as looker:
        job = await reached(root, (await export_of(root, filter={"queue": "b"}))["job"], "done")
        for _ in range(6):
            own = (await export_of(looker, filter={"queue": "a", "message_id": "x"}))["job"]
            await reached(looker, own, "done")
            await looker.admin("job.discard", job=own)
        theirs = (await export_of(root, filter={"queue": "a"}))["job"]
        await reached(root, theirs, "done")
        with pytest.raises(NotAuthorized, match="by whoever made the job, or by a superuser"):
            await looker.admin("job.discard", job=theirs)
        assert broker._parts is not None
        await broker._parts.housekeeping.round()
        for number in (job["job"], theirs):
            assert (await job_of(root, number))["has_result"]
        assert lines_of(await file_of(root, job["job"]))[1]["count"] == 20


async def test_a_user_has_half_of_the_bytes(guarded: Guarded) -> None:
    broker, login = guarded
    assert broker._parts is not None
    async with login("root") as root, login("looker") as looker:
        done = await reached(looker, (await export_of(looker, filter={"queue": "a"}))["job"], "done")
        files = broker._parts.job_runner._services.exports
        files.bytes_max = 3 * done["size_bytes"]
        own = (await export_of(looker, filter={"queue": "a"}))["job"]
        await reached(looker, own, "waiting", "files of exports of user 'looker'")
        await reached(root, (await export_of(root, filter={"queue": "a"}))["job"], "done")


async def test_an_export_that_can_never_have_its_bytes_fails(started: Started, tmp_path: Path) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 15)
    assert broker._parts is not None
    broker._parts.job_runner._services.exports.bytes_max = 1_000
    number = (await export_of(mq))["job"]
    assert "more than 1,000 bytes" in (await reached(mq, number, "failed"))["why"]
    await until(lambda: not list((tmp_path / "data" / FOLDER).iterdir()))


async def test_an_export_does_not_wait_for_ever(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 15)
    done = await reached(mq, (await export_of(mq))["job"], "done")
    assert broker._parts is not None
    broker._parts.job_runner._services.exports.bytes_max = done["size_bytes"]
    number = (await export_of(mq))["job"]
    await reached(mq, number, "waiting", "exports_bytes")
    assert worker.KEPT_MS == 7 * 24 * 3_600_000
    monkeypatch.setattr(worker, "KEPT_MS", 5_000)
    broker.advance(4)
    await reached(mq, number, "waiting", "exports_bytes")
    broker.advance(4)
    assert "waited for seven days" in (await reached(mq, number, "cancelled"))["why"]


async def test_an_empty_step_behind_the_end_leaves_a_file_whole(started: Started) -> None:
    broker, _ = started
    assert broker._parts is not None
    services = broker._parts.job_runner._services
    export = LetterExport(services.store, services.exports)
    plan = JobPlan(kind=JobKind.EXPORT_DEAD, filter={}, last_id=0)
    job = StoredJob(job_id=9, plan=plan, created_at=1, state=JobState.RUNNING)
    for _ in range(2):
        # As after a refusal of the disk to store that the job is done.
        await export.add(job, [])
        export.counted(job)
        await export.finish(job)
        assert services.exports.is_whole(job)


async def test_a_broker_starts_where_nothing_can_be_exported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / FOLDER).write_text("")
    async with TimedBroker(tmp_path / "data") as broker, vibemq.connect(broker.url) as mq:
        with pytest.raises(InvalidOptions, match=r"cannot be used .Not a directory"):
            await export_of(mq)
        assert "dead letters are not exported by jobs" in caplog.text
        await dead(mq, broker, "q", 1)
        await mq.admin("job.start", kind="purge_dead")


async def test_a_file_that_cannot_be_deleted_keeps_no_other_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exports = tmp_path / "data" / FOLDER
    stuck = exports / "dead-letters-77-1.ndjson"
    (stuck / "full").mkdir(parents=True)
    exports.chmod(0o755)
    (exports / "dead-letters-78-1.ndjson").write_text("{}")
    async with TimedBroker(tmp_path / "data") as broker:
        assert broker._parts is not None
        with caplog.at_level("INFO", "vibemq.jobs"):
            for _ in range(3):
                await broker._parts.job_runner._services.exports.tidy()
        assert os.listdir(exports) == [stuck.name]
        assert stat.S_IMODE(exports.stat().st_mode) == 0o700
        said = [record.getMessage() for record in caplog.records if record.name == "vibemq.jobs"]
        assert [text for text in said if "job 78 was deleted: there is no such job" in text]
        assert len([text for text in said if "job 77 cannot be deleted" in text]) == 1
        (stuck / "full").rmdir()
        stuck.rmdir()
        await broker._parts.job_runner._services.exports.tidy()
        assert os.listdir(exports) == []


async def test_letters_that_are_looked_at_again_count_once(started: Started) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 60)
    assert broker._parts is not None
    reader = broker._parts.job_runner._services.reader
    examined, after, taken = 0, 0, 0
    done = False
    while not done:
        found = await reader.find(
            lambda facts, queue: facts.dead_id % 3 == 0,
            after=after,
            limit=4,
            max_bytes=400,
            row_fits=lambda letter: True,
        )
        examined, after, done = examined + found.examined, found.last, found.done
        taken += len(found.letters)
    assert (examined, taken) == (60, 20)


async def test_who_reads_a_file_is_in_the_log(started: Started, caplog: pytest.LogCaptureFixture) -> None:
    broker, mq = started
    await dead(mq, broker, "q", 3)
    number = (await export_of(mq))["job"]
    await reached(mq, number, "done")
    with caplog.at_level("INFO", "vibemq.jobs"):
        size = len(await file_of(mq, number))
    assert f"the file of job {number} ({size} bytes) is read by anonymous" in caplog.text
