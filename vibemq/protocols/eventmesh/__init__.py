"""Apache EventMesh's protocols: TCP in its three dialects, and HTTP. Source: docs/spec/eventmesh.md."""

from vibemq.protocols.eventmesh.settings import EventMeshSettings
from vibemq.protocols.eventmesh.tcp.session import EventMeshSession
from vibemq.protocols.eventmesh.topics import durability_of_topics
from vibemq.protocols.session import ProtocolPlugin

PLUGIN = ProtocolPlugin(
    name="eventmesh",
    settings=EventMeshSettings,
    create=EventMeshSession,
    port=10_000,
    durabilities=durability_of_topics,
)

__all__ = ["PLUGIN", "EventMeshSession", "EventMeshSettings"]
