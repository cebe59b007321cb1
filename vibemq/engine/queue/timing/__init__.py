"""When parts of a queue are due."""
