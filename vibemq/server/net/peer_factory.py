"""Makes the peers of a broker, whatever carries their bytes."""

import asyncio
from collections.abc import Callable

from vibemq.auth.policy import Policy
from vibemq.protocols.session import Session
from vibemq.server.access.admission import OwnAdmission, PeerAdmission
from vibemq.server.net.driving.services import PeerServices
from vibemq.server.net.peer_driver import PeerDriver
from vibemq.server.net.timers import Timers


class PeerFactory:
    """Args:
    messages_per_second_max: of each peer; 0 = any number.
    """

    def __init__(self, services: PeerServices, policy: Policy, timers: Timers, *, messages_per_second_max: int) -> None:
        self._services = services
        self._policy = policy
        self._timers = timers
        self.messages_per_second_max = messages_per_second_max
        self._loop = asyncio.get_running_loop()

    def drive(
        self,
        session: Session,
        *,
        number: int,
        connection_id: str,
        host: str,
        wake: Callable[[], None],
        protocol: str,
        certified: tuple[str, ...] = (),
        own: bool = False,
        limited: bool = True,
    ) -> PeerDriver:
        """A peer with its rights and, if it is limited, its rate limit; its deadlines are watched. `own`: a part of the
        broker, which may do everything."""
        per_second = self.messages_per_second_max if limited else 0
        guard = (
            OwnAdmission(Policy({}, enabled=False), self._services.metrics, per_second=0, now=0.0)
            if own
            else PeerAdmission(self._policy, self._services.metrics, per_second=per_second, now=self._loop.time())
        )
        peer = PeerDriver(
            self._services,
            session,
            guard,
            number=number,
            connection_id=connection_id,
            host=host,
            wake=wake,
            protocol=protocol,
            certified=certified,
        )
        self._timers.watch(peer)
        return peer
