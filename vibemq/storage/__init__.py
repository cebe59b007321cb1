"""Storage providers: records to disk and back. One folder each; none knows a protocol or the engine."""
