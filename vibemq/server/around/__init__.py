"""What surrounds a running broker, for an operator: checks with remedies, listeners, settings and their origins."""
