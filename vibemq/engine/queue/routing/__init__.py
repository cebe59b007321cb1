"""What a group knows of its messages and consumers while some of these have selectors."""
