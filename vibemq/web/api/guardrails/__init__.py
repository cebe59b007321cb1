"""What every request passes around what it asks for: host, origin, rates, slots, deadlines, names that do not belong
there. Nothing here knows an operation."""
