"""`make bench-spark`: the connector beside what Spark's Python data sources can do at best."""
