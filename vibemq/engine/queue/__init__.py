"""One queue and what it consists of: groups, consumers, and the sets of sequences that they hold."""
