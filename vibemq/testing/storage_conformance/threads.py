"""Appends, flushes and reads run beside each other."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from vibemq.storage.interface import FlushesAtOnce
from vibemq.testing.storage_conformance.records import ALL, NO_LIMIT, added, assert_rows, queue, sequences
from vibemq.testing.storage_conformance.subject import Check, Subject


def check_sync_runs_beside_append(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append(queue())
        done = threading.Event()
        errors: list[BaseException] = []

        def keep_syncing() -> None:
            try:
                while not done.is_set():
                    storage.sync()
                    storage.maintain()
            except BaseException as exc:
                errors.append(exc)

        thread = threading.Thread(target=keep_syncing)
        thread.start()
        try:
            for index in range(150):
                lsn = storage.append([added(1 + 2 * index, 2)])
                assert_rows(storage.read(1, 1 + 2 * index, ALL, NO_LIMIT), [1 + 2 * index, 2 + 2 * index])
        finally:
            done.set()
            thread.join()
        assert not errors
        assert storage.sync() >= lsn
        assert sequences(storage.read(1, 1, ALL, NO_LIMIT)) == list(range(1, 301))


def check_a_flush_at_once_covers_what_was_appended(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        if not isinstance(storage, FlushesAtOnce):
            pytest.skip("flushes in a thread")
        lsn = storage.append([*queue(), added(1, 3)])
        covered = storage.try_sync()
        assert covered is not None
        assert covered >= lsn
        assert storage.stats().durable_lsn == storage.stats().last_lsn


def check_flushes_cover_what_was_appended_before_them(subject: Subject) -> None:
    """As many at a time as the provider says; none covers less than was there when it began."""
    with subject.opened() as (storage, _):
        assert storage.in_flight_max >= 1
        storage.append(queue())
        wrong: list[tuple[int, int]] = []
        errors: list[BaseException] = []
        with ThreadPoolExecutor(storage.in_flight_max) as threads:

            def flush(appended: int) -> None:
                try:
                    covered = storage.sync()
                    if covered < appended:
                        wrong.append((appended, covered))
                except BaseException as exc:
                    errors.append(exc)

            for index in range(100):
                threads.submit(flush, storage.append([added(1 + index, 1)]))
        assert (wrong, errors) == ([], [])
        assert storage.sync() == storage.stats().durable_lsn == storage.stats().last_lsn


def check_reads_run_beside_commits(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        if not storage.concurrent_reads:
            pytest.skip("reads where it appends")
        storage.append([*queue(), added(1, 50)])
        errors: list[BaseException] = []
        done = threading.Event()

        def keep_reading() -> None:
            try:
                while not done.is_set():
                    assert_rows(storage.read(1, 1, 50, NO_LIMIT), range(1, 51))
                    storage.dead_letters()
            except BaseException as exc:
                errors.append(exc)

        thread = threading.Thread(target=keep_reading)
        thread.start()
        try:
            for index in range(100):
                storage.append([added(51 + index, 1)])
                if index % 10 == 0:
                    storage.maintain()
        finally:
            done.set()
            thread.join()
        assert errors == []


CHECKS: list[Check] = [value for name, value in list(globals().items()) if name.startswith("check_")]
