"""Whether costs grow with the backlog, the queues, the connections; what a checkpoint costs publishers."""
