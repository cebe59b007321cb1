"""What every request passes around what it asks for: host, origin, rates, slots, deadlines, names that belong elsewhere.
Nothing here knows an operation."""
