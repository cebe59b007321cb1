"""Whose a store is: its place, its owner, its directory."""

import os
import socket

import pytest

from vibemq.errors import StorageError, StorageFailed, StorageFenced, StorageLocked, StoreVersionError
from vibemq.model.stored import StoredState
from vibemq.storage.interface import StoreLocation
from vibemq.storage.local.store_file import StoreInfo, read_store_info, write_store_info
from vibemq.testing.storage_conformance.records import ALL, NO_LIMIT, added, assert_rows, queue
from vibemq.testing.storage_conformance.subject import Check, Subject, durable


@durable
def check_a_store_is_where_its_location_says(subject: Subject) -> None:
    if subject.connect is None:
        pytest.skip("the store is in no place")
    first = subject.connect(StoreLocation(subject.data_dir))
    first.open()
    first.append([*queue(), added(1, 3)])
    first.close()
    with subject.opened() as (storage, _):
        assert_rows(storage.read(1, 1, ALL, NO_LIMIT), [1, 2, 3])


@durable
def check_epochs_rise(subject: Subject) -> None:
    epochs = []
    for _ in range(3):
        with subject.opened() as (storage, _state):
            epochs.append(storage.epoch)
    assert epochs == [0, 0, 0] or epochs[0] < epochs[1] < epochs[2]


@durable
def check_a_former_owner_is_fenced(subject: Subject) -> None:
    if subject.take_over is None:
        pytest.skip("no other owner can open this store")
    with subject.opened() as (storage, _):
        assert storage.epoch > 0
        storage.append([*queue(), added(1, 3)])
        subject.take_over(subject.data_dir)
        for _ in range(2):
            with pytest.raises(StorageFenced, match="taken"):
                storage.append([added(4, 2)])
        with pytest.raises(StorageFenced):
            storage.sync()
        with pytest.raises(StorageFenced):
            storage.maintain()
    with subject.opened() as (storage, _):
        assert_rows(storage.read(1, 1, ALL, NO_LIMIT), [1, 2, 3])
        assert list(storage.check()) == []


@durable
def check_a_second_owner_is_refused(subject: Subject) -> None:
    with subject.opened():
        second = subject.make(subject.data_dir)
        with pytest.raises(StorageLocked) as refused:
            second.open()
        second.close()
        assert str(os.getpid()) in str(refused.value)
        assert socket.gethostname() in str(refused.value)
    with subject.opened() as (_, state):
        assert state == StoredState()


@durable
def check_everything_is_for_its_owner_alone(subject: Subject) -> None:
    before = os.umask(0o022)
    try:
        with subject.opened() as (storage, _):
            storage.append([*queue(), added(1, 3)])
            storage.sync()
            storage.maintain()
            open_to_others = [
                str(path.relative_to(subject.data_dir))
                for path in subject.data_dir.rglob("*")
                if path.stat().st_mode & 0o077
            ]
    finally:
        os.umask(before)
    assert open_to_others == []


@durable
def check_the_directory_says_whose_it_is(subject: Subject) -> None:
    with subject.opened():
        pass
    info = read_store_info(subject.data_dir)
    assert info is not None
    assert info.provider == subject.name
    write_store_info(subject.data_dir, StoreInfo(info.provider, info.version + 1, info.created_at))
    with pytest.raises(StoreVersionError, match="newer"):
        subject.make(subject.data_dir).open()
    write_store_info(subject.data_dir, StoreInfo("other", info.version, info.created_at))
    with pytest.raises(StoreVersionError, match="other"):
        subject.make(subject.data_dir).open()
    write_store_info(subject.data_dir, info)
    with subject.opened() as (_, state):
        assert state == StoredState()


@durable
def check_a_directory_that_was_moved_is_served_no_more(subject: Subject) -> None:
    """What it would confirm from then on nobody would find."""
    aside = subject.data_dir.with_name(f"{subject.data_dir.name}-aside")
    storage = subject.make(subject.data_dir)
    storage.open()
    storage.append(queue())
    storage.sync()
    storage.maintain()
    subject.data_dir.rename(aside)
    with pytest.raises(StorageFailed, match="is not the one any more that was opened"):
        storage.maintain()
    aside.rename(subject.data_dir)
    storage.close()
    with subject.opened() as (_, state):
        assert len(state.queues) == 1


def check_close_is_idempotent_and_final(subject: Subject) -> None:
    storage = subject.make(subject.data_dir)
    storage.open()
    storage.close()
    storage.close()
    with pytest.raises(StorageError):
        storage.append(queue())


CHECKS: list[Check] = [value for name, value in list(globals().items()) if name.startswith("check_")]
