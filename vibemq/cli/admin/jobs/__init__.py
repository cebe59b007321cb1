"""`vibemq-admin job`, and what starts jobs and follows them."""
