"""Small jobs that run as they are: `python -m vibemq.spark.examples.NAME`, or spark-submit of the file.

docs/howto/spark explains each.
"""
