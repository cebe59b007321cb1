"""The parts of a broker that its HTTP API is lent."""

import socket
import time

from vibemq._version import __version__
from vibemq.server.api.calls import ApiCalls
from vibemq.server.api.logins import ApiLogins
from vibemq.server.api.messages import ApiMessages
from vibemq.server.assembly import Assembly
from vibemq.server.monitoring.status import BrokerStatus
from vibemq.web.api.services import ApiServices, PeerMaking


def lend(parts: Assembly, peers: PeerMaking, status: BrokerStatus) -> ApiServices:
    return ApiServices(
        operations=ApiCalls(parts.runner, parts.local_session, parts.command_audit, parts.background_tasks),
        logins=ApiLogins(parts.authenticator, parts.audit),
        accounts=parts.accounts,
        peers=peers,
        messages=ApiMessages(parts.runner, parts.engine.readers, parts.committer.taps, parts.connection_table),
        queue_defaults=parts.queue_defaults,
        now=parts.clock.now,
        monotonic=time.monotonic,
        is_ready=lambda: not status.draining,
        version=__version__,
        broker_name=socket.gethostname(),
    )
