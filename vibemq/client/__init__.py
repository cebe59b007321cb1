"""The client: publishing, consuming and queue verbs over a connection that reconnects. Runs on asyncio and trio."""

from vibemq.client.address import ClientSettings
from vibemq.client.api import Client, connect
from vibemq.client.changes import ConnectionChange
from vibemq.client.message import Message, MessageBatch
from vibemq.client.observing.hooks import ClientHook, ObservedMessage, ProcessObservation, PublishObservation
from vibemq.client.publisher import Confirm, Publisher
from vibemq.client.publishing.outgoing import Outgoing
from vibemq.client.publishing.receipts import PublishReport, Receipt
from vibemq.client.publishing.requests import Response
from vibemq.client.receiving.options import SubscriptionStats
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.client.subscription import Subscription

__all__ = [
    "Client",
    "ClientHook",
    "ClientSettings",
    "Confirm",
    "ConnectionChange",
    "Message",
    "MessageBatch",
    "ObservedMessage",
    "Outgoing",
    "ProcessObservation",
    "PublishObservation",
    "PublishReport",
    "Publisher",
    "Receipt",
    "ReconnectPolicy",
    "Response",
    "Subscription",
    "SubscriptionStats",
    "connect",
]
