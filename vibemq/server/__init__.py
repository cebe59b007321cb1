"""The server around the engine: sockets, the committer, clocks, users and probes."""
