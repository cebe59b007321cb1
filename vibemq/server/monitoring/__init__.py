"""What operators see of a running broker: counters, one snapshot of all queues, health, metrics, housekeeping."""
