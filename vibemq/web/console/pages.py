"""Which pages there are. All lie side by side, so that every relative URL means the same on each of them."""

from typing import NamedTuple


class ConsolePage(NamedTuple):
    path: str
    """Below the console's own path; "" is its front page."""
    module: str
    """Of `static/pages/`, without `.js`."""
    title: str


PAGES = (
    ConsolePage("", "overview", "Overview"),
    ConsolePage("login", "login", "Log in"),
    ConsolePage("queues", "queues", "Queues"),
    ConsolePage("dead-letters", "dead-letters", "Dead letters"),
    ConsolePage("letter", "letter", "Dead letter"),
    ConsolePage("jobs", "jobs", "Jobs"),
    ConsolePage("job", "job", "Job"),
    ConsolePage("connections", "connections", "Connections"),
    ConsolePage("cursors", "cursors", "Cursors"),
    ConsolePage("broker", "broker", "Broker"),
    ConsolePage("access", "access", "Access"),
    ConsolePage("audit", "audit", "Audit"),
    ConsolePage("api", "api", "API"),
    ConsolePage("queue", "queue", "Queue"),
    ConsolePage("message", "message", "Message"),
)
