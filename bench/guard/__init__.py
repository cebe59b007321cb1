"""What keeps the hot path fast: work per message, counted, and compared with a frozen loop in the same process."""
