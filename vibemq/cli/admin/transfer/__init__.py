"""`vibemq-admin queue export`, `import` and `move`."""
