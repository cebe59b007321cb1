"""What every peer shares with the others."""

from collections.abc import Callable
from dataclasses import dataclass

from vibemq.server.access.authenticator import Authenticator
from vibemq.server.clock import Clock
from vibemq.server.commit.release_order import EffectRouter
from vibemq.server.commit.storage_threads import Store
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.decider import Decider
from vibemq.server.net.operation_runner import OperationRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerServices:
    clock: Clock
    metrics: Metrics
    decider: Decider
    effect_router: EffectRouter
    store: Store
    authenticator: Authenticator
    operations: OperationRunner
    fatal: Callable[[BaseException], None]
