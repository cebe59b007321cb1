from vibemq import errors as errors
from vibemq import sync as sync
from vibemq._version import __version__ as __version__
from vibemq.client import Client as Client
from vibemq.client import Message as Message
from vibemq.client import MessageBatch as MessageBatch
from vibemq.client import Outgoing as Outgoing
from vibemq.client import Publisher as Publisher
from vibemq.client import PublishReport as PublishReport
from vibemq.client import Receipt as Receipt
from vibemq.client import ReconnectPolicy as ReconnectPolicy
from vibemq.client import Response as Response
from vibemq.client import Subscription as Subscription
from vibemq.client import connect as connect
from vibemq.server.broker import Broker as Broker

__all__ = [
    "Broker",
    "Client",
    "Message",
    "MessageBatch",
    "Outgoing",
    "PublishReport",
    "Publisher",
    "Receipt",
    "ReconnectPolicy",
    "Response",
    "Subscription",
    "__version__",
    "connect",
    "errors",
    "sync",
]
