"""The HTTP API of a large broker: how long requests take, and what everything that looks at it costs the messages."""
