"""What every request passes before it is understood: host, origin, rates, slots. Nothing here knows an operation."""
