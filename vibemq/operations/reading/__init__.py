"""Messages of queues, looked at without taking them: what waits, what is with a consumer, and whole bodies."""
