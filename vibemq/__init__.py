"""VibeMQ: a durable queue service in one small process."""
