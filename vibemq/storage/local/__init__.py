"""Parts of providers that have a data directory on this machine: lock, ballast, file modes."""
