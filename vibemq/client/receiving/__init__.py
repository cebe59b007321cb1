"""What the broker delivers, and how much at a time."""
