"""What a program is told of its client's work."""
