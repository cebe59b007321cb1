"""Whether the broker stands very large numbers: messages, dead letters, delayed messages, queues, subscribers."""
