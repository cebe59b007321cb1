"""Live streams: server-sent events of figures and of new messages. Nothing that a reader does not read is kept."""
