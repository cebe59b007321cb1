"""Messages over HTTP: published, fetched under leases, settled. Each principal has one session of the engine, which
outlives its requests (`session`, `peers`)."""
