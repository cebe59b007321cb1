"""What only a data directory has: files, locks, the ballast, and the file that names the provider."""
