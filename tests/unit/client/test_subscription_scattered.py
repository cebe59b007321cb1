"""Messages far apart that came in one frame are each what they are."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from vibemq.client.address import ClientSettings
from vibemq.client.link import ClientLink
from vibemq.client.message import MessageBatch
from vibemq.client.receiving.options import SubscribeOptions
from vibemq.client.subscription import Subscription
from vibemq.model.commands import Settlement
from vibemq.model.rows import Rows, pack_row
from vibemq.model.runs import Run
from vibemq.protocols.native.codec.extensions import DeliverMany

pytestmark = pytest.mark.anyio

SEQUENCES, INSTANTS = (9, 3, 40, 10), (900, 300, 4_000, 1_000)


class Settled:
    """In the place of the settler: what it was asked to settle."""

    def __init__(self) -> None:
        self.asked: list[tuple[Settlement, list[Run]]] = []

    def settle(self, delivery: object, verb: Settlement, runs: Sequence[Run], delay_ms: int, reason: str) -> None:
        self.asked.append((verb, sorted(runs)))


def delivered() -> tuple[MessageBatch[Any], Settled]:
    link = ClientLink(ClientSettings(), now=anyio.current_time())
    subscription: Subscription[Any] = Subscription(link, SubscribeOptions(queue="q"), None)
    link.subscriptions[subscription.id] = subscription
    rows = Rows.of([pack_row(f"m{sequence}", b"%d" % sequence) for sequence in SEQUENCES])
    subscription.deliver(
        DeliverMany(subscription.id, "q", 9, 900, rows, acquired={3: 2}, sequences=SEQUENCES, instants=INSTANTS)
    )
    assert subscription.stats.received == len(SEQUENCES)
    settled = Settled()
    [batch] = subscription._untaken.batches
    batch._delivery.settler = settled  # type: ignore[assignment]
    return batch, settled


async def test_in_the_order_in_which_they_came() -> None:
    batch, settled = delivered()
    found = [(message.sequence, message.body, message.published_at, message.attempt) for message in batch]
    assert found == list(zip(SEQUENCES, SEQUENCES, INSTANTS, (1, 2, 1, 1), strict=True))
    assert settled.asked == []


async def test_all_of_them_are_settled_and_none_between_them() -> None:
    batch, settled = delivered()
    batch.ack_all()
    batch.release_all()
    assert settled.asked == [(Settlement.ACK, [(3, 3), (9, 10), (40, 40)])]


async def test_one_of_them_is_settled_and_then_the_others() -> None:
    batch, settled = delivered()
    batch[1].reject("bad")
    batch.release_all()
    assert settled.asked == [(Settlement.REJECT, [(3, 3)]), (Settlement.RELEASE, [(9, 10), (40, 40)])]
