"""What the broker tells about itself: counters, health, metrics."""
