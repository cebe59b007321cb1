"""Messages that operators put into queues, and move between them."""
