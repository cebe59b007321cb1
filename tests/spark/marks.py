"""Marks of modules whose tests run queries in a session of their own process."""

import os
import shutil

import pytest

OF_QUERIES = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.skipif(
        not (os.environ.get("JAVA_HOME") or shutil.which("java")),
        reason="needs a JDK 17 or later: java is not on PATH and JAVA_HOME is not set",
    ),
    # Spark's own: of pandas' version, and of sockets to its JVM.
    pytest.mark.filterwarnings("default"),
]
