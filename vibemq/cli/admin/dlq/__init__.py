"""`vibemq-admin dlq`."""
