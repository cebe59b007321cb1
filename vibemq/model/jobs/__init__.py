"""Jobs: long work on dead letters that the broker keeps, and goes on with after a restart."""
