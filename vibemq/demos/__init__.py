"""What `vibemq demo` and `make demo-spark` run: 336,776 flights through a broker that is killed on the way.

flights/    the client's demo
spark/      the same flights through Spark; its `tidy` also ends processes for the tests and benchmarks of Spark, its
            `example` is the script `vibemq-spark-example`
"""
