"""Names that the driver and its audience share; apart, so that the audience does without Spark."""

FLIGHTS, DELAYS = "flights", "delays"
"""Queues."""
DELAYS_GROUP, REJECTS_GROUP = "delays", "rejects"
NO_DEPARTURE = "no departure"
