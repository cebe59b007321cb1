"""Blocking connections to a broker, for Spark's workers."""
