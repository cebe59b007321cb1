"""Writing: rows from Arrow columns, and the commit of what the tasks wrote."""
