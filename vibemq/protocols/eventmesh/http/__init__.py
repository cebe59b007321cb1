"""EventMesh over HTTP: operations by code, URI endpoints, and pushes to the URLs of subscribers.

request (HTTP) -> fields -> operations, uri_endpoints -> topic_publish, push.hub
session  one connection
push     who is subscribed, and the way to their URLs

Source: docs/spec/eventmesh.md, "HTTP".
"""

from collections.abc import Callable
from typing import Any

from vibemq.protocols.eventmesh.http.push.hub import SubscriptionHub
from vibemq.protocols.eventmesh.http.session import EventMeshHttpSession
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.eventmesh.topics import durability_of_topics
from vibemq.protocols.session import ProtocolPlugin, Services, Session, SessionContext


async def start(services: Services, settings: EventMeshHttpSettings) -> Callable[[SessionContext, Any], Session]:
    """All sessions share one hub, as there is one queue of subscriptions."""
    hub = SubscriptionHub(services, settings)
    hub.start()
    return lambda context, options: EventMeshHttpSession(context, options, hub)


PLUGIN = ProtocolPlugin(
    name="eventmesh-http",
    settings=EventMeshHttpSettings,
    create=EventMeshHttpSession.alone,
    port=10105,
    start=start,
    starts_once=True,
    durabilities=durability_of_topics,
)

__all__ = ["PLUGIN", "EventMeshHttpSession", "EventMeshHttpSettings"]
