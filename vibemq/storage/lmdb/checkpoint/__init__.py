"""From the journal into LMDB: the process that does it, and the schedule that starts it."""
