"""What the tasks of a client wait for."""
