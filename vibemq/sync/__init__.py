"""The client without `await`, for threads: the same names, plain context managers and iterators.

    with vibemq.sync.connect("vibemq://localhost") as mq:
        mq.publish("orders", {"id": 1})
        with mq.subscribe("orders") as messages:
            for message in messages:
                with message.process():
                    handle(message.json())

A client has a loop of its own in a daemon thread. Any thread may use it. A thread that waits costs one hop to the loop
per call, per *batch* when it iterates; settlements are collected and cross over together.
"""

from vibemq.client import Message, MessageBatch, Outgoing, PublishReport, Receipt, ReconnectPolicy, Response
from vibemq.sync.client import Client, Publisher, connect
from vibemq.sync.inbox import Inbox
from vibemq.sync.subscription import Subscription

__all__ = [
    "Client",
    "Inbox",
    "Message",
    "MessageBatch",
    "Outgoing",
    "PublishReport",
    "Publisher",
    "Receipt",
    "ReconnectPolicy",
    "Response",
    "Subscription",
    "connect",
]
