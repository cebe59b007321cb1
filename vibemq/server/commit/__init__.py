"""Group commit of outcomes, and the order in which sessions receive effects."""
