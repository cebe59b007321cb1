"""What providers share that keep state and blocks in an ordered key-value store."""
