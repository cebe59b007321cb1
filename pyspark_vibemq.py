"""Found by Spark itself: it imports every top-level module named `pyspark_*` and takes the sources in it.

One that cannot be imported would disable all of them without a word, hence the wide net.
"""

try:
    from vibemq.spark import DefaultSource
except Exception:  # No pyspark, one without data sources, no pyarrow: then there is no source, and that is all.
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
