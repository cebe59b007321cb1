"""The family of errors."""

import copy
import inspect
import pickle
import re
from collections.abc import Iterator

import pytest

import vibemq
from vibemq import errors
from vibemq.client.failures import error_of
from vibemq.errors import (
    ErrorCode,
    FailedPublish,
    InvalidSelector,
    PreconditionFailed,
    PublishFailed,
    PublishRefused,
    QueueFull,
    ServerError,
    StorageDamaged,
    StorageFull,
    VibeMQError,
)

MADE = (
    InvalidSelector("a = ", 4, "a value is missing"),
    PreconditionFailed("it has changed", {"difference": {"durability": "weak"}}),
    StorageDamaged("a bad checksum", path="data.mdb", offset=4_096, hint="restore a backup"),
    StorageFull("no space", limit="disk"),
    ServerError("unknown", wire_code="NEW_CODE"),
    PublishRefused("q", {1: QueueFull("q", "10 messages", "messages")}, accepted=1),
    PublishFailed([FailedPublish("q", "a", QueueFull("q", "10 messages"))]),
)


def of_the_wire() -> Iterator[VibeMQError]:
    for code in ErrorCode:
        yield error_of(code, "the sentence of the broker", "q")


@pytest.mark.parametrize("error", [*MADE, *of_the_wire()], ids=lambda error: f"{type(error).__name__}-{error.code}")
def test_an_error_crosses_a_process_pool(error: VibeMQError) -> None:
    for copied in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert (type(copied), str(copied), copied.code) == (type(error), str(error), error.code)
        assert vars(copied).keys() == vars(error).keys()


@pytest.mark.parametrize("error", list(of_the_wire()), ids=lambda error: error.code)
def test_an_error_of_the_wire_has_what_its_class_promises(error: VibeMQError) -> None:
    constructor = type(error).__init__
    source = "" if constructor is VibeMQError.__init__ else inspect.getsource(constructor)
    assert [name for name in re.findall(r"self\.(\w+) = ", source) if not hasattr(error, name)] == []


def test_what_an_error_has_besides_its_sentence_crosses_too() -> None:
    refused = pickle.loads(pickle.dumps(MADE[5]))
    assert isinstance(refused, PublishRefused)
    assert (refused.queue, refused.accepted, str(refused.refused[1])) == ("q", 1, str(QueueFull("q", "10 messages")))
    failed = pickle.loads(pickle.dumps(MADE[6]))
    assert isinstance(failed, PublishFailed)
    assert failed.failures[0].id == "a"


def test_every_class_of_the_family_has_the_base_s_way_to_be_copied() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, VibeMQError)]
    assert len(kinds) > 50
    assert {kind.__reduce__ for kind in kinds} == {VibeMQError.__reduce__}


def test_the_package_has_them_without_an_import_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(vibemq, "errors")
    assert vibemq.errors is errors
