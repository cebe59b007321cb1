"""What the broker lends to its HTTP API (`vibemq.web.api.services`)."""
