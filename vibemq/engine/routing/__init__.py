"""Who is handed what: turns of consumers, and where messages go when consumers have selectors."""
