"""EventMesh over HTTP: operations by code, URI endpoints, and pushes to the URLs of subscribers.

requests   request (HTTP) -> fields -> operations, uri_endpoints -> session
hub        who is subscribed: registry (kept in a queue), push_groups, inner_session
push       push_request, push_answer

Source: docs/spec/eventmesh.md, "HTTP".
"""

from vibemq.protocols.eventmesh.http.hub import start
from vibemq.protocols.eventmesh.http.session import EventMeshHttpSession
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.session import ProtocolPlugin

PLUGIN = ProtocolPlugin(
    name="eventmesh-http",
    settings=EventMeshHttpSettings,
    create=EventMeshHttpSession.alone,
    port=10105,
    start=start,
)

__all__ = ["PLUGIN", "EventMeshHttpSession", "EventMeshHttpSettings"]
