"""What the engine knows of an application that commits."""

from dataclasses import dataclass, field

from vibemq.model.runs import Run


@dataclass(slots=True)
class Transaction:
    """The last committed version of one application."""

    version: int
    decided_at: int
    stages: list[int]
    """queue_id of each committed stage, in order; those that are gone have been moved whole."""
    tag: str = ""
    """The application's own note."""
    owner: str = ""
    """The user to whom the application belongs; "" = nobody."""
    committed: list[Run] = field(default_factory=list)
    """Runs of all committed versions; see `vibemq.model.stored.with_version`."""
