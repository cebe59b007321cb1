"""What publishing and consuming over HTTP share."""

from vibemq.web.api.messages.leases import LeaseSeal
from vibemq.web.api.messages.peers import HttpPeers
from vibemq.web.api.services import ApiServices


class MessageDoor:
    """Args:
    key, run: random bytes, for leases.
    """

    def __init__(self, services: ApiServices, key: bytes, run: bytes) -> None:
        self.peers = HttpPeers(services.peers, services.messages.consumers)
        self.seal = LeaseSeal(key, run)
