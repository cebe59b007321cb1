"""What a queue is made of."""
