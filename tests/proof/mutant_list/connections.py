"""Connections that are busy, end their streams, or read what a restart has skipped."""

from tests.proof.mutant_list.mutant import BUSY, ENDED, RANGES_SIM, Mutant

PEER_DRIVER = "server/net/peer_driver.py"
RANGE_VIEWS = "engine/range_views.py"

CONNECTIONS = (
    Mutant(
        "a session is not told the time at which it reads",
        PEER_DRIVER,
        "                self._told = self._clock.now()\n                self.session.tick(self._told)\n",
        "                self._told = self._clock.now()\n",
        sign=r"before its (delay|ttl) was over",
        by=(BUSY,),
    ),
    Mutant(
        "the HTTP API counts from the first publish of a user",
        "web/api/endpoints/messages/publish.py",
        "        now=exchange.services.now(),\n",
        "        now=peer.session._context.now,\n",
        sign=r"the HTTP API: .* before its (delay|ttl) was over",
        by=(BUSY,),
    ),
    Mutant(
        "a session that leaves is handed messages",
        PEER_DRIVER,
        "        if self.leaving:\n            self._hand_back()\n",
        "",
        sign=r"nobody saw",
        by=(ENDED,),
        also=(
            (
                PEER_DRIVER,
                "        releases = self._releases(unwritten + self.delivery_queue.take_back()[0]"
                " + self.release_queue.take_back())\n",
                "        releases = self._releases([])\n",
            ),
        ),
    ),
)

RANGES = (
    Mutant(
        "a fetch of a range without messages goes on where it began",
        RANGE_VIEWS,
        "        reached = max(start, min(end, ranges.known_end(queue)))\n",
        "        reached = max([start, *(run[1] + 1 for run in members.overlap(start, end - 1))])\n",
        sign=r"the reader still stands at",
        by=(RANGES_SIM,),
    ),
    Mutant(
        "a fetch beyond the tail goes on at its end",
        RANGE_VIEWS,
        "        reached = max(start, min(end, ranges.known_end(queue)))\n",
        "        reached = max(start, end)\n",
        sign=r"reader\.at == tail|kept <= set",
        by=(RANGES_SIM,),
    ),
)
