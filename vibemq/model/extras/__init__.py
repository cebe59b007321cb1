"""What sets messages of a batch apart from plain ones."""
