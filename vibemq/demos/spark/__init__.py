"""`make demo-spark`: a year of flights through Spark, with the driver, an executor and the broker killed on the way."""
