from pathlib import Path

import pytest

from vibemq.config import Settings, StorageChoice
from vibemq.errors import ConfigInvalid
from vibemq.model.options import Durability
from vibemq.server.assembly import default_options


def settings_with(tmp_path: Path, **queue_defaults: object) -> Settings:
    return Settings(data_dir=tmp_path, storage=StorageChoice(provider="memory"), queue_defaults=queue_defaults)


def test_queues_of_a_broker_that_keeps_nothing_are_transient(tmp_path: Path) -> None:
    found = default_options(settings_with(tmp_path, max_attempts=3), durable_queues=False)
    assert (found.durability, found.max_attempts) == (Durability.TRANSIENT, 3)


def test_a_durable_default_of_a_broker_that_keeps_nothing_is_refused(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, durability="weak")
    with pytest.raises(ConfigInvalid, match="durability is weak, and the storage provider 'memory' keeps nothing"):
        default_options(settings, durable_queues=False)
    assert default_options(settings, durable_queues=True).durability is Durability.WEAK


def test_transient_may_be_said(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, durability="transient")
    assert default_options(settings, durable_queues=False).durability is Durability.TRANSIENT
