"""What a publish is told when the client, not the broker, has to say that it failed."""

import pickle
from collections.abc import Callable

import pytest

from vibemq.client.address import ClientSettings
from vibemq.client.link import ClientLink
from vibemq.client.protocol import ClientProtocol
from vibemq.client.publishing.outbox import PublishBatch
from vibemq.client.publishing.outgoing import ROW_BYTES_MAX
from vibemq.client.publishing.receipts import PublishReport, receipt
from vibemq.errors import MessageTooLarge, NotConnected, RequestTimeout, VibeMQError

pytestmark = pytest.mark.anyio


def put(link: ClientLink, row: bytes = b"row") -> PublishBatch:
    batch = PublishBatch("q")
    batch.offer(row)
    link.outbox.put(batch)
    return batch


def time_out(link: ClientLink) -> PublishBatch:
    batch = put(link)
    link.data_to_send(0.0)
    link.tick(11.0)
    return batch


def lose_the_connection(link: ClientLink) -> PublishBatch:
    batch = put(link)
    link.offline(0.0, "unplugged")
    link.tick(61.0)
    return batch


def outgrow(link: ClientLink) -> PublishBatch:
    batch = put(link, b"x" * (ROW_BYTES_MAX + 1))
    assert link.protocol is not None
    link.protocol.body_bytes_max = ROW_BYTES_MAX
    link.data_to_send(0.0)
    return batch


def end(link: ClientLink) -> PublishBatch:
    batch = put(link)
    link.fail(lambda: NotConnected(f"the end of {link}"))
    return batch


async def test_a_publish_in_a_long_absence_waits_as_long_as_one_at_its_beginning() -> None:
    link = ClientLink(ClientSettings(), now=0.0)
    link.online(ClientProtocol(link.settings), 0.0)
    link.offline(1.0, "unplugged")
    link.tick(90.0)
    batch = put(link)
    for now in (90.5, 120.0, 150.5):
        link.tick(now)
        assert not batch.done.is_set()
    link.tick(151.0)
    with pytest.raises(NotConnected, match=r"no connection to localhost:2925 within 60\.0 s \(unplugged\)"):
        receipt(batch, 0)


@pytest.mark.parametrize(
    ("fail", "kind"),
    [
        (time_out, RequestTimeout),
        (lose_the_connection, NotConnected),
        (outgrow, MessageTooLarge),
        (end, NotConnected),
    ],
)
async def test_a_report_crosses_process_pools_whatever_has_failed(
    fail: Callable[[ClientLink], PublishBatch], kind: type[VibeMQError]
) -> None:
    link = ClientLink(ClientSettings(), now=0.0)
    link.online(ClientProtocol(link.settings), 0.0)
    report = PublishReport("q", [fail(link)])
    copied = pickle.loads(pickle.dumps(report))
    assert isinstance(copied.refused[0], kind)
    assert str(copied.refused[0]) == str(report.refused[0])
