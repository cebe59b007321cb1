"""Small jobs that run as they are: `python -m vibemq.spark.examples.NAME`, or spark-submit of a copy that
`vibemq-spark-example NAME` has made.

docs/howto/spark explains each.
"""
