"""Publishing: rows, batches on their way, and what became of them."""
