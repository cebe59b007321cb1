"""The words every room shares: frozen meanings, arithmetic on runs and rows. Imports nothing of ours but errors."""
