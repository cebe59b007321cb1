"""What is around the engine: sockets, the committer, clocks, people and probes. The room that waits."""
