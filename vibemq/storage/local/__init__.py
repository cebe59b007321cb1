"""What only a data directory on this machine has: files beside it, their modes, their places."""
