"""What the engine is told by whoever runs it."""

from dataclasses import dataclass, field

from vibemq.model.options import QueueOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    auto_create: bool = True
    """Publish and Subscribe create a missing queue (when they ask for it)."""
    queue_defaults: QueueOptions = field(default_factory=QueueOptions)
    capacity_messages_default: int = 1000
    """Unsettled messages of a consumer that names no limit."""
    block_timeout_ms: int = 8_000
    """How long a BlockPublisher queue keeps a publisher waiting; below the 10 s after which .NET clients give up."""
    block_bytes_max: int = 64 << 20
    """What all publishers that wait so may hold of the memory, beside 4 KiB of each session; whoever finds it full is
    refused at once."""
    transient_only: bool = False
    """The storage provider keeps nothing: other queues than transient ones are refused, defaults become transient."""
