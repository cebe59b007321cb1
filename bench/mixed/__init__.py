"""A client that publishes single messages and waits for each, beside clients that publish at full speed."""
